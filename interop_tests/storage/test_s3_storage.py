"""The remote store in a bucket, against moto's server of S3."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from interop_tests.conftest import MakeBroker
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.ports import free_port
from interop_tests.harness.programs import moto_server
from interop_tests.harness.waiting import wait_until, wait_without_error
from kafkacompat.log.disk import RealDisk
from kafkacompat.remote._tests.kit import CONTENTS, fetched, fetched_index, files, segment
from kafkacompat.remote.ports import IndexType, RemoteResourceNotFoundException, RemoteStorageException
from kafkacompat.remote.s3_storage import PART_BYTES, S3Settings, S3Storage

BUCKET = "tiered"
RECORDS = bytes(range(256)) * (3 * PART_BYTES // 256) + b"end"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with the bucket."""
    command, environment = moto_server()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [*command, "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        bucket = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        wait_without_error(lambda: urllib.request.urlopen(bucket).read(), "moto's server", (OSError,))
        yield url
    finally:
        process.kill()
        process.wait()


def store(url: str, bucket: str = BUCKET) -> S3Storage:
    settings = S3Settings.from_properties(
        {
            "bucket": bucket,
            "endpoint": url,
            "prefix": "kafka",
            "access.key.id": "k",
            "secret.access.key": "s",
        },
        "",
    )
    return S3Storage(RealDisk(), settings, "cluster-1")


def other_client(url: str) -> S3Store:
    return S3Store(
        BUCKET,
        endpoint=url,
        access_key_id="k",
        secret_access_key="s",
        region="us-east-1",
        client_options={"allow_http": True},
    )


def names(client: S3Store) -> list[str]:
    return sorted(each["path"] for each in client.list().collect())


def test_a_segment_is_copied_read_and_deleted(url: str, tmp_path: Path) -> None:
    client = other_client(url)
    copied = segment(size=len(RECORDS))
    opened = store(url)
    opened.copy_log_segment_data(copied, files(RealDisk(), str(tmp_path), records=RECORDS))
    folder = "kafka/cluster-1/orders.v1-3-AAECAwQFBgcICQoLDA0ODw"
    name = f"{folder}/00000000000000000100-q6urq6urq6urq6urq6urAQ"
    suffixes = (".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex", ".txnindex")
    assert names(client) == [name + suffix for suffix in suffixes]
    assert bytes(obstore.get(client, f"{name}.log").bytes()) == RECORDS
    assert fetched(opened, copied) == RECORDS
    assert fetched(opened, copied, PART_BYTES - 5, PART_BYTES + 5) == RECORDS[PART_BYTES - 5 : PART_BYTES + 6]
    assert {each: fetched_index(opened, copied, each) for each in IndexType} == CONTENTS
    opened.delete_log_segment_data(copied)
    opened.delete_log_segment_data(copied)
    assert names(client) == []
    with pytest.raises(RemoteResourceNotFoundException):
        fetched(opened, copied)


def test_a_bucket_that_is_not_there_is_told(url: str, tmp_path: Path) -> None:
    opened = store(url, "no-such-bucket")
    for call in (
        lambda: opened.copy_log_segment_data(segment(), files(RealDisk(), str(tmp_path))),
        lambda: fetched(opened, segment()),
        lambda: opened.delete_log_segment_data(segment()),
    ):
        with pytest.raises(RemoteStorageException) as raised:
            call()
        assert not isinstance(raised.value, RemoteResourceNotFoundException)


def test_a_topic_is_read_from_the_bucket(
    url: str, make_broker: MakeBroker, tools: KafkaTools, unique: Callable[[str], str]
) -> None:
    topic, count = unique("tiered"), 3000
    broker = make_broker(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "kafkacompat.remote.s3_storage.S3Storage",
            "rsm.config.s3.bucket": BUCKET,
            "rsm.config.s3.endpoint": url,
            "rsm.config.s3.prefix": topic,
            "rsm.config.s3.access.key.id": "k",
            "rsm.config.s3.secret.access.key": "never-in-a-log",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
            "remote.log.manager.task.interval.ms": "300",
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "300",
        }
    )
    where = ("--bootstrap-server", broker.bootstrap)
    tools.run(
        "TopicCommand", *where, "--create", "--topic", topic, "--partitions", "1",
        "--config", "remote.storage.enable=true", "--config", f"segment.bytes={1 << 20}",
        "--config", "local.retention.bytes=1", "--config", "file.delete.delay.ms=0",
    )  # fmt: skip
    tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size", "1000",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all",
    )  # fmt: skip

    def first_local_offset() -> int:
        return min(int(path.stem) for path in (broker.data_dir / f"{topic}-0").glob("*.log"))

    wait_until(lambda: first_local_offset() > count // 2, "closed segments are in the bucket only")
    read = tools.run(
        "consumer.ConsoleConsumer", *where, "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", str(count), "--timeout-ms", "30000",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false",
    )  # fmt: skip
    lines = [line.split()[0] for line in read.out.splitlines() if line.startswith("Offset:")]
    assert lines == [f"Offset:{offset}" for offset in range(count)]
    broker.stop()
    assert "never-in-a-log" not in broker.log_path.read_text()
    found = [name for name in names(other_client(url)) if name.startswith(f"{topic}/")]
    assert sum(name.endswith(".log") for name in found) >= 2
