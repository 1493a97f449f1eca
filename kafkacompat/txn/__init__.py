"""The transaction coordinator as a pure machine: states, operations, the records of `__transaction_state`."""
