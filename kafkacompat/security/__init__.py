"""Who may do what: access control lists and the decision over them (Kafka's StandardAuthorizer, KIP-801).

Pure. Knows no sockets, no requests and no metadata log; controller/ makes the records, api/ asks for decisions.
"""
