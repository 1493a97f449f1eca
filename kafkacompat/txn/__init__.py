"""Transactions: the transaction coordinator, its pure machine, its service and the senders of markers."""
