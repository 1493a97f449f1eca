"""Settings of the Kafka clients: silent, bounded in memory, quick to notice that the broker is back. They never write."""

from __future__ import annotations

import logging
from typing import Any

GROUP_ID = "kafkacompat-console"
"""The library asks for one; nothing is committed, so no group appears."""
MAX_QUEUED_KBYTES = 8 * 1024
RECONNECT_MAX_MS = 1_000
SOCKET_TIMEOUT_MS = 6_000

Settings = dict[str, Any]


def quiet_logger() -> logging.Logger:
    """Swallows what the client library would print while the broker is away; the page says it."""
    logger = logging.getLogger("kafkacompat.console.client")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return logger


def common_settings(bootstrap: str) -> Settings:
    """What every client of the console is given."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "kafkacompat-console",
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.connection.setup.timeout.ms": SOCKET_TIMEOUT_MS,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
        "broker.address.family": "any",
        "log_level": 0,
    }


def consumer_settings(bootstrap: str, uncommitted: bool = False) -> Settings:
    """A consumer that is told its partitions and offsets, and tells when it has reached the end of one."""
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
