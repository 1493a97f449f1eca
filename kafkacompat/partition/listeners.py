"""The listeners of the partition manager: images, roles, removed partitions. Protocols only, so it depends on no
shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration
    from kafkacompat.partition.isr import PendingPartitionChange
    from kafkacompat.partition.partition import Partition


class Replicating(Protocol):
    """The parts of replication.Replication that the manager calls."""

    def on_image(self, new: MetadataImage) -> None:
        """Called before the roles of that image are applied."""
        ...

    def role_taken(self, core: Partition) -> None:
        """The partition leads, follows or waits for a leader, possibly in a new epoch."""
        ...

    def gone(self, core: Partition) -> None: ...

    def propose(self, core: Partition, proposal: PendingPartitionChange) -> None: ...


class Placing(Protocol):
    """The parts of placement.Placement that the manager calls."""

    def recover(self, image: MetadataImage) -> None:
        """Called with the first image, before its roles are applied."""
        ...

    def may_begin_empty(self, image: PartitionRegistration) -> bool:
        """Whether the log may be created empty even if an offline directory may have it."""
        ...

    def role_taken(self, core: Partition, image: PartitionRegistration) -> None: ...

    def give_up(self, core: Partition, damaged_offset: int) -> bool:
        """Have another replica lead. False if there is none that could."""
        ...

    def gone(self, core: Partition) -> None: ...
