"""Writes rejected records again to the topics from which they came, each once, however often it is asked.

A rejected record has at most 2048 characters of the record, so the record itself is read again at its offset. What is
written, and a record in the ledger that says so, are one transaction. The ledger is a compacted topic, JOB.replayed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from operator import methodcaller
from typing import Any, Final, NamedTuple, Protocol

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.jobs.validation import REJECTED_TEXT_CHARACTERS_MAX
from kafkacompat.pipeline.options import READ_COMMITTED
from kafkacompat.pipeline.topics import LATEST, REJECTED_SUFFIX, create_missing, plans
from kafkacompat.pipeline.transactions import abort, patiently
from kafkacompat.security.cluster_address import ClusterAddress

LEDGER_SUFFIX: Final = ".replayed"
HEADER: Final = "replayed"
"""The header of a record that was written again: the event id of the rejected record."""

CLIENT_ID: Final = "kafkacompat-replay"
TIMEOUT_S: Final = 30.0
TRANSACTION_RECORDS: Final = 500
RECORDS_MAX: Final = 100_000
"""At most so many in one call. The next one goes on."""

PART_RECORDS: Final = 100_000
"""So many rejected records are held in memory, some 50 MB."""

QUEUED_KBYTES: Final = 8 * 1024
"""What a reader has received and not given yet."""

SKIPPED_MAX: Final = 1000
"""Records between two that are wanted are read, up to this number. Beyond it the reader jumps."""

MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The client's own limit, as high as it goes: the topic's is what counts."""

TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})


HEADERS_OF: Final = methodcaller("headers")
"""A direct call is not checked for the library's error after a while, and the broken list that it returns ends the process."""


class TooLarge(Exception):
    """A topic does not take a record, or several of them in one batch."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected record: where it came from, and a digest of its text."""

    event_id: str
    reason: str
    topic: str
    partition: int
    offset: int
    received_ms: int
    digest: bytes

    @property
    def key(self) -> str:
        """Its key in the ledger. The time tells apart records of topics that were deleted and created again."""
        return f"{self.event_id}@{self.received_ms}"

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a call has done. topics: the numbers of records written, by topic. before: in earlier calls. gone: records that
    are not at their offset any more. left: records beyond RECORDS_MAX, at most: some may have been replayed before.
    large: records that their topics do not take. unreadable: records with headers that the client library cannot read.
    """

    topics: Counter[str]
    before: int
    gone: int
    left: int
    large: int = 0
    unreadable: int = 0


class Original(NamedTuple):
    """A record that was rejected. headers: None if the client library cannot read them, as the name of one is not UTF-8."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, Any]] | None


def decode(value: bytes | None) -> Rejected | None:
    """Parse a record of a rejected topic, or return None if it is none."""
    try:
        told: Any = json.loads(value or b"")
        return Rejected(
            str(told["event_id"]),
            str(told["reason"]),
            str(told["topic"]),
            int(told["partition"]),
            int(told["offset"]),
            int(told["received_ms"]),
            _digest(told.get("line")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_asked(reason: str, reasons: Iterable[str]) -> bool:
    """Return whether a reason begins with one of these texts."""
    return any(reason.startswith(text) for text in reasons)


def is_same(rejected: Rejected, value: bytes | None, timestamp_ms: int) -> bool:
    """Return whether a record is the one that was rejected, and not one of a topic that was created again.

    A timestamp in the future was told as the time at which it was read. Bytes that are not UTF-8 have no text to compare.
    """
    if timestamp_ms < rejected.received_ms:
        return False
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return True
    return _digest(text) == rejected.digest


def reasons_in(address: ClusterAddress, topic: str) -> Counter[str]:
    """Return how many records of a rejected topic have each reason.

    Those that Spark has written twice count once, unless RECORDS_MAX others are between them.
    """
    recent: dict[str, None] = {}
    found: Counter[str] = Counter()
    with closing(_reader(address, READ_COMMITTED)) as reader:
        for each in _rejected_in(reader, topic):
            if each.key in recent:
                continue
            found[each.reason] += 1
            recent[each.key] = None
            if len(recent) > RECORDS_MAX:
                del recent[next(iter(recent))]
    return found


class Log(Protocol):
    """What `replay_all` needs of the cluster: the rejected topic, its ledger, and the topics of the records."""

    def fence(self) -> None:
        """End what earlier calls have begun: it is either in the ledger from now on, or never will be. They write no more."""
        ...

    def rejected(self) -> Iterable[Rejected]:
        """Give the rejected records from the first to the present end. One may come twice."""
        ...

    def ledger(self) -> Iterable[str]:
        """Give the keys of the ledger, from the first to the present end."""
        ...

    def originals(self, wanted: Sequence[Rejected]) -> list[tuple[Rejected, Original | None]]:
        """Return each rejected record with the record at its offset, or None if that is another one or none.

        wanted: in the order of their places.
        """
        ...

    def write(self, found: Sequence[tuple[Rejected, Original]]) -> None:
        """Write the records and their keys in the ledger in one transaction. Raises TooLarge."""
        ...


def replay_all(
    log: Log,
    reasons: Collection[str],
    records_max: int = RECORDS_MAX,
    written: Callable[[int], None] = lambda records: None,
) -> Replayed:
    """Write the records of these reasons again that are not in the ledger.

    The rejected records are taken in parts, so that memory holds neither the whole topic nor the whole ledger. The ledger is
    read for each part, after the records of the part before are in it.
    """
    log.fence()
    topics: Counter[str] = Counter()
    before = gone = left = large = unreadable = 0
    asked = (each for each in log.rejected() if is_asked(each.reason, reasons))
    while part := {each.key: each for each in islice(asked, PART_RECORDS)}:
        known = len(part)
        for key in log.ledger():
            part.pop(key, None)
        before += known - len(part)
        waiting = sorted(part.values(), key=lambda each: each.place)
        seen = 0
        # Those that are gone do not count: otherwise calls could end before the first one that is there.
        while seen < len(waiting) and (room := records_max - topics.total()) > 0:
            some = log.originals(waiting[seen : seen + min(room, TRANSACTION_RECORDS)])
            seen += len(some)
            there = [(each, record) for each, record in some if record is not None]
            gone += len(some) - len(there)
            found = [(each, record) for each, record in there if record.headers is not None]
            unreadable += len(there) - len(found)
            if found:
                taken = _write_or_halves(log, found)
                large += len(found) - len(taken)
                topics.update(each.topic for each, _ in taken)
                written(topics.total())
        left += len(waiting) - seen
        if topics.total() >= records_max:
            # Whether these wait too is for the next call to find out.
            left += sum(1 for _ in asked)
    return Replayed(topics, before, gone, left, large, unreadable)


def _write_or_halves(log: Log, found: list[tuple[Rejected, Original]]) -> list[tuple[Rejected, Original]]:
    """Write the records, fewer at a time where a topic does not take them. Return those that were written."""
    try:
        log.write(found)
    except TooLarge:
        if len(found) == 1:
            return []
        half = len(found) // 2
        return _write_or_halves(log, found[:half]) + _write_or_halves(log, found[half:])
    return found


def replay(
    address: ClusterAddress,
    topic: str,
    reasons: Collection[str],
    isolation_level: str = READ_COMMITTED,
    records_max: int = RECORDS_MAX,
    written: Callable[[int], None] = lambda records: None,
) -> Replayed:
    """Write the records of a rejected topic again whose reason begins with one of these.

    isolation_level: that of the job. Otherwise a record of a transaction that was aborted counts as gone. `written` gets the
    number of records after each transaction. PipelineFailed.
    """
    from confluent_kafka import KafkaException

    ledger = ledger_of(topic)
    create_missing(address, plans([ledger], partitions=1, configs={ledger: LATEST}))
    try:
        with ExitStack() as held:
            return replay_all(_KafkaLog(address, topic, isolation_level, held), reasons, records_max, written)
    except KafkaException as error:
        raise PipelineFailed(f"{topic} cannot be replayed: {error.args[0].str()}") from None


class _KafkaLog:
    """The Log of a rejected topic. `held` closes its clients."""

    def __init__(self, address: ClusterAddress, topic: str, isolation_level: str, held: ExitStack) -> None:
        from confluent_kafka import Producer

        self._address = address
        self._topic = topic
        self._ledger = ledger_of(topic)
        self._held = held
        self._originals = held.enter_context(closing(_reader(address, isolation_level)))
        self._producer = Producer(
            {
                **address.librdkafka(),
                "client.id": CLIENT_ID,
                "transactional.id": f"{CLIENT_ID}-{topic}",
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "log_level": 0,
            }
        )

    def fence(self) -> None:
        """As in Log."""
        self._producer.init_transactions(TIMEOUT_S)

    def rejected(self) -> Iterator[Rejected]:
        """As in Log."""
        return _rejected_in(
            self._held.enter_context(closing(_reader(self._address, READ_COMMITTED))), self._topic
        )

    def ledger(self) -> Iterator[str]:
        """As in Log."""
        with closing(_reader(self._address, READ_COMMITTED)) as reader:
            for message in _messages(reader, self._ledger):
                yield (message.key() or b"").decode(errors="replace")

    def originals(self, wanted: Sequence[Rejected]) -> list[tuple[Rejected, Original | None]]:
        """As in Log."""
        return _originals(self._originals, wanted)

    def write(self, found: Sequence[tuple[Rejected, Original]]) -> None:
        """As in Log."""
        _write(self._producer, self._ledger, found)


def ledger_of(topic: str) -> str:
    """Return the topic that says what was replayed. PipelineFailed if the topic is not one of rejected records."""
    if not topic.endswith(REJECTED_SUFFIX) or topic == REJECTED_SUFFIX:
        raise PipelineFailed(f"{topic} is not the topic of a job's rejected records, JOB{REJECTED_SUFFIX}")
    return topic.removesuffix(REJECTED_SUFFIX) + LEDGER_SUFFIX


def _digest(text: str | None) -> bytes:
    told = b"" if text is None else b"=" + text[:REJECTED_TEXT_CHARACTERS_MAX].encode("utf-8", "replace")
    return blake2b(told, digest_size=16).digest()


def _reader(address: ClusterAddress, isolation: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            **address.librdkafka(),
            "client.id": CLIENT_ID,
            "group.id": CLIENT_ID,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            # The end of a partition is told after this time.
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": QUEUED_KBYTES,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def _next(reader: Any) -> Any:
    """Return the next message, or the end of a partition as an error. PipelineFailed without an answer."""
    from confluent_kafka import KafkaError, KafkaException

    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = reader.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return message
        if error.fatal() or not error.retriable():
            raise KafkaException(error)
    raise PipelineFailed("the broker gives no records")


def _messages(reader: Any, topic: str) -> Iterator[Any]:
    """Give the messages of a topic from its beginning to its present end."""
    from confluent_kafka import KafkaException, TopicPartition

    told = reader.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if told.error is not None:
        raise KafkaException(told.error)
    ends = {
        number: reader.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1]
        for number in told.partitions
    }
    left = {number for number, end in ends.items() if end > 0}
    reader.assign([TopicPartition(topic, number, 0) for number in left])
    while left:
        message = _next(reader)
        number = message.partition()
        if number not in left:
            continue
        if message.error() is not None or message.offset() >= ends[number]:
            left.remove(number)
            continue
        yield message
        if message.offset() == ends[number] - 1:
            left.remove(number)


def _rejected_in(reader: Any, topic: str) -> Iterator[Rejected]:
    for message in _messages(reader, topic):
        found = decode(message.value())
        if found is not None:
            yield found


def _originals(reader: Any, wanted: Iterable[Rejected]) -> list[tuple[Rejected, Original | None]]:
    """Return each rejected record with the one at its offset, or None. They must be in the order of their places."""
    from confluent_kafka import KafkaException, TopicPartition

    found: list[tuple[Rejected, Original | None]] = []
    present: dict[tuple[str, int], tuple[int, int]] = {}
    held: Any = None
    for each in wanted:
        at = (each.topic, each.partition)
        if at not in present:
            held = None
            try:
                present[at] = reader.get_watermark_offsets(TopicPartition(*at), TIMEOUT_S)
            except KafkaException:
                # The topic is gone, or may not be read any more.
                present[at] = (0, 0)
        low, high = present[at]
        if not low <= each.offset < high:
            found.append((each, None))
            continue
        if held is None or each.offset - held.offset() > SKIPPED_MAX:
            reader.assign([TopicPartition(*at, each.offset)])
            held = _next(reader)
        while held.error() is None and held.offset() < each.offset:
            held = _next(reader)
        is_there = held.error() is None and held.offset() == each.offset
        is_there = is_there and is_same(each, held.value(), held.timestamp()[1])
        found.append((each, Original(held.key(), held.value(), _headers(held)) if is_there else None))
        if held.error() is not None:
            held = None
    return found


def _headers(message: Any) -> list[tuple[str, Any]] | None:
    try:
        return list(HEADERS_OF(message) or [])
    except (SystemError, UnicodeError):
        return None


def _write(producer: Any, ledger: str, found: Iterable[tuple[Rejected, Original]]) -> None:
    """Write the records and what the ledger says of them in one transaction. Raises KafkaException and TooLarge."""
    from confluent_kafka import KafkaException

    producer.begin_transaction()
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    def produce(topic: str, value: Any, key: Any, **more: Any) -> None:
        while not failures:
            try:
                producer.produce(topic, value, key, on_delivery=delivered, **more)
                return
            except BufferError:
                producer.poll(0.1)

    try:
        for each, (key, value, kept) in found:
            headers = [pair for pair in kept or [] if pair[0] != HEADER]
            headers.append((HEADER, each.event_id.encode()))
            produce(each.topic, value, key, partition=each.partition, headers=headers)
            told = {
                "event_id": each.event_id,
                "reason": each.reason,
                "replayed_ms": time.time_ns() // 1_000_000,
            }
            produce(ledger, json.dumps(told), each.key)
        end_s = time.monotonic() + TIMEOUT_S
        if producer.flush(TIMEOUT_S) and not failures:
            raise PipelineFailed("the broker does not take the records")
        if failures:
            # Others fail with it, for other reasons.
            raise KafkaException(next((each for each in failures if each.name() in TOO_LARGE), failures[0]))
        patiently(partial(producer.commit_transaction, TIMEOUT_S), end_s)
    except BaseException as failure:
        if not (isinstance(failure, KafkaException) and failure.args[0].fatal()):
            abort(producer)
        if isinstance(failure, KafkaException) and failure.args[0].name() in TOO_LARGE:
            raise TooLarge from None
        raise
