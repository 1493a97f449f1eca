"""Seeded simulations of whole groups of cores. The broker imports nothing from here."""
