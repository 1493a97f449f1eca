"""`kafkacompat produce`: lines of standard input to a topic, acknowledged by all in-sync replicas before the command ends."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from kafkacompat.cli.client import Cluster, CommandFailed, add_bootstrap, check
from kafkacompat.cli.output import Progress, failing_clearly
from kafkacompat.cli.partitioner import partition_of_key
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.produce_response import ProduceResponse

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_BYTES = 256 * 1024
BATCH_RECORDS = 10_000
TIMEOUT_MS = 30_000
ACKS_ALL = -1
TOPIC_WAIT_TRIES = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("topic")
    parser.add_argument(
        "--key-separator", metavar="TEXT", help="what stands before it in a line is the record's key"
    )
    parser.add_argument("--compression", choices=CODECS, default="none")


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    with Cluster(arguments.bootstrap) as cluster:
        topic = wait_for_topic(cluster, arguments.topic)
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        progress = Progress(f"to {arguments.topic}")
        count = size = 0
        for turn, lines in enumerate(batches(sys.stdin.buffer)):
            now_ms = time.time_ns() // 1_000_000
            by_partition: dict[int, list[tuple[bytes | None, bytes]]] = {}
            for key, value in (split(line, arguments.key_separator) for line in lines):
                chosen = turn % len(leaders) if key is None else partition_of_key(key, len(leaders))
                by_partition.setdefault(chosen, []).append((key, value))
            for partition, pairs in by_partition.items():
                records = [
                    Record(number, now_ms, key, value, ()) for number, (key, value) in enumerate(pairs)
                ]
                batch = bytes(build_batch(records, compression=CODECS[arguments.compression]))
                send(cluster, leaders[partition], topic, partition, batch)
                count += len(pairs)
                size += sum(len(value) for _, value in pairs)
                progress.update(count, size)
        progress.finish(count, size)
        print(f"{count} records acknowledged", file=sys.stderr)
    return 0


def wait_for_topic(cluster: Cluster, name: str) -> MetadataResponseTopic:
    """The topic with a leader for every partition; it is made if the broker makes topics on demand."""
    for _ in range(TOPIC_WAIT_TRIES):
        (topic,) = cluster.metadata([name], create=True).topics
        if topic.error_code == ErrorCode.NONE and all(each.leader_id >= 0 for each in topic.partitions):
            return topic
        if topic.error_code not in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
        ):
            break
        time.sleep(0.1)
    check(topic.error_code, f"topic {name}")
    raise CommandFailed(f"topic {name} has partitions without a leader")


def send(cluster: Cluster, leader: int, topic: MetadataResponseTopic, partition: int, batch: bytes) -> None:
    data = TopicProduceData(
        name=topic.name or "",
        topic_id=topic.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[data])
    answer = cluster.node(leader).call(request, ProduceResponse, max_version=12)
    result = answer.responses[0].partition_responses[0]
    check(result.error_code, f"{topic.name}-{partition}", result.error_message)


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Lines without their ends, in lists of bounded length and size; a terminal's lines one by one."""
    held: list[bytes] = []
    size = 0
    interactive = sys.stdin.isatty()
    for line in lines:
        held.append(line.rstrip(b"\r\n"))
        size += len(line)
        if interactive or size >= BATCH_BYTES or len(held) >= BATCH_RECORDS:
            yield held
            held, size = [], 0
    if held:
        yield held


def split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    """(key, value); a line without the separator has no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)
