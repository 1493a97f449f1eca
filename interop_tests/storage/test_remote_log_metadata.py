"""The topic of remote log metadata: Apache Kafka's TopicBasedRemoteLogMetadataManager reads what kafkacompat has written, and
writes what kafkacompat reads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from interop_tests.conftest import MakeBroker
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.kafka_jars import BEFORE
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.waiting import wait_until
from kafkacompat.ids import uuid_from_text, uuid_to_text
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.remote.metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from kafkacompat.remote.metadata_follower import partition_of
from kafkacompat.remote.records import decode_record

TOOL = Path(__file__).with_name("RemoteLogMetadataTool.java")
OTHER = TopicIdPartition(uuid_from_text("AAAAAAAAAAAAAAAAAAAABQ"), "other", 0)
"""Of which the tool records a segment."""
THEIRS = RemoteLogSegmentId(OTHER, uuid_from_text("AAAAAAAAAAAAAAAAAAAAAg"))
RECORDS, SIZE, SEGMENT = 3000, 1000, 1 << 20
PARTITIONS = 2
TIMEOUT_S = 90


def test_each_reads_what_the_other_has_recorded(
    make_broker: MakeBroker, tools: KafkaTools, unique: Callable[[str], str], tmp_path: Path
) -> None:
    store, topic = tmp_path / "store", unique("tiered")
    broker = make_broker(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            "rsm.config.dir": str(store),
            "rlmm.config.remote.log.metadata.topic.num.partitions": str(PARTITIONS),
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
            "remote.log.manager.task.interval.ms": "300",
        }
    )
    tools.run(
        "TopicCommand", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic, "--partitions", "1",
        "--config", "remote.storage.enable=true", "--config", f"segment.bytes={SEGMENT}",
    )  # fmt: skip
    tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS), "--record-size", str(SIZE),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all",
    )  # fmt: skip

    def recorded() -> list[RemoteLogMetadata]:
        return [
            decode_record(record.value)
            for path in sorted(broker.data_dir.glob("__remote_log_metadata-*/*.log"))
            for record in records_in(path.read_bytes())
            if record.value is not None
        ]

    def finished() -> int:
        updates = [each for each in recorded() if isinstance(each, RemoteLogSegmentMetadataUpdate)]
        return sum(each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for each in updates)

    wait_until(lambda: finished() >= 2, "two segments are copied")
    (folder,) = (store / "kafka-tiered-storage").iterdir()
    topic_id = folder.name[-22:]
    *java, classpath = kafka_java(version=BEFORE)
    command = [
        *java,
        classpath,
        str(TOOL),
        broker.bootstrap,
        str(PARTITIONS),
        topic,
        "0",
        topic_id,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    segments = [line for line in lines if line[0] == "SEGMENT"]
    ours = {
        uuid_to_text(each.remote_log_segment_id.id): each
        for each in recorded()
        if isinstance(each, RemoteLogSegmentMetadata) and each.topic_id_partition != OTHER
    }
    assert segments == [
        [
            "SEGMENT",
            name,
            str(each.start_offset),
            str(each.end_offset),
            str(each.segment_size_in_bytes),
            "COPY_SEGMENT_FINISHED",
        ]
        for name, each in ours.items()
    ]
    for name, each in ours.items():
        copied = folder / f"{each.start_offset:020}-{name}.log"
        assert copied.stat().st_size == each.segment_size_in_bytes
    highest = max(each.end_offset for each in ours.values())
    assert [line[1] for line in lines if line[0] == "HIGHEST"] == [str(highest), "10"]
    begun = RemoteLogSegmentMetadata(THEIRS, 1, 10, 5, 9, 6, 77, ((0, 1),))
    update = RemoteLogSegmentMetadataUpdate(
        THEIRS, 7, b"\1\2", RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 9
    )
    assert [each for each in recorded() if partition_of(each) == OTHER] == [begun, update]


def records_in(data: bytes) -> list[Record]:
    return [
        record
        for header in iterate_batches(data)
        for _, record in records_of(data[header.position : header.position + header.size], header)
    ]
