"""What must hold of a cluster at every instant, judged from outside: all nodes are known at once, and everything ever committed.

Shares no code with what it judges but the reading of batch headers. A finding begins with the oracle's name. Looks after every
event at the partitions of the node it happened at, and only at what changed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.records.batch import BatchHeader, iterate_batches, parse_header
from kafkacompat.sim.cluster_options import MIN_ISR
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.wire.messages.produce_request import ProduceRequest

if TYPE_CHECKING:
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.partition.manager import PartitionManager
    from kafkacompat.ports import Log
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

ALL_REPLICAS = -1
READ_BYTES = 1 << 20
Key = tuple[Uuid, int]


class Written(NamedTuple):
    """One batch, wherever it lies."""

    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    base_sequence: int


class Ledger:
    """All that was ever committed in one partition, and who has led it."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.batches: dict[int, Written] = {}
        """By base offset, from 0 without a gap."""
        self.end = 0
        self.ends: list[tuple[int, int]] = []
        """(epoch, end) whenever the leader of an epoch moved the end."""
        self.leaders: dict[int, int] = {}
        """Epoch -> who took leadership in it."""
        self.written: dict[tuple[int, int], Written] = {}
        """(epoch, base offset) -> what its leader appended."""
        self.acknowledged = 0

    def end_before(self, epoch: int) -> int:
        """All that was committed in earlier epochs ends there."""
        return max((end for committed_in, end in self.ends if committed_in < epoch), default=0)


class Seen:
    """One partition on one node, as it was after the node's last event."""

    __slots__ = (
        "end",
        "epoch",
        "high_watermark",
        "is_leader",
        "log",
        "matched",
        "start",
        "unverified",
        "verified",
    )

    def __init__(self, log: Log) -> None:
        self.log = log
        """Another one once the replica has moved to another directory."""
        self.end = self.high_watermark = self.start = 0
        self.epoch = -1
        self.is_leader = False
        self.matched = 0
        """Below it every batch was found to be what a leader wrote."""
        self.verified = 0
        """Below it every batch was found to be what was committed."""
        self.unverified = 0
        """The high watermark that a node remembered which had lost power."""


def batches(log: Log, start: int, end: int) -> Iterator[tuple[int, Written]]:
    """(base offset, batch) of those that reach into [start, end)."""
    offset = max(start, log.log_start_offset)
    while offset < end:
        records = log.read(offset, READ_BYTES, log.log_end_offset, True).records
        before = offset
        for header in iterate_batches(records if isinstance(records, bytes) else records.read()):
            if header.last_offset < offset:
                continue
            if header.base_offset >= end:
                return
            yield header.base_offset, written(header)
            offset = header.last_offset + 1
        if offset == before:
            raise Breach("log shape", f"{log.topic_partition} has no batch at {offset} below its end")


def written(header: BatchHeader) -> Written:
    return Written(
        header.last_offset, header.leader_epoch, header.crc, header.producer_id, header.base_sequence
    )


class PartitionOracles:
    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self.ledgers: dict[Key, Ledger] = {}
        self._seen: dict[PartitionCore, Seen] = {}
        self.log_ends: dict[tuple[int, Key], int] = {}
        """What a machine's disk holds of a partition, also while it is down."""
        self.without_power: set[int] = set()
        """Machines that may have lost what the in-sync sets count on."""
        self._lost_power_once: set[int] = set()
        self._died_leading: dict[tuple[int, Key], int] = {}
        """Epochs that machines led in whose process died within a step: a last batch may lie there that nobody has seen."""

    def ledger(self, core: PartitionCore) -> Ledger:
        key = core.topic_id, core.topic_partition.partition
        ledger = self.ledgers.get(key)
        if ledger is None:
            ledger = self.ledgers[key] = Ledger(core.topic_partition)
        return ledger

    def look(self, life: Life) -> None:
        partitions = life.partitions
        if partitions is None or not life.alive:
            return
        with life.machine.watched():
            self._look_through(life, partitions)

    def _look_through(self, life: Life, partitions: PartitionManager) -> None:
        for core in list(partitions.by_id.values()):
            log = core.log
            seen = self._seen.get(core)
            if seen is None:
                seen = self._seen[core] = Seen(log)
                if life.id in self._lost_power_once:
                    # A truncation may have come undone: until its leader has looked, what it has is not yet what is committed.
                    seen.verified = seen.unverified = log.high_watermark
            elif (
                seen.end == log.log_end_offset
                and seen.high_watermark == log.high_watermark
                and seen.epoch == core.leader_epoch
                and seen.is_leader is core.is_leader
                and seen.start == log.log_start_offset
                and seen.log is log
            ):
                continue
            self._look_at(life, core, seen, self.ledger(core))

    def _look_at(self, life: Life, core: PartitionCore, seen: Seen, ledger: Ledger) -> None:
        log, counters = core.log, self._simulation.counters
        end, high_watermark, epoch = log.log_end_offset, log.high_watermark, core.leader_epoch
        where = f"{core.topic_partition} on node {life.id} in epoch {epoch}"
        if self._simulation.tell is not None:
            self._simulation.tell(
                f"{where} {'leads' if core.is_leader else 'follows'}, log {log.log_start_offset}..{end}, "
                f"high watermark {high_watermark}, ISR {core.isr}"
            )
        if seen.log is not log:
            # A copy has taken its place, of which nothing is known yet.
            seen.log, seen.matched, seen.verified = log, 0, 0
            counters.directory_moves += 1
        self.log_ends[life.id, (core.topic_id, core.topic_partition.partition)] = end
        if end < seen.end:
            counters.truncations += 1
            if end < min(seen.high_watermark, ledger.end) and seen.high_watermark > seen.unverified:
                raise Breach(
                    "nothing committed disappears",
                    f"{where} is cut from {seen.end} to {end}, below {seen.high_watermark}",
                )
            seen.matched, seen.verified = min(seen.matched, end), min(seen.verified, end)
            seen.high_watermark = min(seen.high_watermark, end)
        if high_watermark < seen.high_watermark:
            raise Breach(
                "high watermarks never retreat", f"{where} from {seen.high_watermark} to {high_watermark}"
            )
        if seen.is_leader and core.is_leader and log.log_start_offset < seen.start:
            raise Breach("log starts never retreat", f"{where} from {seen.start} to {log.log_start_offset}")
        if epoch < seen.epoch:
            raise Breach("epochs never retreat", f"{where} was in {seen.epoch}")
        self._match(where, life.id, core, seen, ledger)
        if core.is_leader and (not seen.is_leader or seen.epoch != epoch):
            counters.leaderships += 1
            self._took_lead(where, life.id, core, ledger)
        if high_watermark > seen.verified:
            if high_watermark > ledger.end and (core.is_leader or seen.is_leader):
                # It may have been the last act of a leader that was deposed in the same event.
                self._commit(where, core, ledger, epoch if core.is_leader else seen.epoch)
            self._verify(where, core, seen, ledger)
        seen.end, seen.high_watermark, seen.start = end, high_watermark, log.log_start_offset
        seen.epoch, seen.is_leader = epoch, core.is_leader

    def _match(self, where: str, node_id: int, core: PartitionCore, seen: Seen, ledger: Ledger) -> None:
        """Every batch is what the one leader of its epoch appended at that place."""
        log = core.log
        last_act = self._died_leading.get((node_id, (core.topic_id, core.topic_partition.partition)))
        for base, batch in batches(log, seen.matched, log.log_end_offset):
            known = ledger.written.get((batch.epoch, base))
            if known is None:
                leads_now = core.is_leader and batch.epoch == core.leader_epoch
                # Or it was the last act of a leader that was deposed in the same event, or died in it.
                is_last_act = batch.epoch == last_act or (seen.is_leader and batch.epoch == seen.epoch)
                if not leads_now and not is_last_act:
                    raise Breach("log matching", f"{where} has a batch at {base} that nobody wrote: {batch}")
                ledger.written[batch.epoch, base] = batch
            elif known != batch:
                raise Breach("one writer an epoch", f"{where} has {batch} at {base}, elsewhere is {known}")
        seen.matched = log.log_end_offset

    def _took_lead(self, where: str, node_id: int, core: PartitionCore, ledger: Ledger) -> None:
        first = ledger.leaders.setdefault(core.leader_epoch, node_id)
        if first != node_id:
            raise Breach("one leader an epoch", f"{where}, where node {first} led")
        committed = ledger.end_before(core.leader_epoch)
        log = core.log
        if log.log_end_offset < committed:
            raise Breach(
                "leader completeness",
                f"{where} ends at {log.log_end_offset}, committed is all below {committed}",
            )
        self._compare("leader completeness", where, core, 0, committed, ledger)

    def _compare(
        self, oracle: str, where: str, core: PartitionCore, start: int, end: int, ledger: Ledger
    ) -> None:
        for base, batch in batches(core.log, start, end):
            if ledger.batches.get(base) != batch:
                raise Breach(
                    oracle, f"{where} has {batch} at {base}, committed is {ledger.batches.get(base)}"
                )

    def _commit(self, where: str, core: PartitionCore, ledger: Ledger, epoch: int) -> None:
        """A leader's high watermark goes further than any before: what lies below it is committed from now on."""
        log = core.log
        target = log.high_watermark
        self._check_copies(where, core, target, epoch)
        for base, batch in batches(log, ledger.end, target):
            if base != ledger.end or batch.last_offset >= target:
                raise Breach(
                    "high watermark", f"{where} at {target} lies within a batch, or below {ledger.end}"
                )
            ledger.batches[base] = batch
            ledger.end = batch.last_offset + 1
        ledger.ends.append((epoch, ledger.end))

    def _check_copies(self, where: str, core: PartitionCore, target: int, epoch: int) -> None:
        key = core.topic_id, core.topic_partition.partition
        image = self._simulation.image_oracles.partition(key)
        holding = [
            each
            for each in core.replicas
            if each in self.without_power or self.log_ends.get((each, key), 0) >= target
        ]
        if len(holding) < min(MIN_ISR, len(core.replicas)):
            raise Breach("committed on the min ISR", f"{where} commits {target}, which only {holding} have")
        if image is not None and image.leader_epoch == epoch:
            missing = set(image.isr) - set(holding)
            if missing:
                raise Breach(
                    "committed on the whole ISR", f"{where} commits {target}, which {sorted(missing)} lack"
                )

    def _verify(self, where: str, core: PartitionCore, seen: Seen, ledger: Ledger) -> None:
        end = core.log.high_watermark
        if end > ledger.end:
            raise Breach("high watermark", f"{where} is at {end}, committed is all below {ledger.end}")
        self._compare("replicas agree", where, core, seen.verified, end, ledger)
        seen.verified = end

    def check_whole(self, life: Life, core: PartitionCore) -> None:
        """Of a replica that is in sync, in the end."""
        with life.machine.watched():
            self._compare("replicas agree", "", core, 0, core.log.high_watermark, self.ledger(core))

    # Answers.

    def answered(self, life: Life, request: Any, response: Any) -> None:
        """An answer leaves a node: what it acknowledges must be committed."""
        if not isinstance(request, ProduceRequest) or request.acks != ALL_REPLICAS:
            return
        self.look(life)
        for asked, topic in zip(request.topic_data, response.responses, strict=True):
            for data, answer in zip(asked.partition_data, topic.partition_responses, strict=True):
                if answer.error_code == 0:
                    header = parse_header(data.records)
                    self._acknowledged((asked.topic_id, data.index), header, answer.base_offset, life.id)

    def _acknowledged(self, key: Key, header: BatchHeader, base_offset: int, node_id: int) -> None:
        ledger = self.ledgers[key]
        batch = ledger.batches.get(base_offset)
        if (
            batch is None
            or batch.producer_id != header.producer_id
            or batch.base_sequence != header.base_sequence
        ):
            raise Breach(
                "acknowledged is committed",
                f"node {node_id} acknowledges {ledger.name} at {base_offset}, "
                f"committed is all below {ledger.end}, and there {batch}",
            )
        ledger.acknowledged += 1

    def consumed(self, key: Key, records: bytes, high_watermark: int) -> None:
        """Only what is committed is shown."""
        ledger = self.ledgers[key]
        for header in iterate_batches(records):
            if ledger.batches.get(header.base_offset) != written(header):
                raise Breach(
                    "consumers see what is committed",
                    f"{ledger.name} at {header.base_offset} is shown as "
                    f"{written(header)}, committed is {ledger.batches.get(header.base_offset)}",
                )

    # What befalls disks and processes.

    def dies_within(self, life: Life) -> None:
        """A process ends in the midst of a step. What it has said in this step holds, whatever it was about to do."""
        partitions = life.partitions
        for key, core in () if partitions is None else partitions.by_id.items():
            if core.is_leader:
                self._died_leading[life.id, key] = core.leader_epoch
        # What a step has half done need not fit together, and is judged after the next start.
        with suppress(Exception):
            self.look(life)

    def power_lost(self, machine_id: int) -> None:
        self.without_power.add(machine_id)
        self._lost_power_once.add(machine_id)
        for machine, key in list(self.log_ends):
            if machine == machine_id:
                self.log_ends[machine, key] = 0

    def power_is_harmless_again(self, machine_id: int) -> None:
        self.without_power.discard(machine_id)
