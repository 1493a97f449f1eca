"""Clients of other languages and of past years, by small programs of our own: Go, Node, Java and Python."""
