"""Listeners with TLS: throughput over TLS 1.3, and connections with their handshakes."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import WARM_THEN_MEASURED, client, cpu_seconds, create_topic, running
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.security.handshakes import API_VERSIONS
from interop_tests.security.stores import Stores, with_listener

Figures = dict[str, float]
SIZE = 1000
ANSWER_S = 30


class Secured:
    """A broker with TLS 1.3 listeners: librdkafka's settings for it, and the address for counting handshakes."""

    def __init__(self, broker: BrokerProcess, port: int, stores: Stores) -> None:
        self.broker = broker
        self.port = port
        self.stores = stores
        self.job: dict[str, Any] = {
            "bootstrap": f"127.0.0.1:{port}",
            "security": {"security.protocol": "ssl", "ssl.ca.location": str(stores.ca_pem)},
        }


@contextmanager
def secured(kind: str, *, use_rsa: bool) -> Iterator[Secured]:
    with TemporaryDirectory() as folder:
        stores, port = Stores(Path(folder)), free_port()
        own = stores.authority.issue(use_rsa=use_rsa)
        settings = stores.settings(own, prefix="listener.name.safe.")
        with running(kind) as broker:
            broker.stop()
            broker.settings |= with_listener(broker.settings, port) | settings
            yield Secured(broker.start(), port, stores)


def throughput(count: int, partitions: int) -> Callable[[str], Figures]:
    """The same load without and with TLS, on the same broker."""

    def run(kind: str) -> Figures:
        figures: Figures = {}
        with secured(kind, use_rsa=False) as served:
            ways: dict[str, dict[str, Any]] = {"clear": {}, "TLS": served.job}
            for way, more in ways.items():
                for name in WARM_THEN_MEASURED:
                    topic = f"{way}-{name}"
                    create_topic(served.broker, topic, partitions)
                    job: dict[str, Any] = {"topic": topic, "size": SIZE, "count": count} | more
                    produced = client(served.broker, work="produce", expected_bytes=count * SIZE, **job)
                    consumed = client(served.broker, work="consume", partitions=partitions, **job)
                gigabytes = count * SIZE / 1e9
                for work, found in (("produce", produced), ("consume", consumed)):
                    figures[f"{way}: {work} MB/s"] = found["mb_per_s"]
                    figures[f"{way}: {work} broker CPU s/GB"] = found["broker_cpu_s"] / gigabytes
        return figures

    return run


def handshakes(count: int, *, use_rsa: bool) -> Callable[[str], Figures]:
    """Connections one after another, each with a full handshake and one request."""

    def run(kind: str) -> Figures:
        with secured(kind, use_rsa=use_rsa) as served:
            context = ssl.create_default_context(cafile=str(served.stores.ca_pem))
            connect(served.port, context, count)
            before, started = cpu_seconds(served.broker), time.perf_counter()
            connect(served.port, context, count)
            took = time.perf_counter() - started
            cpu_s = cpu_seconds(served.broker) - before
        return {"connections/s": count / took, "broker CPU us/connection": cpu_s / count * 1e6}

    return run


def connect(port: int, context: ssl.SSLContext, count: int) -> None:
    request = len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS
    for _ in range(count):
        with (
            socket.create_connection(("127.0.0.1", port), ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as stream,
        ):
            stream.sendall(request)
            assert stream.recv(1)
