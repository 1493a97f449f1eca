"""The end of a run, after all faults: open transactions are ended, every topic is read, and the logs of all replicas
are compared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.cluster.workload import closing_consumer
from interop_tests.harness.waiting import wait_until
from interop_tests.histories import appends, offsets
from interop_tests.histories.clients import name_of
from interop_tests.histories.history import AT_THE_END, COMMITTED, UNCOMMITTED, Recorder

END_TIMEOUT_S = 60.0
COMMITS = "__consumer_offsets"
Topics = Sequence[tuple[str, int]]


def end_transactions(bootstrap: str) -> None:
    """Transactions that clients left open are aborted: the next owner of the transactional id fences them."""
    for name in appends.IDS:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        Producer(settings).init_transactions(END_TIMEOUT_S)


def read_everything(recorder: Recorder, bootstrap: str, topics: Topics) -> None:
    """Read with both isolation levels. AssertionError if committed reads end earlier, because a transaction hangs."""
    uncommitted = _read(recorder, bootstrap, topics, UNCOMMITTED)
    committed = _read(recorder, bootstrap, topics, COMMITTED)
    assert committed == uncommitted, f"read_committed ends at {committed}, the logs at {uncommitted}"


def _read(recorder: Recorder, bootstrap: str, topics: Topics, isolation: str) -> dict[str, int]:
    """The end of each partition from the last fetch."""
    with recorder.operation(f"{AT_THE_END}{isolation}", "final", isolation) as done:
        found: dict[str, list[list[int]]] = {}
        ends: dict[str, int] = {}
        settings = {"isolation.level": isolation, "enable.partition.eof": True}
        with closing_consumer(bootstrap, **settings) as consumer:
            places = [TopicPartition(topic, each, 0) for topic, count in topics for each in range(count)]
            consumer.assign(places)
            found = {name_of(each.topic, each.partition): [] for each in places}
            latest = time.monotonic()
            while len(ends) < len(places):
                latest = time.monotonic() if _take(consumer, found, ends) else latest
                assert time.monotonic() - latest < END_TIMEOUT_S, (
                    f"the end of {found.keys() - ends} is not reached"
                )
        done.ok(found)
    return ends


def _take(consumer: Consumer, found: dict[str, list[list[int]]], ends: dict[str, int]) -> bool:
    messages = consumer.consume(2000, 0.5)
    for message in messages:
        name = name_of(message.topic(), message.partition())
        if message.error() is None:
            found[name].append([message.offset(), int(message.value())])
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ends[name] = message.offset()
    return bool(messages)


def fetch_commits(recorder: Recorder, bootstrap: str) -> None:
    """The final committed offset of each partition."""
    with closing_consumer(bootstrap, **{"group.id": offsets.GROUP}) as consumer:
        for partition in range(offsets.PARTITIONS):
            asked = [offsets.GROUP, name_of(offsets.TOPIC, partition)]
            with recorder.operation(f"{AT_THE_END}fetcher", "fetch", asked) as done:
                place = TopicPartition(offsets.TOPIC, partition)
                (place,) = consumer.committed([place], END_TIMEOUT_S)
                done.ok([*asked, max(place.offset, -1)])


def read_commits(recorder: Recorder, bootstrap: str) -> None:
    """Every offset of the group in the log of commits, by partition and in order."""
    with recorder.operation(f"{AT_THE_END}commits", "committed") as done:
        found: dict[str, list[int]] = {name_of(offsets.TOPIC, each): [] for each in range(offsets.PARTITIONS)}
        with closing_consumer(bootstrap, **{"enable.partition.eof": True}) as consumer:
            numbers = consumer.list_topics(COMMITS, END_TIMEOUT_S).topics[COMMITS].partitions
            consumer.assign([TopicPartition(COMMITS, each, 0) for each in numbers])
            left = set(numbers)
            latest = time.monotonic()
            while left:
                assert time.monotonic() - latest < END_TIMEOUT_S, (
                    f"the end of {COMMITS} {left} is not reached"
                )
                for message in consumer.consume(2000, 0.5):
                    latest = time.monotonic()
                    if message.error() is None:
                        commit = parse_commit(message.key(), message.value())
                        if commit is not None and commit[0] == offsets.GROUP:
                            found[name_of(*commit[1:3])].append(commit[3])
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
        done.ok(found)


def parse_commit(key: bytes, value: bytes | None) -> tuple[str, str, int, int] | None:
    """(group, topic, partition, offset) of a record with Kafka's OffsetCommitKey. None for other records and
    tombstones."""
    if value is None or int.from_bytes(key[:2], "big") > 1:
        return None
    words, position = [], 2
    for _ in range(2):
        size = int.from_bytes(key[position : position + 2], "big")
        words.append(key[position + 2 : position + 2 + size].decode())
        position += 2 + size
    partition = int.from_bytes(key[position : position + 4], "big")
    return words[0], words[1], partition, int.from_bytes(value[2:10], "big", signed=True)


def compare_replicas(recorder: Recorder, cluster: Cluster, topics: Topics) -> None:
    """The digest of each partition's log by node. Waits until all are equal, and returns the differing ones if they
    stay different."""
    names = [name_of(topic, each) for topic, count in topics for each in range(count)]

    def digests() -> dict[str, dict[str, str]]:
        return {name: {str(node.node_id): _digest(node, name) for node in cluster.brokers} for name in names}

    with recorder.operation(f"{AT_THE_END}replicas", "replicas") as done:

        def are_alike() -> bool:
            found = digests()
            done.value = found
            return all(len(set(each.values())) == 1 for each in found.values())

        try:
            wait_until(are_alike, "the replicas are alike", 20.0, interval_s=0.5)
        finally:
            done.ok(done.value)


def _digest(node: ClusterNode, name: str) -> str:
    """A digest of the segments in order."""
    digest = hashlib.sha256()
    for folder in node.log_dirs:
        for path in sorted((folder / name).glob("*.log")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def unexpected(log_text: str) -> Iterator[str]:
    """The lines of a node's log that precede a stack trace."""
    before = ""
    for line in log_text.splitlines():
        is_stack = line.startswith("Traceback (most recent call last)")
        is_cause = before.startswith(("The above exception", "During handling"))
        if is_stack and not is_cause:
            yield before
        before = line or before
