"""Clients in other languages and old clients, used by small programs: Go, Node, Java and Python."""
