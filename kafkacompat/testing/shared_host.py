"""The Kafkas that all workers of pytest-xdist share (`--kafka-scope=run`): where they run. The workers' end is shared.py.

They belong to the process that starts the run, and end with it, however it ends. It asks nothing of them itself. Workers come by a
socket on loopback, and know its key from their pipes to that process.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.testing.channel import Channel

if TYPE_CHECKING:
    from kafkacompat.testing.kafka import Kafka
    from kafkacompat.testing.secured import Security

HOST = "127.0.0.1"
KEY_BYTES = 32
BACKLOG = 128
ACCEPT_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Opened:
    """A Kafka that runs."""

    number: int
    bootstrap_servers: str
    security: Security


@dataclass(frozen=True, slots=True)
class Told:
    """What a Kafka has logged, and which requests it has had."""

    log_count: int
    request_count: int
    lines: list[str]
    requests: list[str]


class SharedHost:
    """It serves until `stop`. A Kafka starts when the first worker asks for it."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(KEY_BYTES)
        self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
        self.port: int = self._socket.getsockname()[1]
        self._kafkas: list[Kafka] = []
        self._numbers: dict[str, int] = {}
        """Where in the list, by what they were asked to be."""
        self._starting = threading.Lock()
        self._has_stopped = False
        threading.Thread(target=self._accept, name="shared Kafkas", daemon=True).start()

    def stop(self) -> None:
        """End the Kafkas. Workers that still ask are told so."""
        self._has_stopped = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        with self._starting:
            for kafka in self._kafkas:
                kafka.stop()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                if self._has_stopped:
                    return
                time.sleep(ACCEPT_PAUSE_S)  # tests may hold all descriptors for a while
                continue
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        """Answer a worker until it ends."""
        with accepted, suppress(OSError, EOFError, AuthenticationError):
            connection = joined(accepted, self.key, is_host=True)
            with connection:
                Channel(connection, self._answer, lambda *_: None).run()

    def _answer(self, what: str, *arguments: Any, **named: Any) -> Any:
        if what == "open":
            return self._open(*arguments)
        number, *rest = arguments
        kafka = self._kafkas[number]
        if what == "told":
            return _told(kafka, *rest)
        name, *rest = rest
        found = getattr(kafka, name)
        return found(*rest, **named) if callable(found) else found

    def _open(self, asked: Mapping[str, Any]) -> Opened:
        """The Kafka that is asked for, by the arguments of `Kafka`. Raises what `Kafka` raises."""
        from kafkacompat.testing.kafka import Kafka

        asked = {**asked, "process": True}
        key = key_of(asked)
        with self._starting:
            if self._has_stopped:
                raise RuntimeError("the run has ended")
            number = self._numbers.get(key)
            if number is None:
                kafka = Kafka(**asked)
                kafka.record_requests()
                kafka.start()
                number = self._numbers[key] = len(self._kafkas)
                self._kafkas.append(kafka)
        kafka = self._kafkas[number]
        return Opened(number, kafka.bootstrap_servers, kafka.security)


def key_of(asked: Mapping[str, Any]) -> str:
    """Equal for those arguments of `Kafka` that may share one."""
    return repr(sorted((name, _ordered(value)) for name, value in asked.items()))


def joined(own: socket.socket, key: bytes, *, is_host: bool) -> Connection:
    """The connection by a socket, which stays open. Each end shows the other that it has the key. Raises AuthenticationError,
    OSError, EOFError."""
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(os.dup(own.fileno()))
    try:
        steps = (deliver_challenge, answer_challenge) if is_host else (answer_challenge, deliver_challenge)
        for step in steps:
            step(connection, key)
    except BaseException:
        connection.close()
        raise
    return connection


def _ordered(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


def _told(kafka: Kafka, log_count: int, request_count: int, most: int) -> Told:
    log, exchanges = kafka.log, kafka.exchanges
    return Told(
        log.count,
        exchanges.count,
        log.since(log_count),
        [str(each) for each in exchanges.since(request_count, most)],
    )
