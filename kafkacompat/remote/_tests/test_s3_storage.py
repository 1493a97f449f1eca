"""The remote store in a bucket, against a server that refuses, hangs, cuts bodies short and lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.remote._tests.kit import CONTENTS, RECORDS, fetched, fetched_index, files, segment
from kafkacompat.remote._tests.s3_server import BUCKET, CUT, HANG, KEY, NO_RANGE, SECRET, S3Server
from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
from kafkacompat.remote.ports import (
    IndexType,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.s3_storage import PART_BYTES, S3Settings, S3Storage

FOLDER = "kafka/of-mine/cluster-1/orders.v1-3-AAECAwQFBgcICQoLDA0ODw"
NAME = f"{FOLDER}/00000000000000000100-q6urq6urq6urq6urq6urAQ"
LARGE = 2 * PART_BYTES + 12_345
SHORT_MS = 300
"""How long a server that never answers is waited for."""


class Room:
    """A store, a server, and a log directory on the memory disk."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.disk = MemoryDisk()
        self.disk.make_directory("/log")
        self.store = self.open()

    def open(
        self, *, secret: str = SECRET, key: str = KEY, bucket: str = BUCKET, timeout_ms: int = 30_000
    ) -> S3Storage:
        settings = S3Settings(
            bucket, self.server.url, "eu-west-1", "/kafka/of-mine/", key, secret, timeout_ms
        )
        return S3Storage(self.disk, settings, "cluster-1")

    def copy(self, store: S3Storage | None = None) -> None:
        (store or self.store).copy_log_segment_data(segment(), files(self.disk, "/log"))


@pytest.fixture
def room() -> Iterator[Room]:
    server = S3Server()
    yield Room(server)
    server.close()


def calls(store: S3Storage, metadata: RemoteLogSegmentMetadata) -> dict[str, Callable[[], object]]:
    return {
        "segment": lambda: fetched(store, metadata),
        "index": lambda: fetched_index(store, metadata, IndexType.OFFSET),
        "delete": lambda: store.delete_log_segment_data(metadata),
    }


def test_objects_are_named_by_cluster_and_topic_id(room: Room) -> None:
    room.copy()
    assert room.server.objects == {
        f"{NAME}.log": RECORDS,
        f"{NAME}.index": CONTENTS[IndexType.OFFSET],
        f"{NAME}.timeindex": CONTENTS[IndexType.TIMESTAMP],
        f"{NAME}.txnindex": CONTENTS[IndexType.TRANSACTION],
        f"{NAME}.snapshot": CONTENTS[IndexType.PRODUCER_SNAPSHOT],
        f"{NAME}.leader_epoch_checkpoint": CONTENTS[IndexType.LEADER_EPOCH],
    }
    assert room.server.requests[-1] == ("PUT", f"{NAME}.log")  # the records come last
    assert fetched(room.store, segment()) == RECORDS
    assert {each: fetched_index(room.store, segment(), each) for each in IndexType} == CONTENTS


def test_positions_are_inclusive_and_end_with_the_segment(room: Room) -> None:
    room.copy()
    assert fetched(room.store, segment(), 10, 19) == RECORDS[10:20]
    assert fetched(room.store, segment(), 4000) == RECORDS[4000:]
    assert fetched(room.store, segment(), 4000, 1 << 30) == RECORDS[4000:]
    assert fetched(room.store, segment(), len(RECORDS)) == b""


def test_a_stream_is_read_in_pieces(room: Room) -> None:
    room.copy()
    stream = room.store.fetch_log_segment(segment(), 0)
    assert stream.read(5) + stream.read(7) + stream.read(0) == RECORDS[:12]
    assert stream.read() == RECORDS[12:]
    assert stream.read() == stream.read(3) == b""
    stream.close()
    stream.close()


def test_a_large_segment_is_sent_in_parts(room: Room) -> None:
    records = bytes(range(256)) * (LARGE // 256 + 1)
    room.store.copy_log_segment_data(segment(), files(room.disk, "/log", records=records))
    assert room.server.objects[f"{NAME}.log"] == records
    assert sum(name == f"{NAME}.log" and method == "PUT" for method, name in room.server.requests) == 3


def test_a_part_that_fails_leaves_no_object(room: Room) -> None:
    sent = 0

    def refuse_second_part(method: str, name: str) -> int | None:
        nonlocal sent
        sent += method == "PUT" and name.endswith(".log")
        return 400 if sent == 2 else None

    room.server.fault = refuse_second_part
    data = files(room.disk, "/log", records=b"r" * LARGE)
    with pytest.raises(RemoteStorageException):
        room.store.copy_log_segment_data(segment(), data)
    assert f"{NAME}.log" not in room.server.objects
    room.server.fault = lambda method, name: None
    room.store.copy_log_segment_data(segment(), data)
    assert room.server.objects[f"{NAME}.log"] == b"r" * LARGE


def test_a_copy_is_deleted_with_all_that_belongs_to_it(room: Room) -> None:
    room.copy()
    room.server.objects[f"{FOLDER}/other"] = b"x"
    room.store.delete_log_segment_data(segment())
    room.store.delete_log_segment_data(segment())
    assert room.server.objects == {f"{FOLDER}/other": b"x"}


def test_an_object_that_is_not_deleted_is_no_success(room: Room) -> None:
    room.copy()
    room.server.kept = {f"{NAME}.index"}
    with pytest.raises(RemoteStorageException):
        room.store.delete_log_segment_data(segment())
    room.server.kept.clear()
    room.store.delete_log_segment_data(segment())
    assert not room.server.objects


@pytest.mark.parametrize("what", ["segment", "index"])
def test_what_is_not_there_is_not_found(room: Room, what: str) -> None:
    with pytest.raises(RemoteResourceNotFoundException):
        calls(room.store, segment())[what]()


@pytest.mark.parametrize("what", ["segment", "index", "delete"])
def test_a_bucket_that_is_not_there_is_no_missing_object(room: Room, what: str) -> None:
    with pytest.raises(RemoteStorageException, match="no such bucket") as raised:
        calls(room.open(bucket="no-such-bucket"), segment())[what]()
    assert type(raised.value) is RemoteStorageException


@pytest.mark.parametrize("what", ["segment", "index", "delete"])
@pytest.mark.parametrize(
    ("status", "passes"), [(503, True), (500, True), (429, True), (403, False), (400, False)]
)
def test_an_answer_says_whether_it_may_pass(room: Room, what: str, status: int, passes: bool) -> None:
    room.copy()
    room.server.fault = lambda method, name: status
    with pytest.raises(RemoteStorageException) as raised:
        calls(room.store, segment())[what]()
    assert isinstance(raised.value, RetriableRemoteStorageException) == passes
    assert not isinstance(raised.value, RemoteResourceNotFoundException)


def test_what_passes_soon_is_asked_for_again(room: Room) -> None:
    room.copy()
    left = [503, 500]
    room.server.fault = lambda method, name: left.pop() if left else None
    assert fetched(room.store, segment()) == RECORDS


def test_wrong_credentials_are_told_without_the_secret(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    store = room.open(key="WRONG", secret="another-secret")
    for call in (lambda: room.copy(store), *calls(store, segment()).values()):
        with pytest.raises(RemoteStorageException) as raised:
            call()
        assert type(raised.value) is RemoteStorageException
        assert "another-secret" not in f"{raised.value!r} {raised.value}"
        assert len(str(raised.value)) < 600
    assert "secret" not in caplog.text


@pytest.mark.parametrize("what", ["segment", "index", "delete"])
def test_a_server_that_never_answers_is_waited_for_in_vain(room: Room, what: str) -> None:
    room.copy()
    room.server.fault = lambda method, name: HANG
    with pytest.raises(RetriableRemoteStorageException):
        calls(room.open(timeout_ms=SHORT_MS), segment())[what]()


def test_a_server_that_is_not_there_may_come_back(room: Room) -> None:
    room.copy()
    room.server.close()
    with pytest.raises(RetriableRemoteStorageException):
        fetched(room.open(timeout_ms=SHORT_MS), segment())


@pytest.mark.parametrize("what", ["segment", "index"])
def test_a_body_that_is_cut_short_is_no_whole_one(room: Room, what: str) -> None:
    room.copy()
    room.server.fault = lambda method, name: CUT
    with pytest.raises(RetriableRemoteStorageException):
        calls(room.open(timeout_ms=SHORT_MS), segment())[what]()


def test_a_segment_that_has_lost_its_end_is_refused(room: Room) -> None:
    room.copy()
    room.server.objects[f"{NAME}.log"] = RECORDS[:100]
    with pytest.raises(RemoteStorageException, match="has 100 bytes of 4096"):
        fetched(room.store, segment())
    with pytest.raises(RemoteStorageException):
        fetched(room.store, segment(), 200, 300)


def test_another_range_than_the_one_asked_for_is_refused(room: Room) -> None:
    room.copy()
    room.server.fault = lambda method, name: NO_RANGE
    with pytest.raises(RemoteStorageException):
        fetched(room.store, segment(), 10, 19)


def test_a_snapshot_that_is_in_no_file_is_stored(room: Room) -> None:
    data = replace(files(room.disk, "/log"), producer_snapshot_index=b"snapshot")
    room.store.copy_log_segment_data(segment(), data)
    assert fetched_index(room.store, segment(), IndexType.PRODUCER_SNAPSHOT) == b"snapshot"


def test_a_file_of_the_log_that_is_missing_is_no_fault_of_the_store(room: Room) -> None:
    data = files(room.disk, "/log")
    room.disk.remove(str(data.producer_snapshot_index))
    with pytest.raises(RemoteStorageException, match="cannot be read") as raised:
        room.store.copy_log_segment_data(segment(), data)
    assert type(raised.value) is RemoteStorageException


def test_a_file_that_becomes_shorter_while_it_is_sent_leaves_no_object(room: Room) -> None:
    data = files(room.disk, "/log", records=b"r" * LARGE)
    size_of = room.disk.file_size
    room.disk.file_size = lambda path: size_of(path) + (1 if path == data.log_segment else 0)  # type: ignore[method-assign]
    with pytest.raises(RemoteStorageException, match="has become shorter"):
        room.store.copy_log_segment_data(segment(), data)
    assert f"{NAME}.log" not in room.server.objects
