"""Whom the partition manager tells of images, roles and partitions that go. Protocols only, so that it knows neither shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.isr import PendingPartitionChange


class Replicating(Protocol):
    """What the manager asks of replication.Replication."""

    def on_image(self, new: MetadataImage) -> None:
        """Before the roles of that image are taken."""
        ...

    def role_taken(self, core: PartitionCore) -> None:
        """It leads, follows or waits for a leader, perhaps in a new epoch."""
        ...

    def gone(self, core: PartitionCore) -> None: ...

    def propose(self, core: PartitionCore, proposal: PendingPartitionChange) -> None: ...


class Placing(Protocol):
    """What the manager tells placement.Placement."""

    def recover(self, image: MetadataImage) -> None:
        """The first image, before its roles are taken."""
        ...

    def may_begin_empty(self, image: PartitionRegistration) -> bool:
        """Though a directory is offline in which its log might lie."""
        ...

    def role_taken(self, core: PartitionCore, image: PartitionRegistration) -> None: ...

    def gone(self, core: PartitionCore) -> None: ...
