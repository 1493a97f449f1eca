"""Histories of real processes: clients work while nodes fail, every operation is recorded, and a checker judges the
record."""
