"""Authentication and authorization: SASL exchanges, access control lists and the decisions based on them (KIP-801).

Sockets and the metadata log are unknown here. controller/ makes the records, api/ asks for decisions.
"""
