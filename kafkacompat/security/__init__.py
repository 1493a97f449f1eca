"""Who is asking, and who may do what: SASL's exchanges, access control lists and the decision over them (KIP-801).

Knows no sockets and no metadata log; controller/ makes the records, api/ asks for decisions.
"""
