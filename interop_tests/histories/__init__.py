"""Histories of real processes: clients at work while nodes fail, everything they do recorded, and a checker that judges it."""
