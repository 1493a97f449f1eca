"""Future logs on a real disk: created, found again, promoted, discarded, and lost with their directory. KIP-113."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import NOW_MS, TOPIC_ID, all_values, batch_of
from kafkacompat.log._tests.test_manager import CONFIG, DIRECTORY_IDS, carry_out, manager_on
from kafkacompat.log.directory import (
    FUTURE_SUFFIX,
    can_be_marked,
    marked_name,
    parse_future_directory,
)
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

NAME = TopicPartition("t", 3)


def a_move(tmp_path: Path, copied: int = 10) -> tuple[LogManager, UnifiedLog, UnifiedLog]:
    """A log of ten batches in directory a, and a future log in b with the first `copied` of them."""
    manager = manager_on(tmp_path)
    current = manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[0])
    current.flush()
    for number in range(10):
        current.append_as_leader(batch_of([b"%d" % number]), 4, NOW_MS)
    current.set_high_watermark(9)
    future = manager.begin_future(NAME, manager.directories[1])
    future.flush()
    for _ in range(copied):
        read = current.read(future.log_end_offset, 1, 10, True).records
        assert not isinstance(read, bytes)
        future.append_as_follower(read.read(), 4)
    return manager, current, future


def test_names_of_future_directories() -> None:
    assert parse_future_directory(marked_name(NAME, FUTURE_SUFFIX, "0" * 32)) == NAME
    assert parse_future_directory("a.b-1.0123-future") == TopicPartition("a.b", 1)
    for name in ("t-3-future", "t-3", "t-3.0123-delete", "t.0123-future", "t-3.-future"):
        assert parse_future_directory(name) is None
    assert can_be_marked(TopicPartition("x" * 213, 0))
    assert not can_be_marked(TopicPartition("x" * 214, 0))


def test_a_future_log_takes_the_place_of_the_current_one(tmp_path: Path) -> None:
    manager, current, future = a_move(tmp_path)
    values = all_values(current)
    assert [set(status.futures) for status in manager.log_dirs()] == [set(), {NAME}]
    assert manager.promote_future(NAME) is future is manager.get(NAME)
    assert all_values(future) == values
    assert future.high_watermark == 9
    assert future.directory == str(tmp_path / "b" / "t-3")
    future.flush()
    carry_out(manager.retire_predecessor(future))
    assert next(entry for entry in os.listdir(tmp_path / "a") if entry.startswith("t-3")).endswith("-delete")
    # The log continues under its new name: new segment, flush, clean stop, delayed deletions.
    future.append_as_leader(batch_of([b"more"]), 5, NOW_MS)
    future.roll(11, NOW_MS)
    future.flush()
    assert (tmp_path / "b" / "replication-offset-checkpoint").read_text() == "0\n1\nt 3 9\n"
    assert (tmp_path / "a" / "replication-offset-checkpoint").read_text() == "0\n0\n"
    manager.shut_down(1)
    again = manager_on(tmp_path)
    assert all_values(again.logs[NAME]) == [*values, (10, b"more")]
    assert again.logs[NAME].epoch_entries == [(4, 0), (5, 10)]
    assert again.futures.logs == {}
    assert not [entry for entry in os.listdir(tmp_path / "a") if entry.startswith("t-3")]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_the_future_log_again(tmp_path: Path, clean: bool) -> None:
    manager, _, _ = a_move(tmp_path, copied=6)
    if clean:
        manager.shut_down(1)
    again = manager_on(tmp_path)
    found = again.futures.logs[NAME]
    assert (found.log_end_offset, found.topic_id) == (6, TOPIC_ID)
    assert again.futures.home(NAME) is again.directories[1]
    assert again.logs[NAME].log_end_offset == 10


def test_a_swap_that_cannot_be_made_leaves_the_current_log(tmp_path: Path) -> None:
    manager, current, future = a_move(tmp_path)
    os.rename(future.directory, tmp_path / "gone")
    with pytest.raises(LogRefused):
        manager.promote_future(NAME)
    assert manager.get(NAME) is current
    assert [each.online for each in manager.directories] == [True, False]
    assert os.path.exists(current.directory)
    current.append_as_leader(batch_of([b"on"]), 4, NOW_MS)
    assert len(all_values(current)) == 11


def test_a_swap_from_a_directory_that_is_gone_blames_that(tmp_path: Path) -> None:
    manager, _, future = a_move(tmp_path)
    os.rename(tmp_path / "a", tmp_path / "gone")
    assert manager.promote_future(NAME) is future
    future.flush()
    assert manager.retire_predecessor(future) is None
    assert [each.online for each in manager.directories] == [False, True]
    assert manager.get(NAME) is future
    assert not manager.predecessors.is_before(future)


def test_a_future_log_nobody_knows_is_a_stray(tmp_path: Path) -> None:
    manager, _, _ = a_move(tmp_path)
    manager.futures.set_aside(NAME)
    assert manager.futures.logs == {}
    assert [entry for entry in os.listdir(tmp_path / "b") if entry.endswith("-stray")]


def test_a_crash_between_the_renames_leaves_the_future_log_alone(tmp_path: Path) -> None:
    _, current, _ = a_move(tmp_path)
    os.rename(current.directory, tmp_path / "a" / "t-3.0123-delete")
    again = manager_on(tmp_path)
    assert again.get(NAME) is None
    again.promote_future(NAME)
    log = again.get(NAME)
    assert log is not None
    assert log.log_end_offset == 10


def test_a_discarded_or_deleted_partition_takes_its_future_log_along(tmp_path: Path) -> None:
    manager, _, _ = a_move(tmp_path)
    manager.discard_future(NAME)
    assert manager.futures.logs == {}
    manager.begin_future(NAME, manager.directories[1])
    manager.delete_later(NAME)
    assert manager.futures.logs == {}
    assert len([entry for entry in os.listdir(tmp_path / "b") if entry.endswith("-delete")]) == 2
    assert not [entry for entry in os.listdir(tmp_path / "b") if entry.endswith("-future")]


def test_a_failed_directory_takes_its_future_logs_along_and_is_told_of_once(tmp_path: Path) -> None:
    manager, current, _ = a_move(tmp_path)
    told: list[bytes] = []
    lost: list[TopicPartition] = []
    manager._on_directory_failed = lambda directory: told.append(directory.directory_id)
    manager.when_offline(lost.extend)
    manager.future_failed(NAME, OSError(5, "broken"))
    manager.fail_directory(manager.directories[1], OSError(5, "broken"))
    assert told == [DIRECTORY_IDS[1]]
    assert manager.futures.logs == {}
    assert lost == []
    assert manager.get(NAME) is current
    with pytest.raises(LogRefused) as caught:
        manager.begin_future(NAME, manager.directories[1])
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("is_prepared", [True, False])
def test_where_the_copy_of_a_lost_log_lies_no_other_is_made(tmp_path: Path, is_prepared: bool) -> None:
    """Two logs of one partition in a directory would make the directory fail when the copy is promoted."""
    manager, _, future = a_move(tmp_path)
    manager.fail_directory(manager.directories[0], OSError(5, "broken"))
    if is_prepared:
        prepared = manager.prepare(NAME, TOPIC_ID, DIRECTORY_IDS[1])
        prepared.run()
        assert not manager.place(prepared, CONFIG)
    log = manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[1])
    assert log is future is manager.get(NAME)
    assert log.log_end_offset == 10
    assert manager.futures.logs == {}
    assert log.directory == str(tmp_path / "b" / "t-3")
    assert [each.online for each in manager.directories] == [False, True]


def test_the_copy_of_another_topics_log_goes_where_one_is_made(tmp_path: Path) -> None:
    manager, _, future = a_move(tmp_path)
    manager.fail_directory(manager.directories[0], OSError(5, "broken"))
    log = manager.get_or_create(NAME, b"\5" * 16, CONFIG, DIRECTORY_IDS[1])
    assert log is not future
    assert (log.topic_id, log.log_end_offset) == (b"\5" * 16, 0)
    assert manager.futures.logs == {}


def test_where_new_logs_go(tmp_path: Path) -> None:
    """The order is: the directory requested by AlterReplicaLogDirs, the one in the metadata, the emptiest uncordoned
    one."""
    manager = manager_on(tmp_path)
    manager.preferred[NAME] = manager.directories[1]
    assert manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[0]).directory.startswith(
        str(tmp_path / "b")
    )
    assert manager.preferred == {}
    manager.cordoned = frozenset({DIRECTORY_IDS[0]})
    for number in (4, 5):
        log = manager.get_or_create(TopicPartition("t", number), TOPIC_ID, CONFIG)
        assert log.directory.startswith(str(tmp_path / "b"))
    named = manager.get_or_create(TopicPartition("t", 6), TOPIC_ID, CONFIG, DIRECTORY_IDS[0])
    assert named.directory.startswith(str(tmp_path / "a"))


def test_a_directory_that_nobody_writes_to_is_found_missing(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[1])
    upkeep = LogUpkeep(manager)
    carry_out(upkeep.checkpoint_high_watermarks())
    assert upkeep.checkpoint_high_watermarks() is None
    os.rename(tmp_path / "b", tmp_path / "gone")
    carry_out(upkeep.checkpoint_high_watermarks())
    assert [each.online for each in manager.directories] == [True, False]


def test_a_full_directory_fails_where_others_can_take_over(tmp_path: Path) -> None:
    manager = manager_on(tmp_path)
    log = manager.get_or_create(NAME, TOPIC_ID, CONFIG, DIRECTORY_IDS[0])
    manager._spares_full = lambda: False
    manager.partition_failed(NAME, OSError(24, "too many open files"))
    assert manager.get(NAME) is log
    manager.partition_failed(NAME, OSError(28, "full"))
    assert manager.get(NAME) is None
    assert not manager.directories[0].online
