"""Services of partitions over a test's time, workers and logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkacompat._tests.doubles import HandTime
from kafkacompat.config import LogConfig
from kafkacompat.log.log_manager import LogManager
from kafkacompat.partition.services import PartitionServices
from kafkacompat.ports import WorkerPools
from kafkacompat.tasks import Tasks

SETTINGS: Mapping[str, int] = {
    "num.replica.fetchers": 1,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.max.bytes": 1 << 20,
    "replica.fetch.response.max.bytes": 10 << 20,
    "replica.fetch.backoff.ms": 1000,
    "replica.lag.time.max.ms": 30_000,
    "replica.socket.timeout.ms": 30_000,
    "leader.replication.throttled.rate": 2**63 - 1,
    "follower.replication.throttled.rate": 2**63 - 1,
    "replication.quota.window.num": 11,
    "replication.quota.window.size.seconds": 1,
    "follower.fetch.last.tiered.offset.enable": 0,
}


@dataclass
class SettingsInForce:
    """A test may change them."""

    log_config: Callable[[str], LogConfig]
    numbers: Mapping[str, int] = field(default_factory=lambda: SETTINGS)

    def get_int(self, name: str) -> int:
        return self.numbers[name]

    def get_boolean(self, name: str) -> bool:
        return bool(self.numbers[name])


def partition_services(
    node_id: int,
    logs: LogManager | None,
    time: HandTime,
    workers: Any,
    log_config: Callable[[str], LogConfig] = lambda topic: LogConfig(),
    *,
    numbers: Mapping[str, int] = SETTINGS,
    halt: Callable[[BaseException], None] | None = None,
) -> PartitionServices:
    """`workers` does the jobs of every duty. Without `halt`, what would halt the node is raised."""
    return PartitionServices(
        node_id,
        time,
        time,
        Tasks(time),
        WorkerPools.of_one(workers),
        logs,  # type: ignore[arg-type]  # None where nothing asks for them
        SettingsInForce(log_config, numbers),
        halt or raise_it,
    )


def raise_it(problem: BaseException) -> None:
    raise problem
