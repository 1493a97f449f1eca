"""Listeners with authentication, and their answers."""
