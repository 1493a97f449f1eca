"""A web console: what the pipeline's result topics say, the cluster's state, and a browser of records. It writes nothing.

core/ holds pure parts (no clock, no network). The rest are shells on trio: reader.py follows the result topics,
cluster.py asks for the cluster's state, browse.py reads records for one request, server.py answers over HTTP.
A client of any Kafka broker; it imports nothing of the broker and the broker nothing of it.
"""
