"""The remote store in a folder, on a disk that loses everything that was not synced."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.disk import RealDisk
from kafkacompat.remote._tests.kit import CONTENTS, PARTITION, RECORDS, fetched, fetched_index, files, segment
from kafkacompat.remote.local_tiered_storage import LocalTieredStorage
from kafkacompat.remote.metadata import TopicIdPartition
from kafkacompat.remote.ports import (
    IndexType,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)

FOLDER = "/tier/kafka-tiered-storage/orders.v1-3-AAECAwQFBgcICQoLDA0ODw"
NAME = "00000000000000000100-q6urq6urq6urq6urq6urAQ"


class Room:
    """A store, and a log directory, on one disk."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_directory("/tier")
        self.store = LocalTieredStorage(self.disk, "/tier")

    def copy(self, number: int = 1, **how: bool) -> None:
        self.store.copy_log_segment_data(segment(number), files(self.disk, "/log", **how))

    def lose_power(self) -> None:
        self.disk = self.disk.lose_power()
        self.store = LocalTieredStorage(self.disk, "/tier")


def test_files_have_the_names_and_contents_of_local_tiered_storage() -> None:
    room = Room()
    room.copy()
    assert room.disk.list_directory(FOLDER) == [
        f"{NAME}{suffix}"
        for suffix in (".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex", ".txnindex")
    ]
    assert fetched(room.store, segment()) == RECORDS
    assert {each: fetched_index(room.store, segment(), each) for each in IndexType} == CONTENTS
    assert room.disk.list_directory("/tier") == ["kafka-tiered-storage", "kafka-tiered-storage.tmp"]
    assert room.disk.list_directory("/tier/kafka-tiered-storage.tmp") == []


def test_what_is_copied_outlives_a_power_loss() -> None:
    room = Room()
    room.copy()
    room.lose_power()
    assert fetched(room.store, segment()) == RECORDS
    assert {each: fetched_index(room.store, segment(), each) for each in IndexType} == CONTENTS


def test_positions_are_inclusive_and_end_with_the_file() -> None:
    room = Room()
    room.copy()
    assert fetched(room.store, segment(), 10, 19) == RECORDS[10:20]
    assert fetched(room.store, segment(), 4000) == RECORDS[4000:]
    assert fetched(room.store, segment(), 4000, 1 << 30) == RECORDS[4000:]
    assert fetched(room.store, segment(), len(RECORDS)) == b""
    assert fetched(room.store, segment(), len(RECORDS) + 5, len(RECORDS) + 9) == b""


def test_a_stream_is_read_in_pieces() -> None:
    room = Room()
    room.copy()
    stream = room.store.fetch_log_segment(segment(), 0)
    assert stream.read(5) + stream.read(7) + stream.read(0) == RECORDS[:12]
    room.store.delete_log_segment_data(segment())
    assert stream.read() == RECORDS[12:]  # the file is kept while it is read
    assert stream.read() == stream.read(3) == b""
    stream.close()
    stream.close()


def test_a_segment_without_aborted_transactions_has_no_such_index() -> None:
    room = Room()
    room.copy(has_aborted=False)
    with pytest.raises(RemoteResourceNotFoundException):
        room.store.fetch_index(segment(), IndexType.TRANSACTION)
    assert fetched(room.store, segment()) == RECORDS


def test_what_is_not_there_is_not_found() -> None:
    room = Room()
    with pytest.raises(RemoteResourceNotFoundException):
        room.store.fetch_log_segment(segment(), 0)
    with pytest.raises(RemoteResourceNotFoundException):
        room.store.fetch_index(segment(), IndexType.OFFSET)
    room.store.delete_log_segment_data(segment())


def test_a_copy_is_deleted_with_all_that_belongs_to_it_and_no_other() -> None:
    room = Room()
    room.copy(1)
    room.copy(2)
    room.store.delete_log_segment_data(segment(1))
    room.store.delete_log_segment_data(segment(1))
    assert fetched(room.store, segment(2)) == RECORDS
    assert len(room.disk.list_directory(FOLDER)) == 6
    room.lose_power()
    assert len(room.disk.list_directory(FOLDER)) == 6


def test_a_repeated_copy_replaces_the_first() -> None:
    room = Room()
    room.store.copy_log_segment_data(segment(), files(room.disk, "/log", records=b"x" * 9999))
    room.copy()
    assert fetched(room.store, segment()) == RECORDS
    assert len(room.disk.list_directory(FOLDER)) == 6


def test_partitions_of_topics_that_were_made_anew_are_kept_apart() -> None:
    room = Room()
    room.copy()
    other = segment(1, partition=TopicIdPartition(bytes(16), PARTITION.topic, PARTITION.partition))
    with pytest.raises(RemoteResourceNotFoundException):
        room.store.fetch_log_segment(other, 0)


@pytest.mark.parametrize("failing", range(40))
def test_a_copy_that_fails_anywhere_can_be_repeated_or_deleted(failing: int) -> None:
    """Each change of the disk in turn is refused. What then has a final name is whole."""
    room = Room()
    data = files(room.disk, "/log")
    changes = 0

    def refuse(operation: str, path: str) -> OSError | None:
        nonlocal changes
        if not path.startswith("/tier") or operation in ("read", "file_size"):
            return None
        changes += 1
        return OSError(errno.ENOSPC, "full", path) if changes == failing + 1 else None

    room.disk.refuse = refuse
    try:
        room.store.copy_log_segment_data(segment(), data)
    except RetriableRemoteStorageException:
        pass
    else:
        assert changes <= failing, "a refusal went unnoticed"
    room.disk.refuse = None
    if room.disk.exists(f"{FOLDER}/{NAME}.log"):
        assert fetched(room.store, segment()) == RECORDS
    room.store.copy_log_segment_data(segment(), data)
    assert fetched(room.store, segment()) == RECORDS
    room.store.delete_log_segment_data(segment())
    assert room.disk.list_directory(FOLDER) == []
    assert room.disk.list_directory("/tier/kafka-tiered-storage.tmp") == []


@pytest.mark.parametrize("suffix", [".index", ".snapshot", ".log"])
def test_a_copy_for_which_the_folder_has_no_room_gives_its_room_back(suffix: str) -> None:
    """The next attempt has another id, and would find the room taken."""
    room = Room()
    room.copy(2)
    data = files(room.disk, "/log")
    before = room.disk.list_directory(FOLDER)

    def refuse(operation: str, path: str) -> OSError | None:
        is_written = operation == "sync" and path.startswith("/tier") and path.endswith(suffix)
        return OSError(errno.ENOSPC, "full", path) if is_written else None

    room.disk.refuse = refuse
    with pytest.raises(RetriableRemoteStorageException, match=r"cannot be stored.*full"):
        room.store.copy_log_segment_data(segment(), data)
    assert room.disk.list_directory(FOLDER) == before
    assert room.disk.list_directory("/tier/kafka-tiered-storage.tmp") == []


def test_a_snapshot_that_is_in_no_file_is_stored() -> None:
    room = Room()
    data = replace(files(room.disk, "/log"), producer_snapshot_index=b"snapshot")
    room.store.copy_log_segment_data(segment(), data)
    assert fetched_index(room.store, segment(), IndexType.PRODUCER_SNAPSHOT) == b"snapshot"


def test_a_file_of_the_log_that_is_missing_is_no_fault_of_the_store() -> None:
    room = Room()
    data = files(room.disk, "/log")
    room.disk.remove(str(data.producer_snapshot_index))
    with pytest.raises(RemoteStorageException, match="is missing") as raised:
        room.store.copy_log_segment_data(segment(), data)
    assert type(raised.value) is RemoteStorageException


def test_a_file_of_the_store_that_has_lost_its_end_is_refused() -> None:
    room = Room()
    room.copy()
    room.disk.open(f"{FOLDER}/{NAME}.log").truncate(100)
    with pytest.raises(RemoteStorageException, match="has 100 bytes of 4096"):
        room.store.fetch_log_segment(segment(), 0, 50)


def test_a_file_that_loses_its_end_while_it_is_read_is_refused() -> None:
    room = Room()
    room.copy()
    stream = room.store.fetch_log_segment(segment(), 0)
    room.disk.open(f"{FOLDER}/{NAME}.log").truncate(100)
    with pytest.raises(RemoteStorageException, match="has become shorter"):
        stream.read()


@pytest.mark.parametrize(("number", "passes"), [(errno.EIO, True), (errno.EACCES, False)])
def test_an_error_says_whether_it_may_pass(number: int, passes: bool) -> None:
    room = Room()
    room.copy()
    room.disk.refuse = lambda operation, path: (
        OSError(number, "no", path) if path.startswith(FOLDER) else None
    )
    for call in (
        lambda: room.store.delete_log_segment_data(segment()),
        lambda: room.store.fetch_log_segment(segment(), 0).read(),
    ):
        with pytest.raises(RemoteStorageException) as raised:
            call()
        assert isinstance(raised.value, RetriableRemoteStorageException) == passes


def test_the_store_works_on_a_real_disk(tmp_path: Path) -> None:
    folder = str(tmp_path)
    store = LocalTieredStorage(RealDisk(), f"{folder}/made/anew")
    store.copy_log_segment_data(segment(), files(RealDisk(), f"{folder}/log"))
    assert fetched(store, segment(), 5, 9) == RECORDS[5:10]
    store.delete_log_segment_data(segment())
    with pytest.raises(RemoteResourceNotFoundException):
        fetched(store, segment())
