"""Ports for servers of the suite, which stay free while their server is down."""

from __future__ import annotations

import os
import random
import socket

# Below the range that outgoing connections take ports from: one of a client that asks for its broker again and again would.
LOWEST, END = 15_000, 32_000


def turn(worker: str, workers: int) -> int:
    """The number of a worker among so many."""
    return int(worker.removeprefix("gw")) % workers


def share(worker: str, workers: int) -> range:
    """The ports of one of pytest-xdist's workers, named gw0 and on: none takes that of another's server which is just down.

    A worker that stands in for one that died has a number beyond the others, and that one's ports.
    """
    number = turn(worker, workers)
    size = (END - LOWEST) // workers
    return range(LOWEST + number * size, LOWEST + (number + 1) * size)


WORKER = os.environ.get("PYTEST_XDIST_WORKER") or "gw0"
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT") or 1)
PORTS = share(WORKER, WORKERS)

_given: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now, that no outgoing connection will take and that was not given before."""
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
