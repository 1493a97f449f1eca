"""What the oracles of a simulated cluster see of its machines and of the nodes that run on them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.server.remote_storage import RemoteStorage
from kafkacompat.share.share_partition_manager import SharePartitionManager
from kafkacompat.sim.processes import Timer


class MachineView(Protocol):
    id: int
    is_broker: bool
    is_controller: bool

    @property
    def life(self) -> NodeView | None: ...

    def watched(self) -> AbstractContextManager[None]:
        """Observers read files inside this block. The disk refuses nothing then."""


class NodeView(Protocol):
    id: int
    alive: bool
    is_stopping: bool
    active_since_us: int
    """The time when it last became the active controller."""
    metadata: MetadataMachine
    partitions: ReplicaManager | None
    fetches: FetchEngine | None
    shares: SharePartitionManager | None

    @property
    def remote(self) -> RemoteStorage | None:
        """None without a remote store."""

    @property
    def machine(self) -> MachineView: ...

    @property
    def is_serving(self) -> bool: ...

    @property
    def is_held_by_a_full_disk(self) -> bool: ...

    @property
    def lifecycle(self) -> BrokerLifecycleManager | None: ...

    def share_states(self) -> dict[Any, Any]: ...

    def group_machines(self) -> dict[int, Any]: ...

    def monotonic_ms(self) -> int: ...

    def now_ms(self) -> int: ...

    def look_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """A timer of the observer, which does not count as the node's work."""
