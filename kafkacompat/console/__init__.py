"""A web console: the pipeline's results, the cluster's state, and a browser of records. It writes nothing.

core/ has the pure parts (no clock, no network). The rest are shells on trio: reader.py follows the result topics,
admin.py and looking.py read the cluster's state, browse.py reads records for one request, server.py answers over HTTP.
The console is a client of any Kafka broker. It imports nothing of a broker's insides, and the broker nothing of it.
"""
