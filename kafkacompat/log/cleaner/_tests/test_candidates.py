"""The search for the dirtiest log: in steps of bounded size, and only among logs that have not changed since they were
examined."""

from __future__ import annotations

import dataclasses

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log._tests.test_large_logs import LoopDisk
from kafkacompat.log.cleaner import candidates
from kafkacompat.log.cleaner import log_cleaner as module
from kafkacompat.log.cleaner._tests.cleaning import COMPACT, NOW_MS, append, carry_out, cleaner_of
from kafkacompat.log.cleaner.log_cleaner import LogCleaner
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import IndexesRebuilt
from kafkacompat.wire.errors import ErrorCode

COUNT = 50


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> tuple[LogCleaner, list[UnifiedLog], list[UnifiedLog]]:
    """A cleaner, its logs (a later one is dirtier), and the logs it has examined."""
    disk = MemoryDisk()
    logs: list[UnifiedLog] = []
    for number in range(COUNT):
        log = open_log(disk, COMPACT, directory=f"/logs/t-{number}")
        log.topic_partition = TopicPartition("t", number)
        for _ in range(40):
            append(log, [(b"key", b"v" * 100)])
        logs.append(log)
        if number < COUNT - 1:
            log.cleaned_to = log.segments[-2].base_offset
    seen: list[UnifiedLog] = []
    real = candidates.candidate

    def counted(log: UnifiedLog, now_ms: int) -> candidates.LogToClean | None:
        seen.append(log)
        return real(log, now_ms)

    monkeypatch.setattr(candidates, "candidate", counted)
    monkeypatch.setattr(candidates, "SEGMENTS_A_STEP", 3 * (len(logs[0].segments) + 1))
    cleaner = cleaner_of(disk, logs[0])
    cleaner._manager.logs = {log.topic_partition: log for log in logs}
    return cleaner, logs, seen


def test_a_step_looks_at_few_logs(many: tuple[LogCleaner, list[UnifiedLog], list[UnifiedLog]]) -> None:
    cleaner, logs, seen = many
    steps = []
    while True:
        before = len(seen)
        cleaning = cleaner.begin(NOW_MS)
        steps.append(len(seen) - before)
        if not cleaner.is_looking:
            break
        assert cleaning is None
    assert sum(steps) == COUNT
    assert max(steps) == 3
    assert cleaning is not None
    assert cleaning.log is logs[-1]
    carry_out(cleaning, NOW_MS)
    assert logs[-1].cleaned_to == logs[-1].segments[-1].base_offset


@pytest.mark.parametrize("event", ["gone", "another", "clean", "truncated", "other policy"])
def test_what_has_changed_since_it_was_looked_at_is_not_cleaned_as_it_was(
    many: tuple[LogCleaner, list[UnifiedLog], list[UnifiedLog]], event: str
) -> None:
    cleaner, logs, _ = many
    dirtiest = logs[-1]
    logs[-1], logs[0] = logs[0], dirtiest
    cleaner._manager.logs = {log.topic_partition: log for log in logs}
    assert cleaner.begin(NOW_MS) is None
    name = dirtiest.topic_partition
    if event == "gone":
        del cleaner._manager.logs[name]  # type: ignore[attr-defined]
    elif event == "another":
        cleaner._manager.logs[name] = logs[1]  # type: ignore[index]
    elif event == "other policy":
        dirtiest.config = dataclasses.replace(COMPACT, cleanup_policy=("delete",))
    elif event == "clean":
        dirtiest.cleaned_to = dirtiest.segments[-1].base_offset
    else:
        dirtiest.truncate_to(dirtiest.segments[1].base_offset + 1, NOW_MS)
    cleaning = None
    while cleaner.is_looking:
        cleaning = cleaner.begin(NOW_MS)
    if event == "truncated":
        assert cleaning is not None
        assert cleaning.log is dirtiest
        carry_out(cleaning, NOW_MS)
        assert dirtiest.cleaned_to == dirtiest.segments[-1].base_offset
    else:
        assert cleaning is None


def test_a_log_whose_indexes_are_rebuilt_when_it_is_chosen_is_cleaned_later(
    many: tuple[LogCleaner, list[UnifiedLog], list[UnifiedLog]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaner, logs, _ = many

    def rebuilt(log: UnifiedLog, now_ms: int) -> None:
        raise IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patch:
        patch.setattr(module, "candidate", rebuilt)
        assert cleaner.begin(NOW_MS) is None
        while cleaner.is_looking:
            assert cleaner.begin(NOW_MS) is None
    assert cleaner.uncleanable == {}
    cleaning = None
    while cleaning is None:
        cleaning = cleaner.begin(NOW_MS)
    assert cleaning.log is logs[-1]


@pytest.mark.parametrize("lag", ["min_compaction_lag_ms", "max_compaction_lag_ms"])
def test_a_step_reads_the_ages_of_few_segments_and_keeps_no_file_open(
    lag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "AGES_A_STEP", 4)
    disk = LoopDisk()
    settings = dataclasses.replace(COMPACT, **{lag: 1000})  # type: ignore[arg-type]
    log = open_log(disk, settings)
    while len(log.segments) < 15:
        append(log, [(b"key", b"v" * 100)])
    log.close()
    log = open_log(disk, settings, clean=True, high_watermark=log.log_end_offset)
    search = candidates.Search([log], NOW_MS + 10_000, lambda log: True, lambda log, error: None)
    steps = []
    done = False
    while not done:
        disk.opened.clear()
        done = search.step()
        steps.append(sum(disk.opened.values()))
    assert len(steps) == 4
    assert max(steps) <= 2 * candidates.AGES_A_STEP
    assert search.best is not None
    assert search.best.segments == len(log.segments) - 1
    assert all(segment._file is None for segment in log.segments[:-1])
    disk.opened.clear()
    assert candidates.Search([log], NOW_MS + 10_000, lambda log: True, lambda log, error: None).step()
    assert not disk.opened
