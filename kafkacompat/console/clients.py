"""The console's clients: the client library's settings, and our own client for what the library cannot ask. They are silent,
bounded in memory, quick to reconnect when the broker returns, and never write."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

from kafkacompat.client.trio_connection import TrioConnection, connected
from kafkacompat.console.core.snapshot import NodeSeen
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import ClientSecurity

CLIENT_ID = "kafkacompat-console"
GROUP_ID = "kafkacompat-console"
"""The library requires a group id. Nothing is committed, so no such group appears."""
MAX_QUEUED_KBYTES = 8 * 1024
RECONNECT_MAX_MS = 1_000
SOCKET_TIMEOUT_MS = 6_000

NODE_TIMEOUT_S = 2.0
RESPONSE_BYTES_MAX = 16 * 1024 * 1024

Settings = dict[str, Any]


def connected_to(node: NodeSeen, security: ClientSecurity) -> AbstractAsyncContextManager[TrioConnection]:
    """A connection to a node, for at most NODE_TIMEOUT_S. Raises CommandFailed with the reason."""
    return connected(
        node.host,
        node.port,
        security,
        client_id=CLIENT_ID,
        response_bytes_max=RESPONSE_BYTES_MAX,
        within_s=NODE_TIMEOUT_S,
    )


def quiet_logger() -> logging.Logger:
    """Return a logger that discards what the library would print while the broker is away. The page shows that state."""
    logger = logging.getLogger("kafkacompat.console.client")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def common_settings(bootstrap: ClusterAddress) -> Settings:
    """Return the settings that all clients of the console have."""
    return {
        **bootstrap.librdkafka(),
        "client.id": CLIENT_ID,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.connection.setup.timeout.ms": SOCKET_TIMEOUT_MS,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "broker.address.family": "any",
        "log_level": 0,
    }


def consumer_settings(bootstrap: ClusterAddress, uncommitted: bool = False) -> Settings:
    """Return settings for a consumer with assigned partitions and offsets, which reports when it reaches the end of a
    partition."""
    return common_settings(bootstrap) | {
        "group.id": GROUP_ID,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "queued.max.messages.kbytes": MAX_QUEUED_KBYTES,
        "fetch.wait.max.ms": 100,
    }
