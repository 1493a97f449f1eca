"""A Kafka that all workers of pytest-xdist share (`--kafka-scope=run`), as each of them has it. shared_host.py is where it runs.

What would reach the tests of others is refused: faults, the clock, nodes, the state as a whole.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, NoReturn

from kafkacompat.exchanges.recorded import Recorded
from kafkacompat.testing.channel import Channel, ChannelEnded
from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.kafka_process import KafkaProcess
from kafkacompat.testing.log import BrokerLog
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.shared_host import HOST, Opened, Told, joined


class NotShared(RuntimeError):
    """The tests of others use the same Kafka, and would notice."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: all workers of this run share this Kafka (kafka_scope=run), and the tests of others would notice. "
            "A test that needs it takes a Kafka of its own: `with kafkacompat.testing.Kafka() as kafka`"
        )


class SharedKafkas:
    """Those of the run, as one worker has them."""

    def __init__(self, port: int, key: bytes) -> None:
        """Raises OSError, EOFError, AuthenticationError."""
        self._socket = socket.create_connection((HOST, port))
        try:
            connection = joined(self._socket, key, is_host=False)
        except BaseException:
            self._socket.close()
            raise
        self._channel = Channel(connection, lambda *_: None, lambda *_: None)
        threading.Thread(target=self._channel.run, name="shared Kafkas", daemon=True).start()

    def open(self, asked: Mapping[str, Any]) -> SharedKafka:
        """The one that is asked for, by the arguments of `Kafka`. It starts if no other worker has asked for it. Raises what
        `Kafka` raises."""
        return SharedKafka(self._channel, self._channel.call("open", dict(asked)))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._channel.ended.wait()
        self._channel.close()


def _refused(method: Any) -> Any:
    @wraps(method)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotShared(method.__name__)

    return refuse


class SharedKafka(KafkaProcess):
    """All that asks the nodes is asked there, by way of the process that starts the run."""

    def __init__(self, channel: Channel, opened: Opened) -> None:
        """It has started."""
        self._channel = channel
        self._opened = opened
        self.name = f"shared {opened.number}"
        self._topics = []
        self.security = opened.security
        self._begun = Told(0, 0, [], [])
        """What there was when the present test began."""
        self.begin_test()

    def __getattr__(self, name: str) -> NoReturn:
        """`clock`, `nodes`, `paused`: what every other Kafka has."""
        raise AttributeError(name) if name.startswith("_") else NotShared(name)

    @property
    def bootstrap_servers(self) -> str:
        return self._opened.bootstrap_servers

    def _call(self, what: str, *arguments: Any, **named: Any) -> Any:
        try:
            return self._channel.call(what, self._opened.number, *arguments, **named)
        except ChannelEnded:
            raise NodeEnded(
                "the process that has started this run has ended, and its Kafka with it"
            ) from None

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:
        return self._call("ask", name, *arguments, **named)

    # The test that runs in this worker.

    def begin_test(self) -> None:
        self._begun = self.told(0)

    def told(self, requests: int) -> Told:
        """What it has logged since the test began, and the last requests, at most so many, for the tests of all workers."""
        begun = self._begun
        try:
            told: Told = self._call("told", begun.log_count, begun.request_count, requests)
        except NodeEnded:  # nothing can be told, which is no failure of the test
            return begun
        return told

    def end_test(self) -> None:
        """Delete what `topic` has made here."""
        for topic in list(self._topics):
            self.delete_topic(topic)

    # What is told of it.

    @property
    def pid(self) -> int:
        number: int = self._ask("pid")
        return number

    @property
    def log(self) -> BrokerLog:
        """As it is now."""
        log = BrokerLog(self.name)
        told: Told = self._call("told", 0, 0, 0)
        for line in told.lines:
            log.add(line)
        return log

    def requests(self, **wanted: Any) -> list[Recorded]:
        """Those of all workers."""
        found: list[Recorded] = self._ask("requests", **wanted)
        return found

    def record_requests(self) -> None:
        """They are recorded."""

    # What others would notice.

    @property
    def node(self) -> NoReturn:
        raise NotShared("node")

    @property
    def exchanges(self) -> NoReturn:
        raise NotShared("exchanges")

    @property
    def faults(self) -> NoReturn:
        raise NotShared("faults")

    __enter__ = start = _refused(Kafka.start)
    stop = _refused(Kafka.stop)
    start_node = _refused(Kafka.start_node)
    stop_node = _refused(Kafka.stop_node)
    kill_node = _refused(Kafka.kill_node)
    restart_node = _refused(Kafka.restart_node)
    pause_node = _refused(Kafka.pause_node)
    resume_node = _refused(Kafka.resume_node)
    partition = _refused(Kafka.partition)
    heal = _refused(Kafka.heal)
    move_coordinator = _refused(Kafka.move_coordinator)
    shrink_isr = _refused(Kafka.shrink_isr)
    watch_requests = _refused(Kafka.watch_requests)
    reset = _refused(Kafka.reset)
    snapshot = _refused(Kafka.snapshot)
    snapshot_in_loop = _refused(Kafka.snapshot_in_loop)
    restore = _refused(Kafka.restore)
    fork = _refused(Kafka.fork)
