"""What a test holds: a Kafka of one node, in this process.

with Kafka() as kafka:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.addresses import host_and_port
from kafkacompat.config import ServerConfig
from kafkacompat.config.keys import broker_keys
from kafkacompat.config.server import defaults_without_file
from kafkacompat.ids import uuid_to_text
from kafkacompat.net.runtime import SystemClock, SystemRandom
from kafkacompat.server.data_directories import format_node
from kafkacompat.testing.memory_disk import MemoryDisk
from kafkacompat.testing.node import NodeThread

if TYPE_CHECKING:
    from types import TracebackType

    from kafkacompat.ports import Clock

DIRECTORY = "/kafka"
FOR_TESTS = {
    "log.dirs": DIRECTORY,
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
}
"""Defaults other than Kafka's: a test waits for nobody, and needs few partitions of internal topics."""


class UnknownSetting(ValueError):
    """A setting of this name does not exist."""


def settings_of_node(settings: Mapping[str, object]) -> ServerConfig:
    """Raises UnknownSetting, ConfigError."""
    unknown = [name for name in settings if name not in broker_keys()]
    if unknown:
        raise UnknownSetting(f"Kafka has no setting {', '.join(unknown)}")
    told = {name: _text(value) for name, value in settings.items()}
    return ServerConfig.from_properties(
        {**defaults_without_file(port=0, controller_port=0), **FOR_TESTS, **told}
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Kafka:
    """A Kafka of one node. `with`, or `start` and `stop`."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: Kafka's names and values, over the defaults for tests. Raises UnknownSetting, ConfigError."""
        self.config = settings_of_node(settings or {})
        self.clock: Clock = SystemClock()
        self.disk = MemoryDisk(self.clock.now_ms)
        self.node: NodeThread

    def start(self) -> None:
        """Return when clients are served."""
        random = SystemRandom()
        for path in (*self.config.log_dirs, self.config.metadata_log_dir):
            self.disk.make_directory(path)
        cluster_id = uuid_to_text(random.uuid())
        format_node(
            self.config, self.disk, random, self.clock.now_ms(), cluster_id=cluster_id, standalone=False
        )
        self.node = NodeThread(self.config, self.disk, clock=self.clock)
        self.node.start()

    def stop(self) -> None:
        self.node.stop()

    @property
    def bootstrap_servers(self) -> str:
        """host:port for a client's bootstrap.servers."""
        first = self.node.endpoints[0]
        return host_and_port(first.host, first.port)

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
