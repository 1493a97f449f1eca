"""The remote store in a folder: Apache Kafka's LocalTieredStorage reads and deletes what kafkacompat has written, and the other
way round."""

from __future__ import annotations

import subprocess
from pathlib import Path

from interop_tests.harness.kafka_jars import BEFORE, storage_test_jar
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.records import BatchPlan
from kafkacompat.ids import uuid_from_text, uuid_to_text
from kafkacompat.log.disk import RealDisk
from kafkacompat.remote.local_tiered_storage import LocalTieredStorage
from kafkacompat.remote.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from kafkacompat.remote.ports import IndexType, LogSegmentData

TOOL = Path(__file__).with_name("LocalTieredStorageTool.java")
PARTITION = TopicIdPartition(uuid_from_text("AbcdefghijklmnopqrstuQ"), "orders.v1", 3)
OURS, THEIRS = uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ"), uuid_from_text("AAAAAAAAAAAAAAAAAAAAAg")
TIMEOUT_S = 60


def test_each_reads_what_the_other_has_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    records = b"".join(BatchPlan(base_offset=100 + number).encode() for number in range(3))
    contents = {"SEGMENT": records, **{each.name: each.value.encode() for each in IndexType}}
    contents["TIMESTAMP"] = b""
    names = {name: log / ("log" if name == "SEGMENT" else name.lower()) for name in contents}
    for name, content in contents.items():
        names[name].write_bytes(content)
    store = LocalTieredStorage(RealDisk(), str(tmp_path / "tier"))

    def segment(segment_id: bytes) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            RemoteLogSegmentId(PARTITION, segment_id), 100, 199, 5, 1, 6, len(records), ((4, 100),)
        )

    store.copy_log_segment_data(
        segment(OURS),
        LogSegmentData(
            str(names["SEGMENT"]),
            str(names["OFFSET"]),
            str(names["TIMESTAMP"]),
            str(names["TRANSACTION"]),
            str(names["PRODUCER_SNAPSHOT"]),
            contents["LEADER_EPOCH"],
        ),
    )
    *java, classpath = kafka_java(version=BEFORE)
    command = [*java, f"{classpath}:{storage_test_jar()}", str(TOOL), str(tmp_path / "tier"), str(log)]
    command += [PARTITION.topic, str(PARTITION.partition)]
    command += map(uuid_to_text, (PARTITION.topic_id, OURS, THEIRS))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ") for line in done.stdout.splitlines() if line.split(" ")[0].isupper()]
    assert {line[0]: bytes.fromhex(line[1]) for line in lines if line[0] in contents} == contents
    assert ["RECORDS", uuid_to_text(OURS), "3"] in lines
    assert [line[1] for line in lines if line[0] == "PARTITION"] == [
        f"{uuid_to_text(PARTITION.topic_id)}:{PARTITION.topic}-{PARTITION.partition}"
    ]
    # The tool has deleted the first segment, and copied the same files as another one.
    assert store.fetch_log_segment(segment(THEIRS), 0).read() == records
    for each in IndexType:
        assert store.fetch_index(segment(THEIRS), each).read() == contents[each.name]
    folder = tmp_path / "tier/kafka-tiered-storage"
    found = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {name.split("-", 1)[1][:22] for name in found} == {uuid_to_text(THEIRS)}
    store.delete_log_segment_data(segment(THEIRS))
    assert not [path for path in folder.rglob("*") if path.is_file()]
