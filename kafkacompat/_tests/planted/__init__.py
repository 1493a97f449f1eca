"""Bugs planted in copies of the product, to see whether the unit tests notice."""
