"""Settings of librdkafka's consumers while nodes die.

librdkafka forgets all brokers while it is connected to none, and begins again with its bootstrap servers (KIP-899). If
an answer to OffsetForLeaderEpoch is due just then, two of its threads wait for each other for ever (its issue 5476): the
consumer reads no more, and its commit never returns. By default it connects only to the nodes that it needs. Then it
often has no connection at the moment when leaders move away from a node that stops.
"""

from __future__ import annotations

CONNECTED_TO_ALL = {
    "enable.sparse.connections": False,
    # It learns soon that a node is back, and connects to it.
    "topic.metadata.refresh.interval.ms": 2000,
    "reconnect.backoff.max.ms": 500,
}
