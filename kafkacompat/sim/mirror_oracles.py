"""The oracles of topics that one simulated cluster mirrors from another: each cluster has its own, and looks at the other's.

A batch has one content at an offset and a leader epoch, in both clusters and at all times. So what a mirror has is its source's,
record by record, and of two clusters that take records at the same time each has epochs of its own. What is committed in a cluster
stays, as everywhere, with one exception: a topic that turns back gives up what the other cluster does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.ids import uuid_from_text
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import is_mirrored
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import MirrorCounters
from kafkacompat.sim.partition_history import PartitionHistory, Seen, Written, batches
from kafkacompat.sim.partition_oracles import PartitionOracles
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.views import MachineView

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Log
    from kafkacompat.sim.views import NodeView

TURN = 1 << 20
"""Leader epochs of one turn."""


def source_of(log: Log) -> Key | None:
    """The partition that it follows, or has followed."""
    topic_id = log.config.mirror_source_topic_id
    return (uuid_from_text(topic_id), log.topic_partition.partition) if topic_id else None


class MirrorOracles(PartitionOracles):
    """Call `meet` once."""

    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        super().__init__(env, machines)
        self.counters = MirrorCounters()
        self._there: dict[Key, PartitionHistory] = {}
        self._written: dict[Key, dict[tuple[int, int], Written]] = {}
        """Of the partitions of both clusters. Those that follow one another have the same."""

    def meet(self, other: MirrorOracles) -> None:
        self._there, other._there = other.ledgers, self.ledgers
        other._written, other.counters = self._written, self.counters

    def ledger(self, core: Partition) -> PartitionHistory:
        key = core.topic_id, core.topic_partition.partition
        is_new = key not in self.ledgers
        ledger = super().ledger(core)
        if is_new and is_mirrored(core.topic_partition.topic):
            written = self._written.setdefault(source_of(core.log) or key, {})
            ledger.written = self._written[key] = written
        return ledger

    def _look_at(self, life: NodeView, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        if is_mirrored(core.topic_partition.topic) and core.is_leader and core.is_read_only:
            end = core.log.log_end_offset
            # The process of an earlier leader may have died within the truncation.
            has_begun = not seen.is_leader or seen.epoch != core.leader_epoch
            if end < (ledger.end if has_begun else min(seen.end, ledger.end)):
                self._give_up(f"{core.topic_partition} on node {life.id}", core, end, ledger)
        super()._look_at(life, core, seen, ledger)

    def _give_up(self, where: str, core: Partition, end: int, ledger: PartitionHistory) -> None:
        """A mirror's leader has truncated its log to what its source has."""
        source = source_of(core.log)
        there = None if source is None else self._there.get(source)
        lost = {base: batch for base, batch in ledger.batches.items() if batch.last_offset >= end}
        for base, batch in lost.items():
            if there is None or there.batches.get(base) == batch:
                raise Breach(
                    "a mirror keeps what its source has", f"{where} is cut to {end}, and {batch} is at {base}"
                )
        self.counters.given_up += len(lost)
        ledger.cut(end)
        ledger.history.line = max(ledger.history.line, core.log.config.mirror_leader_epoch)
        for other, seen in self._seen.items():
            if (other.topic_id, other.topic_partition) == (core.topic_id, core.topic_partition):
                seen.unverified = max(seen.unverified, seen.high_watermark)

    def _commit(self, where: str, core: Partition, ledger: PartitionHistory, epoch: int) -> None:
        before = ledger.end
        super()._commit(where, core, ledger, epoch)
        if not is_mirrored(core.topic_partition.topic):
            return
        last = max((each.epoch for each in ledger.batches.values() if each.last_offset < before), default=-1)
        first_epoch = core.log.config.mirror_leader_epoch
        for base, batch in ledger.batches.items():
            if base < before:
                continue
            if batch.epoch < last:
                raise Breach("epochs in a log rise", f"{where} has {batch} at {base} after epoch {last}")
            last = batch.epoch
            self.counters.mirrored += batch.epoch < first_epoch

    def _verify(self, where: str, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        """An answer that the leader of a mirror has sent before it gave something up may come after that."""
        end = core.log.high_watermark
        if end <= ledger.end or not is_mirrored(core.topic_partition.topic):
            super()._verify(where, core, seen, ledger)
            return
        self._compare("replicas agree", where, core, seen.verified, ledger.end, ledger)
        for base, batch in batches(core.log, max(seen.verified, ledger.end), end):
            if batch not in ledger.history.lost.get(base, ()):
                raise Breach("high watermark", f"{where} is at {end}, committed is all below {ledger.end}")
        seen.verified = seen.unverified = end

    def check_whole(self, life: NodeView, core: Partition) -> bool:
        if is_mirrored(core.topic_partition.topic):
            ledger = self.ledger(core)
            with life.machine.watched():
                for base, batch in batches(core.log, 0, core.log.high_watermark):
                    if ledger.batches.get(base) != batch and batch in ledger.history.lost.get(base, ()):
                        return False
        return super().check_whole(life, core)

    def check_once(self) -> None:
        """At the end: no batch of a producer is twice in a mirrored topic."""
        for ledger in self.ledgers.values():
            if not is_mirrored(ledger.name.topic):
                continue
            known: dict[tuple[int, int, int], int] = {}
            for base, batch in ledger.batches.items():
                # Both clusters give out the same producer ids, each in epochs of its own.
                sent = batch.epoch // TURN, batch.producer_id, batch.base_sequence
                if batch.producer_id >= 0 and known.setdefault(sent, base) != base:
                    raise Breach("each record once", f"{ledger.name} has {batch} at {known[sent]} and {base}")
