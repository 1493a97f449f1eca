"""Checks a cluster's partitions after every event from outside, and every answer to a client: the oracles know all nodes at
once, and everything ever committed.

They share no code with the broker except the parser of batch headers. A finding begins with the oracle's name. After
every event they check the partitions of the node where the event occurred, and only those that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import SHARE_STATE_TOPIC
from kafkacompat.records.batch import BatchHeader, iterate_batches, parse_header
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import RETAINED, is_mirrored, min_isr
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.partition_history import (
    Content,
    LogStartHistory,
    PartitionHistory,
    Seen,
    batches,
    cleaned_to,
    contents_of,
    opened,
    written,
)
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.messages.produce_request import ProduceRequest

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Log
    from kafkacompat.sim.partition_history import Written
    from kafkacompat.sim.views import NodeView


ANY_OFFSET = 1 << 62
"""The share coordinator may prune its log. `KeptStates` checks what it prunes."""


class PartitionOracles:
    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        self._env = env
        self._machines = machines
        self.ledgers: dict[Key, PartitionHistory] = {}
        self._seen: dict[Partition, Seen] = {}
        self.log_ends: dict[tuple[int, Key], int] = {}
        """The log end offset of a partition on a machine's disk, also while the machine is down."""
        self.without_power: set[int] = set()
        """Machines that may have lost records on which ISRs count."""
        self._lost_power_once: set[int] = set()
        self._died_leading: dict[tuple[int, Key], int] = {}
        """The leader epoch of machines whose process died within a step. They may have a last batch that was never observed."""

    def ledger(self, core: Partition) -> PartitionHistory:
        key = core.topic_id, core.topic_partition.partition
        ledger = self.ledgers.get(key)
        if ledger is None:
            options, starts = self._env.options, LogStartHistory()
            if core.topic_partition.topic == RETAINED:
                starts = LogStartHistory(options.retention_ms, options.retention_bytes)
            if core.topic_partition.topic == SHARE_STATE_TOPIC:
                starts.asked = ANY_OFFSET
            ledger = self.ledgers[key] = PartitionHistory(core.topic_partition, starts)
        return ledger

    def look(self, life: NodeView) -> None:
        partitions = life.partitions
        if partitions is None or not life.alive:
            return
        with life.machine.watched():
            self._look_through(life, partitions)

    def _look_through(self, life: NodeView, partitions: ReplicaManager) -> None:
        for core in list(partitions.by_id.values()):
            log = core.log
            seen = self._seen.get(core)
            if seen is None:
                seen = self._seen[core] = Seen(log)
                if life.id in self._lost_power_once or self.ledger(core).history.line >= 0:
                    # A truncation may have been undone, or be due. Until the replica has asked its leader, it may have
                    # records that are not committed.
                    seen.verified = seen.unverified = log.high_watermark
            elif (
                seen.end == log.log_end_offset
                and seen.high_watermark == log.high_watermark
                and seen.epoch == core.leader_epoch
                and seen.is_leader is core.is_leader
                and seen.start == log.log_start_offset
                and seen.log is log
                and seen.cleaned_to == cleaned_to(log)
            ):
                continue
            self._look_at(life, core, seen, self.ledger(core))

    def _look_at(self, life: NodeView, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        log, counters = core.log, self._env.counters
        end, high_watermark, epoch = log.log_end_offset, log.high_watermark, core.leader_epoch
        where = f"{core.topic_partition} on node {life.id} in epoch {epoch}"
        if self._env.tell is not None:
            self._env.tell(
                f"{where} {'leads' if core.is_leader else 'follows'}, log {log.log_start_offset}..{end}, "
                f"high watermark {high_watermark}, ISR {core.isr}"
            )
        if seen.log is not log:
            # A copy in another directory has replaced the log, and nothing is known about it yet. Tombstones that were
            # cleaned from the old log must not be in it.
            seen.log, seen.matched, seen.verified = log, 0, min(seen.unverified, high_watermark)
            counters.directory_moves += 1
        self.log_ends[life.id, (core.topic_id, core.topic_partition.partition)] = end
        if end < seen.end:
            counters.truncations += 1
            if (
                end < min(seen.high_watermark, ledger.end)
                and seen.high_watermark > seen.unverified
                and not self._begins_anew(core, seen)
            ):
                raise Breach(
                    "nothing committed disappears",
                    f"{where} is cut from {seen.end} to {end}, below {seen.high_watermark}",
                )
            seen.matched, seen.verified = min(seen.matched, end), min(seen.verified, end)
            seen.high_watermark = min(seen.high_watermark, end)
            seen.tombstones = {each for each in seen.tombstones if each < end}
        if high_watermark < seen.high_watermark:
            raise Breach(
                "high watermarks never retreat", f"{where} from {seen.high_watermark} to {high_watermark}"
            )
        if seen.is_leader and core.is_leader and log.log_start_offset < seen.start:
            raise Breach("log starts never retreat", f"{where} from {seen.start} to {log.log_start_offset}")
        if epoch < seen.epoch:
            raise Breach("epochs never retreat", f"{where} was in {seen.epoch}")
        is_cleaned = ledger.keys is not None and seen.cleaned_to != cleaned_to(log)
        if is_cleaned:
            seen.matched = 0
            counters.logs_cleaned += seen.cleaned_to < cleaned_to(log)
        self._match(where, life.id, core, seen, ledger)
        if core.is_leader and (not seen.is_leader or seen.epoch != epoch):
            counters.leaderships += 1
            self._took_lead(where, life.id, core, ledger)
        if high_watermark > seen.verified and max(epoch, seen.epoch) < ledger.history.line:
            self._commit_in_vain(core, seen, ledger)
        elif high_watermark > seen.verified:
            led_in = self._last_led(life.id, core, seen)
            if high_watermark > ledger.end and led_in is not None:
                self._commit(where, core, ledger, led_in)
            self._verify(where, core, seen, ledger)
        if log.log_start_offset > seen.start:
            self._check_start(where, life, log, ledger)
        if is_cleaned or seen.is_leader is not core.is_leader:
            self._check_keys(where, core, seen, ledger)
        seen.cleaned_to = cleaned_to(log)
        seen.end, seen.high_watermark, seen.start = end, high_watermark, log.log_start_offset
        seen.epoch, seen.is_leader = epoch, core.is_leader

    def _begins_anew(self, core: Partition, seen: Seen) -> bool:
        """Whether another replica begins above all that this one has had. A long log is dropped in several steps then."""
        key = core.topic_id, core.topic_partition.partition
        lives = [self._machines[each].life for each in core.replicas if each in self._machines]
        others = [each.partitions.by_id.get(key) for each in lives if each is not None and each.partitions]
        return any(other is not None and other.log.local_log_start_offset > seen.end for other in others)

    def _last_led(self, node: int, core: Partition, seen: Seen) -> int | None:
        """The last epoch since the last look in which a replica has led. One event may elect it and depose it again: of several
        images it takes up one after the other."""
        if core.is_leader:
            return core.leader_epoch
        key = core.topic_id, core.topic_partition.partition
        led = self._env.metadata.leaders.get(key, {})
        for epoch in sorted(led, reverse=True):
            if seen.epoch < epoch < core.leader_epoch and led[epoch] == node:
                return epoch
        return seen.epoch if seen.is_leader else None

    def _match(self, where: str, node_id: int, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        """Check that every batch is the one that the only leader of its epoch appended at that offset."""
        log, key = core.log, (core.topic_id, core.topic_partition.partition)
        last_act = self._died_leading.get((node_id, key))
        for header, view in opened(log, seen.matched, log.log_end_offset):
            base, batch = header.base_offset, written(header)
            known = ledger.written.get((batch.epoch, base))
            if known is None:
                leads_now = core.is_leader and batch.epoch == core.leader_epoch
                # Or it is the last act of a leader that was deposed or died in the same event.
                is_last_act = batch.epoch == last_act or (seen.is_leader and batch.epoch == seen.epoch)
                # Or the leadership began and ended within the event, which may bring several images.
                is_only_act = (
                    seen.epoch < batch.epoch and self._env.metadata.leader(key, batch.epoch) == node_id
                )
                if not leads_now and not is_last_act and not is_only_act:
                    raise Breach("log matching", f"{where} has a batch at {base} that nobody wrote: {batch}")
                ledger.written[batch.epoch, base] = batch
            elif not ledger.is_same(known, batch):
                raise Breach("one writer an epoch", f"{where} has {batch} at {base}, elsewhere is {known}")
            if ledger.keys is not None:
                self._match_contents(where, header, view, seen, ledger)
        seen.matched = log.log_end_offset

    def _check_start(self, where: str, life: NodeView, log: Log, ledger: PartitionHistory) -> None:
        start, counters = log.log_start_offset, self._env.counters
        if start > ledger.end and ledger.history.line < 0:
            raise Breach("log starts move for a reason", f"{where} begins at {start}, above {ledger.end}")
        if start > ledger.starts.start:
            bytes_left = sum(header.size for header, _ in opened(log, start, log.log_end_offset))
            if log.local_log_start_offset > start:
                uncommitted = opened(log, max(start, ledger.end), log.log_end_offset)
                bytes_left = ledger.starts.bytes_from(start) + sum(header.size for header, _ in uncommitted)
            now_ms = None if counters.clock_jumps else life.now_ms()
            counters.starts_retained += ledger.starts.moved(where, start, bytes_left, now_ms)

    def _match_contents(
        self, where: str, header: BatchHeader, view: memoryview, seen: Seen, ledger: PartitionHistory
    ) -> None:
        """Check that a cleaning has only removed records, and changed none."""
        contents = contents_of(header, view)
        appended = ledger.contents.setdefault((header.leader_epoch, header.base_offset), contents)
        if not contents.items() <= appended.items():
            raise Breach("one writer an epoch", f"{where} has {contents}, its leader appended {appended}")
        if not header.is_control:
            seen.tombstones.update(offset for offset, content in contents.items() if content.value is None)

    def _check_keys(self, where: str, core: Partition, seen: Seen | None, ledger: PartitionHistory) -> None:
        """For a compacted partition: check that all committed records that must be kept are there, up to the high watermark."""
        keys = ledger.keys
        if keys is None:
            return
        counters, now_us = self._env.counters, self._env.scheduler.now_us
        present: dict[int, Content] = {}
        end = min(core.log.high_watermark, ledger.end)
        for header, view in opened(core.log, 0, end):
            present.update(contents_of(header, view))
        keys.check(
            where,
            present,
            end,
            None if counters.clock_jumps else now_us,
            set() if seen is None else seen.tombstones,
        )

    def _took_lead(self, where: str, node_id: int, core: Partition, ledger: PartitionHistory) -> None:
        first = ledger.leaders.setdefault(core.leader_epoch, node_id)
        if first != node_id:
            raise Breach("one leader an epoch", f"{where}, where node {first} led")
        if core.leader_epoch < ledger.history.line:
            # This node learns late of an election that a later unclean election has superseded. The unclean leader's
            # log decides.
            return
        self._maybe_cut(core, ledger)
        committed = ledger.end_before(core.leader_epoch)
        log = core.log
        if log.log_end_offset < committed:
            raise Breach(
                "leader completeness",
                f"{where} ends at {log.log_end_offset}, committed is all below {committed}",
            )
        self._compare("leader completeness", where, core, 0, committed, ledger)

    def _maybe_cut(self, core: Partition, ledger: PartitionHistory) -> None:
        """After an unclean election: the common part of the leader's log and the committed records stays committed.
        Only the rest is lost."""
        election = ledger.history.begins_with(core.leader_epoch)
        if election is None:
            if ledger.history.line >= 0:
                self._commit_again(core, ledger)
            return
        counters = self._env.counters
        end = min(core.log.log_end_offset, ledger.end)
        for base, batch in batches(core.log, 0, end):
            if ledger.batches.get(base) != batch:
                end = base
                break
        before = len(ledger.batches)
        ledger.cut(end)
        ledger.history.line = election
        self._commit_again(core, ledger)
        counters.unclean_elections += 1
        counters.batches_lost += before - len(ledger.batches)
        for other, seen in self._seen.items():
            if (other.topic_id, other.topic_partition) == (core.topic_id, core.topic_partition):
                seen.unverified = max(seen.unverified, seen.high_watermark)

    def _commit_again(self, core: Partition, ledger: PartitionHistory) -> None:
        """Records that an earlier election lost, or seemed to lose, are committed again as far as the new leader knows."""
        for base, batch in batches(core.log, ledger.end, core.log.high_watermark):
            ledger.batches[base], ledger.end = batch, batch.last_offset + 1
        ledger.ends.append((core.leader_epoch, ledger.end))

    def _commit_in_vain(self, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        """A leader that an unclean election has replaced continues with followers that do not know it yet either."""
        for base, batch in batches(core.log, seen.verified, core.log.high_watermark):
            ledger.history.lose(base, batch)
        seen.verified = seen.unverified = core.log.high_watermark

    def elected_unclean(self, key: Key, epoch: int) -> None:
        """The controller reports an unclean election."""
        ledger = self.ledgers.get(key)
        if ledger is not None:
            ledger.history.elections.add(epoch)

    def _compare(
        self, oracle: str, where: str, core: Partition, start: int, end: int, ledger: PartitionHistory
    ) -> None:
        for base, batch in batches(core.log, start, end):
            if not ledger.is_same(ledger.batches.get(base), batch):
                raise Breach(
                    oracle, f"{where} has {batch} at {base}, committed is {ledger.batches.get(base)}"
                )

    def _commit(self, where: str, core: Partition, ledger: PartitionHistory, epoch: int) -> None:
        """A leader's high watermark exceeds all earlier ones. Everything below it is committed from now on."""
        log = core.log
        target = log.high_watermark
        self._check_copies(where, core, target, epoch)
        for header, view in opened(log, ledger.end, target):
            base, batch = header.base_offset, written(header)
            if base != ledger.end or batch.last_offset >= target:
                raise Breach(
                    "high watermark", f"{where} at {target} lies within a batch, or below {ledger.end}"
                )
            ledger.batches[base] = batch
            ledger.end = batch.last_offset + 1
            ledger.starts.commit(header)
            if ledger.keys is not None:
                ledger.keys.commit(header, contents_of(header, view), self._env.scheduler.now_us)
        ledger.ends.append((epoch, ledger.end))

    def _check_copies(self, where: str, core: Partition, target: int, epoch: int) -> None:
        key = core.topic_id, core.topic_partition.partition
        image = self._env.metadata.partition(key)
        holding = [
            each
            for each in core.replicas
            if each in self.without_power
            or max(self.log_ends.get((each, key), 0), self._present_end(each, key)) >= target
        ]
        if len(holding) < min(min_isr(core.topic_partition.topic), len(core.replicas)):
            raise Breach("committed on the min ISR", f"{where} commits {target}, which only {holding} have")
        if image is not None and image.leader_epoch == epoch:
            missing = set(image.isr) - set(holding)
            if missing:
                raise Breach(
                    "committed on the whole ISR", f"{where} commits {target}, which {sorted(missing)} lack"
                )

    def was_last_act(self, key: Key, base: int, batch: Written) -> bool:
        """Whether a leader that has lost the partition since can have committed the batch in that same event, for example because
        its disk was full: the whole ISR has it, and nothing else is committed there."""
        lives = [machine.life for machine in self._machines.values()]
        led = [life.partitions.by_id.get(key) for life in lives if life is not None and life.partitions]
        image = self._env.metadata.partition(key)
        return (
            image is not None
            and not any(
                core is not None and core.is_leader and core.leader_epoch == batch.epoch for core in led
            )
            and self.ledgers[key].end <= base
            and self.ledgers[key].written.get((batch.epoch, base)) == batch
            and all(self.log_ends.get((each, key), 0) > batch.last_offset for each in image.isr)
        )

    def _verify(self, where: str, core: Partition, seen: Seen, ledger: PartitionHistory) -> None:
        end = core.log.high_watermark
        if end > ledger.end:
            raise Breach("high watermark", f"{where} is at {end}, committed is all below {ledger.end}")
        self._compare("replicas agree", where, core, seen.verified, end, ledger)
        seen.verified = end

    def check_whole(self, life: NodeView, core: Partition) -> bool:
        """At the end, check a whole replica that is in sync. False: it cannot be whole yet."""
        with life.machine.watched():
            ledger = self.ledger(core)
            where = f"{core.topic_partition} on node {life.id}"
            self._compare("replicas agree", where, core, 0, core.log.high_watermark, ledger)
            self._check_keys(where, core, self._seen.get(core), ledger)
        return True

    # Failures of disks and processes.

    def dies_within(self, life: NodeView) -> None:
        """A process ends in the middle of a step. Everything it has sent in this step is still binding."""
        partitions = life.partitions
        for key, core in () if partitions is None else partitions.by_id.items():
            if core.is_leader:
                self._died_leading[life.id, key] = core.leader_epoch
        # After half a step the state may be inconsistent. It is checked after the next start.
        with suppress(Exception):
            self.look(life)

    def _present_end(self, machine_id: int, key: Key) -> int:
        """Where the log ends that a process has now. After a failed sync, those of its other directories are as good as
        before."""
        life = self._machines[machine_id].life
        core = None if life is None or life.partitions is None else life.partitions.by_id.get(key)
        return 0 if core is None else core.log.log_end_offset

    def power_lost(self, machine_id: int, directory: str | None = None) -> None:
        """`directory`: a sync has failed there, so nothing else is lost. The process may run on for a moment, and join an ISR."""
        self.without_power.add(machine_id)
        self._lost_power_once.add(machine_id)
        for machine, key in list(self.log_ends):
            name = self.ledgers[key].name
            if machine == machine_id and directory in (None, f"{name.topic}-{name.partition}"):
                self.log_ends[machine, key] = 0

    def power_is_harmless_again(self, machine_id: int) -> None:
        self.without_power.discard(machine_id)


ALL_REPLICAS = -1


class ClientOracles:
    def __init__(
        self, env: Environment, machines: Mapping[int, MachineView], partitions: PartitionOracles
    ) -> None:
        self._env = env
        self._machines = machines
        self._partitions = partitions

    def answered(self, life: NodeView, request: Any, response: Any) -> None:
        """A node sends an answer. The records that it acknowledges must be committed."""
        if not isinstance(request, ProduceRequest) or request.acks != ALL_REPLICAS:
            return
        self._partitions.look(life)
        # Topics that the sender may not see, or that are gone, are answered before all others.
        topics = {(topic.name, topic.topic_id): topic for topic in response.responses}
        for asked in request.topic_data:
            topic = topics[asked.name, asked.topic_id]
            for data, answer in zip(asked.partition_data, topic.partition_responses, strict=True):
                if answer.error_code == 0:
                    header = parse_header(data.records)
                    self._acknowledged((asked.topic_id, data.index), header, answer.base_offset, life.id)

    def _acknowledged(self, key: Key, header: BatchHeader, base_offset: int, node_id: int) -> None:
        ledger = self._partitions.ledgers[key]
        batch = ledger.batches.get(base_offset)
        if any(each.crc == header.crc for each in ledger.history.lost.get(base_offset, ())):
            return
        if (
            batch is None
            or ((header.producer_id < 0 or is_mirrored(ledger.name.topic)) and batch.crc != header.crc)
            or batch.producer_id != header.producer_id
            or batch.base_sequence != header.base_sequence
        ):
            raise Breach(
                "acknowledged is committed",
                f"node {node_id} acknowledges {ledger.name} at {base_offset}, "
                f"committed is all below {ledger.end}, and there {batch}",
            )
        ledger.acknowledged += 1

    def consumed(self, key: Key, records: bytes) -> None:
        """Check that all records shown to a consumer are committed."""
        ledger = self._partitions.ledgers[key]
        for header in iterate_batches(records):
            base, batch = header.base_offset, written(header)
            if not ledger.was_committed(base, batch) and not self._partitions.was_last_act(key, base, batch):
                raise Breach(
                    "consumers see what is committed",
                    f"{ledger.name} at {base} is shown as {batch}, committed is {ledger.batches.get(base)}",
                )

    def passed(self, key: Key, start: int, end: int) -> None:
        """A consumer continues at a later offset without having been shown the records in between."""
        ledger = self._partitions.ledgers[key]
        now_us = None if self._env.counters.clock_jumps else self._env.scheduler.now_us
        for offset in range(start, end):
            if ledger.keys is None or not ledger.keys.may_be_gone(offset, now_us):
                raise Breach("consumers miss nothing", f"{ledger.name} went from {start} to {end}")

    def asked_to_delete(self, key: Key, offset: int) -> None:
        """A client is about to request a deletion of records. In a compacted topic the request is refused."""
        ledger = self._partitions.ledgers[key]
        if ledger.keys is None:
            ledger.starts.asked = max(ledger.starts.asked, offset)

    def check_latest(self, key: Key, latest: Mapping[bytes, bytes | None]) -> None:
        """At the end, check that the last acknowledged value of each key is the last value on every replica."""
        for machine in self._machines.values():
            partitions = None if machine.life is None else machine.life.partitions
            core = None if partitions is None else partitions.by_id.get(key)
            if core is None:
                continue
            shown: dict[bytes | None, bytes | None] = {}
            with machine.watched():
                for header, view in opened(core.log, 0, core.log.high_watermark):
                    shown.update(contents_of(header, view).values())
            for name, value in latest.items():
                # A tombstone may be gone after delete.retention.ms.
                if shown.get(name) != value:
                    raise Breach(
                        "each key's last acknowledged value stays",
                        f"{core.topic_partition} on node {machine.id} shows {shown.get(name)!r} for {name!r} instead of {value!r}",
                    )
