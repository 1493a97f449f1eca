"""Seeded simulation of whole groups of cores: nothing here is imported by the broker."""
