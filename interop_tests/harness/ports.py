"""Ports for the servers of the suite. They stay reserved while a server is down."""

from __future__ import annotations

import os
import random
import socket

# Below the range of ports for outgoing connections. Otherwise a client that reconnects again and again could take its
# broker's port.
LOWEST, END = 15_000, 32_000


def turn(worker: str, workers: int) -> int:
    """The number of a worker among all workers."""
    return int(worker.removeprefix("gw")) % workers


def share(worker: str, workers: int) -> range:
    """The ports of one of pytest-xdist's workers (gw0, gw1, ...). No worker takes the port of another worker's server
    that is down.

    A worker that replaces a dead one has a higher number, and gets the ports of the dead one.
    """
    number = turn(worker, workers)
    size = (END - LOWEST) // workers
    return range(LOWEST + number * size, LOWEST + (number + 1) * size)


WORKER = os.environ.get("PYTEST_XDIST_WORKER") or "gw0"
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT") or 1)
PORTS = share(WORKER, WORKERS)

_given: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which no server listens, that no outgoing connection takes, and that was not returned before."""
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((host if host.startswith("127.") else "0.0.0.0", port))
            except OSError:
                continue
        _given.add(port)
        return port
