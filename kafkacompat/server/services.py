"""What a node is built with: its settings, and the services of the system through which it receives everything and acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kafkacompat.config import ServerConfig
from kafkacompat.dataclass import dataclass
from kafkacompat.late import Provisions
from kafkacompat.log.directory import random_text
from kafkacompat.ports import Clock, Disk, Network, Random, Timers, WorkerPools
from kafkacompat.tasks import Tasks

if TYPE_CHECKING:
    from kafkacompat.api.meters import RequestMeters
    from kafkacompat.ports.network import Channels
    from kafkacompat.remote.ports import RemoteStorageManager
    from kafkacompat.security.sasl_client import ClientSecurity
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager
    from kafkacompat.telemetry.series import ClientSeries


class CountedDescriptors(Protocol):
    def count_logs(self, count: Callable[[], int]) -> None:
        """`count` returns the number of logs of this node."""
        ...

    def logs_left(self) -> int: ...

    def files_max(self) -> int: ...

    def connections_left(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NodeServices:
    """Every part of a node takes what it needs from here. The command passes the system's services, the simulator its
    simulated ones."""

    config: ServerConfig
    clock: Clock
    timers: Timers
    """Timeouts: of sessions, rebalances, locks."""
    work_clock: Clock
    """The wall time of `clock`, and the monotonic time of the node's own work: of requests that wait, of what is sent again, of
    replication, of the quorum. Another one than that of `clock` only where a test has stopped the clock: work goes on then."""
    work_timers: Timers
    tasks: Tasks
    """Over the timers of its work."""
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
    remote_store: RemoteStorageManager | None = None
    """The remote store, instead of the one that the settings name (the simulator)."""
    channels_with: Callable[[ClientSecurity], Channels] | None = None
    """New channels to another cluster, for mirrors; None where there is no other (the simulator)."""
    unique_text: Callable[[], str] = random_text
    """For the names of directories of deleted and moving logs: 32 hexadecimal digits, different ones at each call of
    any life of the node."""
