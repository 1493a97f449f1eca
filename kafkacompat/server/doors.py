"""A node's settings and its doors: the interfaces through which it receives everything and acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafkacompat.config import ServerConfig
from kafkacompat.late import Provisions
from kafkacompat.log.directory import random_text
from kafkacompat.ports import Clock, Disk, Network, Random, Timers, WorkerPools
from kafkacompat.tasks import Tasks

if TYPE_CHECKING:
    from kafkacompat.api.meters import RequestMeters
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries


class CountedDescriptors(Protocol):
    logs: Callable[[], int]
    """Counts the logs of this node. The broker sets it."""

    def logs_left(self) -> int: ...

    def files_max(self) -> int: ...

    def connections_left(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NodeDoors:
    """The interfaces with which every part of a node is built. The command passes the system's, the simulator its
    simulated ones."""

    config: ServerConfig
    clock: Clock
    timers: Timers
    tasks: Tasks
    """Over these timers."""
    random: Random
    disk: Disk
    workers: WorkerPools
    network: Network
    monotonic_s: Callable[[], float]
    """The clock that limits the length of a step of the loop, in seconds."""
    keep: Callable[[], None]
    """Called while very many objects are loaded that will live long."""
    halt: Callable[[BaseException], None]
    """End the process at once and leave the files. Used when the state of the disk or of the quorum's decisions is unknown."""
    descriptors: CountedDescriptors | None = None
    """Tells for how many logs and connections there are descriptors; None where nothing limits them (the simulator)."""
    provisions: Provisions | None = None
    """Imports in the background what the node may ever need; None where nothing is (the simulator)."""
    meters: RequestMeters | None = None
    """Counts the requests of both roles; None where no scrape reads them."""
    client_metrics: ClientMetricsManager | None = None
    """Asks clients for their metrics; None where no scrape reads them."""
    client_series: ClientSeries | None = None
    """What they have sent."""
    unique_text: Callable[[], str] = random_text
    """For the names of directories of deleted and moving logs: 32 hexadecimal digits, different ones at each call of
    any life of the node."""
