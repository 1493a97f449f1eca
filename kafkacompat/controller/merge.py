"""What a PartitionChangeRecord makes of a partition.

Pure; the inverse of partition_change_builder.py, which decides what such a record must say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.image import PartitionImage
from kafkacompat.ids import DIRECTORY_MIGRATING

if TYPE_CHECKING:
    from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord


def merge_partition_change(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Absent fields keep; the partition epoch always rises, the leader epoch whenever a leader is stated, even the same."""

    def kept(new: list[int] | None, current: tuple[int, ...]) -> tuple[int, ...]:
        return current if new is None else tuple(new)

    stated = record.leader != -2
    replicas = kept(record.replicas, old.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is not None and len(replicas) != len(old.directories):
        directories = (DIRECTORY_MIGRATING,) * len(replicas)
    else:
        directories = old.directories
    return PartitionImage(
        replicas=replicas,
        directories=directories,
        isr=kept(record.isr, old.isr),
        removing_replicas=kept(record.removing_replicas, old.removing_replicas),
        adding_replicas=kept(record.adding_replicas, old.adding_replicas),
        eligible_leader_replicas=kept(record.eligible_leader_replicas, old.eligible_leader_replicas),
        last_known_elr=kept(record.last_known_elr, old.last_known_elr),
        leader=record.leader if stated else old.leader,
        leader_recovering=(
            old.leader_recovering if record.leader_recovery_state == -1 else record.leader_recovery_state == 1
        ),
        leader_epoch=old.leader_epoch + 1 if stated else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
    )
