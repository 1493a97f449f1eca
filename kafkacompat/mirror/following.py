"""How mirrored partitions follow their source: the requests to each leader there, and what is done to the logs here.

A pure core over the partitions' logs, like partition/following.py: it builds requests and takes responses, and source.py sends
them. Times are milliseconds of one monotonic clock. A partition's fetch offset is always its log end offset. An error delays
only its own partition.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid, uuid_to_text
from kafkacompat.mirror.mirrored_partition import NO_LEADER, MirroredPartition, has_own_records
from kafkacompat.partition.fetch_session_handler import FetchSessionHandler, FetchSettings
from kafkacompat.partition.following import (
    BATCH_US,
    PARTITION_US,
    TRUNCATION_US,
    append_in_turns,
    divergence,
    list_offsets_request,
    parts_below_start,
    take_earliest,
    take_latest,
    truncate_to_divergence,
)
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt, iterate_batches
from kafkacompat.tasks import Pace, Work
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.fetch_request import ReplicaState

if TYPE_CHECKING:
    from kafkacompat.mirror.traffic import MirrorTopicTraffic
    from kafkacompat.partition.partition import Partition
    from kafkacompat.wire.messages.fetch_request import FetchRequest
    from kafkacompat.wire.messages.fetch_response import FetchResponse, PartitionData
    from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
    from kafkacompat.wire.messages.list_offsets_response import ListOffsetsResponse
    from kafkacompat.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition

CONSUMER = -1
FETCH_SETTINGS = FetchSettings()
BACKOFF_MS = FETCH_SETTINGS.backoff_ms
NAMED_MAX = 1_000
"""Partitions that a request of a session names. Each takes some microseconds."""
LOOKED_AT_A_STEP = 500
LOOKED_AT_US = 4
EARLIEST, LATEST = -2, -1
METADATA_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""After these the source may have another leader, or other topics."""

Key = tuple[str, int]
Session = FetchSessionHandler[MirroredPartition]


@dataclass(slots=True)
class Outcome:
    """What a response has led to, for the shell to act on."""

    appended: list[Partition] = field(default_factory=list)
    truncated: list[MirroredPartition] = field(default_factory=list)
    """Not fetched before `resolved`, because a checkpoint offset may be too high for their logs."""
    out_of_range: list[MirroredPartition] = field(default_factory=list)
    """They need offsets of the source."""
    broken: list[tuple[Partition, OSError]] = field(default_factory=list)
    failed: list[MirroredPartition] = field(default_factory=list)
    bugs: list[tuple[MirroredPartition, Exception]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    needs_metadata: bool = False


class MirrorFetches:
    """All partitions here that follow topics of one cluster."""

    def __init__(self) -> None:
        self.partitions: dict[Key, MirroredPartition] = {}
        self.sessions: dict[int, Session] = {}
        """By the leader's node id at the source. They have the partitions that have not failed."""

    def add(self, core: Partition, topic_id: Uuid, traffic: MirrorTopicTraffic) -> None:
        """Follow from now on, in the present leader epoch here."""
        known = self.partitions.get(core.topic_partition)
        if known is not None:
            self._set_leader(known, NO_LEADER)
        self.partitions[core.topic_partition] = followed = MirroredPartition(core, topic_id, traffic)
        if has_own_records(core):
            followed.failed = "it has records that were written here after the mirror was stopped"

    def remove(self, core: Partition) -> None:
        followed = self.partitions.get(core.topic_partition)
        if followed is not None and followed.core is core:
            self._set_leader(followed, NO_LEADER)
            del self.partitions[core.topic_partition]

    def topics(self) -> list[str]:
        return sorted({name for name, _ in self.partitions})

    def leaders(self) -> set[int]:
        """Node ids at the source that are fetched from."""
        return set(self.sessions)

    def next_due_ms(self, leader: int) -> int | None:
        """When the next delay ends of a partition with that leader. None: nothing waits for a time."""
        session = self.sessions.get(leader)
        return None if session is None else session.next_due_ms()

    def _set_leader(self, followed: MirroredPartition, leader: int) -> None:
        former = self.sessions.get(followed.leader)
        if former is not None and followed.leader != leader:
            former.remove(followed)
            if not former.partitions:
                del self.sessions[followed.leader]
        if leader != NO_LEADER and followed.leader != leader:
            session = self.sessions.get(leader)
            if session is None:
                session = self.sessions[leader] = Session(FETCH_SETTINGS, named_max=NAMED_MAX)
            session.add(followed)
        followed.leader = leader

    def _delay(self, followed: MirroredPartition, due_ms: int) -> None:
        session = self.sessions.get(followed.leader)
        if session is None:
            followed.due_ms = due_ms
        else:
            session.delay(followed, due_ms)

    # What the source's metadata says.

    def take_metadata_in_turns(self, response: MetadataResponse, outcome: Outcome) -> Work[dict[str, int]]:
        """Take over leaders and epochs. Returns the numbers of partitions of topics that have grown, as far as this node
        leads their first partition."""
        topics = {topic.name: topic for topic in response.topics}
        leaders = {
            topic.name: {each.partition_index: each for each in topic.partitions} for topic in response.topics
        }
        grown: dict[str, int] = {}
        pace = Pace(LOOKED_AT_A_STEP)
        for key, followed in list(self.partitions.items()):
            if pace.is_over():
                yield LOOKED_AT_A_STEP * LOOKED_AT_US
            if followed.failed is not None or self.partitions.get(key) is not followed:
                continue
            name, index = key
            topic = topics.get(name)
            if topic is None or topic.error_code != ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else code_of(topic.error_code)
                outcome.notes.append(f"The source answers {code.name} for topic {name}")
                self._set_leader(followed, NO_LEADER)
            elif topic.topic_id != followed.topic_id:
                # The topic was made again, or this broker is cut off since a time when there was an older one.
                ids = f"{uuid_to_text(topic.topic_id)}, not {uuid_to_text(followed.topic_id)}"
                outcome.notes.append(f"The source's topic {name} was made again: its id is {ids}")
                self._set_leader(followed, NO_LEADER)
            else:
                older = self._take_leader(followed, leaders[name].get(index))
                if older is not None:
                    outcome.notes.append(older)
                if index == 0:
                    grown[name] = len(topic.partitions)
        outcome.notes = list(dict.fromkeys(outcome.notes))
        return grown

    def _take_leader(
        self, followed: MirroredPartition, there: MetadataResponsePartition | None
    ) -> str | None:
        """Returns a line if the metadata is older than what is known. A broker there that is cut off from its cluster may lead
        in its own eyes. Its log ends too early, and a mirror that is truncated to it would lack records when it takes over."""
        if there is None:
            self._set_leader(followed, NO_LEADER)
            return None
        known = max(followed.source_epoch, followed.core.log.latest_epoch())
        if there.leader_epoch < known:
            return f"The metadata of {followed.name} has leader epoch {there.leader_epoch}, which is older than {known}"
        if (there.leader_id, there.leader_epoch) != (followed.leader, followed.source_epoch):
            followed.due_ms = 0
            followed.source_epoch = there.leader_epoch
            self._set_leader(followed, there.leader_id)
            session = self.sessions.get(there.leader_id)
            if session is not None:
                session.changed(followed)
        return None

    def _fail(self, followed: MirroredPartition, reason: str, outcome: Outcome) -> None:
        followed.failed = reason
        self._set_leader(followed, NO_LEADER)
        followed.traffic.errors += 1
        outcome.failed.append(followed)

    # Fetches.

    def build(self, leader: int, now_ms: int) -> FetchRequest | None:
        """The next request to a leader. None if nothing is to be fetched from it now."""
        session = self.sessions.get(leader)
        if session is None:
            return None
        session.resume(now_ms)
        stale: list[MirroredPartition] = []
        request = session.build(ReplicaState(), stale)
        for followed in stale:
            self.remove(followed.core)
        return request

    def lost(self, leader: int, now_ms: int) -> None:
        """A request to a leader got no answer."""
        session = self.sessions.get(leader)
        if session is None:
            return
        session.lost(now_ms)
        for followed in session.partitions.values():
            followed.is_lost = True
            followed.traffic.errors += 1

    def take_in_turns(
        self, leader: int, response: FetchResponse, now_ms: int, outcome: Outcome
    ) -> Work[None]:
        session = self.sessions.get(leader)
        if session is None:
            return
        if response.error_code != ErrorCode.NONE:
            if not session.is_over(code_of(response.error_code)):
                self.lost(leader, now_ms)
                outcome.needs_metadata = True
            return
        session.handle_response(response)
        for topic in response.responses:
            for answer in topic.partitions:
                followed = session.partitions.get((topic.topic_id, answer.partition_index))
                if (
                    followed is not None
                    and followed.asked is not None
                    and followed.is_ready_for_fetch(now_ms)
                ):
                    yield from self._take_partition(session, followed, answer, now_ms, outcome)
                    yield PARTITION_US

    def _is_wanted(self, followed: MirroredPartition) -> bool:
        return self.partitions.get(followed.name) is followed and followed.is_current()

    def _take_partition(
        self,
        session: Session,
        followed: MirroredPartition,
        answer: PartitionData,
        now_ms: int,
        outcome: Outcome,
    ) -> Work[None]:
        core = followed.core
        asked = followed.asked
        assert asked is not None  # the caller has checked it
        if self.partitions.get(followed.name) is not followed or followed.position() != asked:
            session.changed(followed)
            return  # the answer belongs to another time
        followed.is_lost = False
        error = code_of(answer.error_code)
        try:
            if error is ErrorCode.NONE:
                if answer.diverging_epoch is not None and answer.diverging_epoch.epoch >= 0:
                    yield from self._truncate(session, followed, answer, now_ms, outcome)
                    yield TRUNCATION_US
                else:
                    yield from self._append(session, followed, answer, outcome, now_ms)
                    followed.told = ""
                return
        except LogRefused as refused:
            _note(followed, f"Records of {followed.name} at offset {asked[0]}: {refused}", outcome)
        except OSError as failure:
            outcome.broken.append((core, failure))
        except MemoryError:  # it passes
            _note(followed, f"No memory for the records of {followed.name} at offset {asked[0]}", outcome)
        except Exception as problem:  # the other partitions go on after any kind of error
            self._fail(followed, f"an unexpected error: {problem!r}", outcome)
            outcome.bugs.append((followed, problem))
            return
        self._delay(followed, now_ms + BACKOFF_MS)
        followed.traffic.errors += 1
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.resolving = True
            outcome.out_of_range.append(followed)
        elif error is not ErrorCode.NONE:
            _note(followed, f"The source answers {error.name} for {followed.name}", outcome)
        outcome.needs_metadata |= error in METADATA_ERRORS

    def _truncate(
        self,
        session: Session,
        followed: MirroredPartition,
        answer: PartitionData,
        now_ms: int,
        outcome: Outcome,
    ) -> Work[None]:
        core, asked, diverging = followed.core, followed.asked, answer.diverging_epoch
        assert diverging is not None
        producers = yield from core.log.producers_as_of(divergence(core.log, diverging))
        if self.partitions.get(followed.name) is not followed or followed.position() != asked:
            # Another leader there may be asked by now, and have given records that this one does not have.
            session.changed(followed)
            return
        offset = divergence(core.log, diverging)
        if offset >= core.log.log_end_offset:
            # Fetching at once would give the same answer.
            self._delay(followed, now_ms + BACKOFF_MS)
            text = f"diverges from epoch {diverging.epoch} of its source, which it does not have"
            _note(followed, f"{followed.name} {text}", outcome)
            return
        followed.resolving = True
        self._delay(followed, now_ms)
        if parts_below_start(core.log, offset):
            followed.begins_anew = True
            outcome.notes.append(
                f"{followed.name} diverges from its source at offset {offset}, below its log start "
                f"{core.log.log_start_offset}"
            )
            outcome.out_of_range.append(followed)
            return
        # Also after a disk error something may be truncated.
        outcome.truncated.append(followed)
        outcome.notes.append(core.truncate_mirror(lambda: truncate_to_divergence(core, diverging, producers)))

    def _append(
        self,
        session: Session,
        followed: MirroredPartition,
        answer: PartitionData,
        outcome: Outcome,
        now_ms: int,
    ) -> Work[None]:
        core = followed.core
        log = core.log
        records = answer.records
        size = 0 if records is None else len(records)
        if records is not None and size:
            end = log.log_end_offset
            epoch_max = log.config.mirror_leader_epoch - 1
            for cost in append_in_turns(core, records, epoch_max, lambda: self._is_wanted(followed)):
                outcome.appended.append(core)  # the followers here wait for each piece
                yield cost
            if not self._is_wanted(followed):
                return
            if log.log_end_offset == end:
                self._delay(followed, now_ms + BACKOFF_MS)
                epoch = _first_epoch(records)
                if epoch is not None and epoch > epoch_max:
                    self._fail(
                        followed,
                        f"the source's leader epoch {epoch} has reached mirror.leader.epoch",
                        outcome,
                    )
                return
            followed.traffic.bytes_in += size
            session.move_to_end(followed)
            session.changed(followed)
        followed.lag = max(0, answer.high_watermark - log.log_end_offset)
        start = min(answer.log_start_offset, log.high_watermark)
        if start > log.log_start_offset and log.increment_log_start_offset(start):
            outcome.appended.append(core)
        yield BATCH_US

    # Offsets out of the source's range.

    def offsets_request(self, asked: list[MirroredPartition], timestamp: int) -> ListOffsetsRequest:
        return list_offsets_request(
            CONSUMER, ((followed.name, followed.source_epoch) for followed in asked), timestamp
        )

    def take_offsets(
        self,
        asked: list[MirroredPartition],
        timestamp: int,
        response: ListOffsetsResponse,
        now_ms: int,
        outcome: Outcome,
    ) -> Work[list[MirroredPartition]]:
        """Truncate to the source's end, or begin at its start. Returns the partitions of which the source's start is needed.
        All others are truncated, or go on after the delay. After a long pause these may be all partitions of the source."""
        answers = {
            (topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        left: list[MirroredPartition] = []
        for followed in asked:
            answer = answers.get(followed.name)
            producers = None
            if answer is not None and answer.error_code == ErrorCode.NONE and timestamp == LATEST:
                producers = yield from followed.core.log.producers_as_of(answer.offset)
            if answer is None or answer.error_code != ErrorCode.NONE or not self._is_wanted(followed):
                outcome.needs_metadata = True
                self.resolved(followed, now_ms + BACKOFF_MS)
                continue
            log = followed.core.log
            before = log.log_start_offset, log.log_end_offset
            refusal: Exception | None = None
            try:
                is_settled = self._settle(followed, timestamp, answer.offset, producers)
            except OSError as failure:
                outcome.broken.append((followed.core, failure))
                is_settled = True
            except (LogRefused, MemoryError) as problem:  # indexes that are being rebuilt, for example
                refusal, is_settled = problem, True
            except Exception as problem:  # the other partitions go on after any kind of error
                self._fail(followed, f"an unexpected error: {problem!r}", outcome)
                outcome.bugs.append((followed, problem))
                is_settled = True
            if not is_settled:
                left.append(followed)
                yield PARTITION_US
                continue
            # One line: a second one would have both noted again with each attempt.
            text = f"Offset {before[1]} of {followed.name} is out of the source's range"
            then = f"it goes on at {log.log_end_offset}"
            if refusal is not None:
                then = f"it cannot be truncated now: {refusal!r}"
            _note(followed, f"{text}; {then}", outcome)
            if (log.log_start_offset, log.log_end_offset) != before:
                outcome.truncated.append(followed)
            else:
                self.resolved(followed, now_ms + BACKOFF_MS)
            yield TRUNCATION_US
        return left

    def _settle(self, followed: MirroredPartition, timestamp: int, offset: int, producers: Any) -> bool:
        core = followed.core
        if timestamp == LATEST:
            followed.begins_anew = followed.begins_anew or parts_below_start(core.log, offset)
            if followed.begins_anew or not core.truncate_mirror(lambda: take_latest(core, offset, producers)):
                return False
        else:
            anew, followed.begins_anew = followed.begins_anew, False
            core.truncate_mirror(lambda: take_earliest(core, offset, anew=anew))
        return True

    def resolved(self, followed: MirroredPartition, due_ms: int = 0) -> None:
        """Its wait is over. Fetch it at once, or from that time on."""
        followed.resolving = False
        self._delay(followed, due_ms)


def _note(followed: MirroredPartition, trouble: str, outcome: Outcome) -> None:
    if trouble != followed.told:
        followed.told = trouble
        outcome.notes.append(trouble)


def _first_epoch(records: memoryview | bytes | bytearray) -> int | None:
    """The leader epoch of the first batch. None if there is no complete batch."""
    try:
        for header in iterate_batches(records):
            return header.leader_epoch
    except BatchCorrupt:
        pass
    return None
