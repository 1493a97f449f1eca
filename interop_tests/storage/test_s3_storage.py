"""The remote store in a bucket, against moto's server of S3."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from interop_tests.harness.ports import free_port
from interop_tests.harness.programs import moto_server
from interop_tests.harness.waiting import wait_without_error
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
