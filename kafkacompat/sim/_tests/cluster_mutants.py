"""Bugs planted in partitions, logs and controller. The cluster simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.controller import partition_change_builder, replication_control_manager
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import BrokerRegistration, PartitionRegistration
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.reach import Address, Reach
from kafkacompat.log.directory import LogDirectory
from kafkacompat.log.flush import Syncs
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.node.broker_lifecycle import BrokerIdentity
from kafkacompat.partition import following, purgatories
from kafkacompat.partition.partition import Partition, PendingPartitionChange, Standing
from kafkacompat.ports import SyncFailed
from kafkacompat.sim._tests.seeds import SeenAt
from kafkacompat.wire.errors import ErrorCode

Plant = Callable[[pytest.MonkeyPatch], None]


def high_watermark_of_a_minority(patch: pytest.MonkeyPatch) -> None:
    """The leader's own end offset counts as replicated."""
    patch.setattr(
        Partition,
        "maybe_increment_leader_high_watermark",
        lambda self, now_ms: self.is_leader and self.advance_alone(),
    )


def high_watermark_without_those_who_lag(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits only for followers that are caught up, although others may still be in the ISR."""
    original = Partition.maximal_isr

    def maximal_isr(self: Partition) -> tuple[int, ...]:
        end = self.log.log_end_offset
        return tuple(
            each
            for each in original(self)
            if each == self.node_id or self.followers[each].log_end_offset == end
        )

    patch.setattr(Partition, "maximal_isr", maximal_isr)


def acknowledged_at_the_append(patch: pytest.MonkeyPatch) -> None:
    """acks=all does not wait for replication."""
    patch.setattr(purgatories.ProducePurgatory, "when_replicated", lambda self, ends, timeout_ms: None)


def waits_survive_a_change_of_leader(patch: pytest.MonkeyPatch) -> None:
    """A parked produce does not fail when this node loses leadership: the new leader's high watermark acknowledges it."""

    patch.setattr(Partition, "has_led_since", lambda self, leader_epoch: True)


def no_truncation(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps records that the leader does not have."""
    patch.setattr(following, "truncate_to_divergence", lambda core, diverging, producers: "nothing is cut")


def truncation_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The error that KIP-101 fixes: a new follower truncates to its own high watermark, which is behind the leader's."""
    original = Partition.become

    def become(self: Partition, image: Any, now_ms: int) -> bool:
        changed = original(self, image, now_ms)
        if changed and not self.is_leader:
            self.log.truncate_to(self.log.high_watermark)
        return changed

    patch.setattr(Partition, "become", become)


def expansion_without_catching_up(patch: pytest.MonkeyPatch) -> None:
    """Every replica that fetches is proposed for the ISR."""

    def maybe_expand_isr(self: Partition, replica_id: int) -> PendingPartitionChange | None:
        if self.pending is not None or replica_id in self.isr:
            return None
        members = (*self.isr, replica_id)
        return self._propose(members, self.isr)

    patch.setattr(Partition, "maybe_expand_isr", maybe_expand_isr)


def shrinking_counts_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """The high watermark passes a slow replica as soon as its removal from the ISR is requested."""
    original = Partition.maybe_shrink_isr

    def maybe_shrink_isr(self: Partition, now_ms: int) -> PendingPartitionChange | None:
        proposal = original(self, now_ms)
        if proposal is not None:
            proposal.maximal = proposal.isr
        return proposal

    patch.setattr(Partition, "maybe_shrink_isr", maybe_shrink_isr)


def every_life_of_a_follower_counts(patch: pytest.MonkeyPatch) -> None:
    """KIP-903 is missing on the leader: a restarted replica joins the ISR under its old epoch."""
    patch.setattr(Standing, "is_outlived", lambda self, broker_id, broker_epoch: False)
    patch.setattr(Standing, "is_replica_isr_eligible", lambda self, replica_id, follower: True)
    patch.setattr(replication_control_manager, "_is_eligible", lambda image, broker_id, broker_epoch: True)


def old_leader_epochs_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """AlterPartition from a deposed leader is accepted."""

    def refusal(image: Any, sender: int, partition: Any, wanted: Any, members: Any) -> ErrorCode:
        return ErrorCode.NONE

    patch.setattr(replication_control_manager, "_isr_refusal", refusal)


def every_start_was_clean(patch: pytest.MonkeyPatch) -> None:
    """A broker that lost power reports a clean shutdown, and stays eligible."""
    original = BrokerIdentity.__init__

    def init(self: BrokerIdentity, **fields: Any) -> None:
        original(self, **{**fields, "previous_broker_epoch": _EpochOfAnybody(-1)})

    patch.setattr(BrokerIdentity, "__init__", init)


class _EpochOfAnybody(int):
    """Equal to any epoch."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def any_live_replica_may_lead(patch: pytest.MonkeyPatch) -> None:
    """Unclean leader elections, although the topic does not allow them."""
    patch.setattr(
        partition_change_builder.PartitionChangeBuilder,
        "_is_valid_new_leader",
        lambda self, replica: self.is_acceptable_leader(replica),
    )


def elections_keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new leader in the old leader epoch."""
    original = PartitionRegistration.merge

    def merged(partition: PartitionRegistration, change: Any) -> Any:
        return replace(original(partition, change), leader_epoch=partition.leader_epoch)

    patch.setattr(PartitionRegistration, "merge", merged)


def proposals_stay_when_leadership_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A controller keeps proposals that were never committed."""
    original = MetadataMachine.leader_changed

    def leader_changed(self: MetadataMachine, epoch: int, leader_id: int) -> None:
        with patch.context() as inner:
            inner.setattr(ControllerCore, "revert", lambda self, mark: None)
            original(self, epoch, leader_id)

    patch.setattr(MetadataMachine, "leader_changed", leader_changed)


def high_watermark_of_followers_retreats(patch: pytest.MonkeyPatch) -> None:
    def set_high_watermark(self: UnifiedLog, offset: int) -> None:
        self.high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)

    patch.setattr(UnifiedLog, "set_high_watermark", set_high_watermark)


def the_first_listener_tells_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A node that refuses connections at its first listener, which may be for another network, is considered dead."""

    def reached(self: Reach, broker: BrokerRegistration) -> Address | None:
        endpoint = next(iter(broker.endpoints.values()))
        return None if self.address_of(broker) is None else (endpoint.host, endpoint.port)

    patch.setattr(Reach, "reached", reached)


def a_failed_sync_is_forgiven(patch: pytest.MonkeyPatch) -> None:
    """A failed sync is treated like a full disk: the log continues, and its next sync succeeds."""
    original = LogManager.directory_failed

    def directory_failed(self: LogManager, directory: LogDirectory, error: OSError) -> None:
        if not isinstance(error, SyncFailed):
            original(self, directory, error)

    patch.setattr(LogManager, "directory_failed", directory_failed)
    patch.setattr(Syncs, "carry_out", lambda self, sync: sync())


MUTANTS: tuple[Plant, ...] = (
    a_failed_sync_is_forgiven,
    high_watermark_of_a_minority,
    high_watermark_without_those_who_lag,
    acknowledged_at_the_append,
    waits_survive_a_change_of_leader,
    no_truncation,
    truncation_to_the_high_watermark,
    expansion_without_catching_up,
    shrinking_counts_before_it_is_committed,
    every_life_of_a_follower_counts,
    old_leader_epochs_are_accepted,
    every_start_was_clean,
    any_live_replica_may_lead,
    elections_keep_the_epoch,
    proposals_stay_when_leadership_is_lost,
    high_watermark_of_followers_retreats,
    the_first_listener_tells_who_is_gone,
)
SEEN_AT: dict[str, SeenAt] = {
    "waits_survive_a_change_of_leader": (8, 4),
    "a_failed_sync_is_forgiven": (15, 16, 30),
    "no_truncation": (3, 1, 0),
    "truncation_to_the_high_watermark": 6,
    "expansion_without_catching_up": (8, 6, 2),
    "shrinking_counts_before_it_is_committed": (8, 1, 4),
    "every_life_of_a_follower_counts": 3,
    "old_leader_epochs_are_accepted": (1, 10),
    "every_start_was_clean": (78, 3, 102),
    "high_watermark_of_followers_retreats": 3,
    "proposals_stay_when_leadership_is_lost": (0, 4),
}
"""The seeds that found them when they were planted, unless it was the first seed."""
