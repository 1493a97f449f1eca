"""Records without content that the active controller writes at an interval."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller._tests.clusters import settings
from kafkacompat.controller._tests.harness import NO_OP_INTERVAL, Harness
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.periodic_task_control_manager import AFTER_FAILURE_MS, no_op_interval_ms
from kafkacompat.ids import NO_LEADER
from kafkacompat.wire.messages.no_op_record import NoOpRecord

DEFAULT_MS = 500


def idle(interval_ms: int = DEFAULT_MS) -> Harness:
    return Harness(properties={NO_OP_INTERVAL: str(interval_ms)}).start()


def pass_time(harness: Harness, ms: int) -> None:
    """Syncs take no time."""
    for _ in range(ms // 100):
        harness.world.advance(100)
        harness.workers.run_all()


def test_how_often_and_whether_at_all() -> None:
    assert no_op_interval_ms(settings()) == DEFAULT_MS
    assert no_op_interval_ms(settings(metadata_max_idle_interval_ms="7")) == 7
    assert no_op_interval_ms(settings(metadata_max_idle_interval_ms="0")) is None


def test_the_active_controller_writes_one_at_each_interval_and_its_image_has_nothing_new() -> None:
    harness = idle()
    before, end = harness.image, harness.log.log_end_offset
    pass_time(harness, 2_000)
    assert [type(each) for each in harness.messages(end)] == [NoOpRecord] * 4
    after = harness.image
    assert after.offset == before.offset + 4
    assert harness.driver.last_timestamp_ms == harness.world.now_ms()
    for part in ("topics", "topics_by_id", "brokers", "configs", "features", "acls"):
        assert getattr(after, part) is getattr(before, part), "subscribers look at what has changed"


def test_a_start_reads_them_and_has_the_same_image() -> None:
    first = idle()
    first.serve()
    pass_time(first, 1_000)
    second = first.after_kill().start()
    assert second.image.brokers == first.image.brokers
    assert second.image.offset >= first.image.offset


def test_no_op_records_end_with_the_leadership() -> None:
    harness = idle()
    harness.machine.leader_changed(harness.driver.epoch + 1, NO_LEADER)
    end = harness.log.log_end_offset
    pass_time(harness, 2_000)
    assert harness.log.log_end_offset == end


def test_without_an_interval_an_idle_log_does_not_grow() -> None:
    harness = idle(0)
    end = harness.log.log_end_offset
    pass_time(harness, 2_000)
    assert harness.log.log_end_offset == end


def test_one_that_a_full_disk_refuses_is_tried_again_only_after_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = idle()
    end = harness.log.log_end_offset
    harness.disk.failing = ".log"
    pass_time(harness, DEFAULT_MS)
    harness.disk.failing = None
    pass_time(harness, AFTER_FAILURE_MS - 100)
    assert harness.log.log_end_offset == end
    assert caplog.text.count("cannot write what it decided") == 1
    pass_time(harness, 100 + DEFAULT_MS)
    assert harness.log.log_end_offset == end + 2


def test_one_that_a_full_disk_refuses_leaves_the_leadership_also_where_another_voter_could_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = idle()
    resigned: list[int] = []
    monkeypatch.setattr(harness.driver, "resign_for_room", lambda size, error: resigned.append(size) or True)
    harness.disk.failing = ".log"
    pass_time(harness, DEFAULT_MS)
    assert harness.controller.is_active
    assert resigned == []


def test_rounds_go_on_after_one_for_which_there_was_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rounds no preferred leader is elected, and no expired token removed, until the leadership ends."""
    harness = idle()
    end = harness.log.log_end_offset
    seen = BrokerHeartbeatManager.seen
    lacking = [MemoryError()]

    def lacks(*arguments: Any) -> Any:
        if lacking:
            raise lacking.pop()
        return seen(*arguments)

    monkeypatch.setattr(BrokerHeartbeatManager, "seen", lacks)
    pass_time(harness, DEFAULT_MS)
    assert not lacking
    pass_time(harness, AFTER_FAILURE_MS + DEFAULT_MS)
    assert harness.log.log_end_offset > end
