"""Dead letters when something is broken: nothing is lost without a word, nothing is held up, and it is said once."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from typing import Any

import pytest

from kafkacompat import faults
from kafkacompat.coordinator._tests.kit import NODE_ID, topic_image
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.disks import refusing
from kafkacompat.partition._tests.kit import partition_image
from kafkacompat.ports import WorkersBusy
from kafkacompat.share import dead_letter_queue
from kafkacompat.share._tests.test_dead_letter_queue import OTHER, QUEUE, SOURCE, DeadLetterNode
from kafkacompat.share.dead_letter_queue import SAID_EVERY_MS
from kafkacompat.share.dead_letters import ATTEMPTS, BACKOFF_MS, HELD_MAX_MS, TIMEOUT_MS, DeadLetterPolicy
from kafkacompat.wire.errors import ErrorCode

PAUSES_MS = [BACKOFF_MS << number for number in range(ATTEMPTS - 1)]
"""Between the attempts."""


def led_by_other(world: DeadLetterNode) -> None:
    world.publish(topic_image("orders", 5), topic_image(QUEUE, 3, leader=OTHER), enabled=True)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_a_full_disk_of_the_queues_leader_moves_the_letter_to_the_next_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The node gives the log up, as for any write that fails. Another replica takes over, and is asked."""
    world = DeadLetterNode()
    world.fill(b"a")
    world.disk.refuse = refusing("write create", f"/data/{QUEUE}-", errno.ENOSPC)
    sent = world.send(0, 0)
    assert not sent.done
    world.disk.refuse = lambda operation, path: None
    queue = topic_image(QUEUE, 3)
    moved = partition_image(replicas=(OTHER, NODE_ID), leader=OTHER)
    world.publish(
        topic_image("orders", 5), replace(queue, partitions={**queue.partitions, 1: moved}), enabled=True
    )
    world.time.advance(BACKOFF_MS)
    world.run()
    world.peer.answer(ErrorCode.NONE)
    assert sent.result() is True
    assert world.queue.given_up == 0
    assert [each for each in errors_in(caplog) if "dead letters" in each] == []


def test_what_waits_behind_a_letter_that_fails_has_failed_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """They go to the same partition. Otherwise a thousand ranges would wait for each other's attempts for hours."""
    world = DeadLetterNode()
    led_by_other(world)
    sent = [world.send(offset, offset) for offset in range(100)]
    for pause_ms in (*PAUSES_MS, 0):
        world.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.time.advance(pause_ms)
    assert [each.result() for each in sent] == [False] * 100
    assert len(world.peer.asked) == ATTEMPTS
    assert world.queue.given_up == 100
    assert len(errors_in(caplog)) == 1


def test_a_letter_that_came_later_has_attempts_of_its_own() -> None:
    world = DeadLetterNode()
    led_by_other(world)
    first = world.send(0, 0)
    for pause_ms in PAUSES_MS:
        world.peer.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.time.advance(pause_ms)
    second = world.send(1, 1)
    world.peer.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.result() is False
    world.time.advance(BACKOFF_MS)
    world.peer.answer(ErrorCode.NONE)
    assert second.result() is True


def test_a_leader_that_says_nothing_holds_records_for_a_bounded_time() -> None:
    world = DeadLetterNode()
    led_by_other(world)
    sent = world.send(0, 0)
    begun_ms = world.time.monotonic_ms()
    for pause_ms in PAUSES_MS[:2]:
        world.time.advance(TIMEOUT_MS)
        world.peer.asked[-1][1].fail(TimeoutError("no answer"))
        assert not sent.done
        world.time.advance(pause_ms)
    world.time.advance(TIMEOUT_MS)
    world.peer.asked[-1][1].fail(TimeoutError("no answer"))
    assert sent.result() is False
    assert world.time.monotonic_ms() - begun_ms <= HELD_MAX_MS + TIMEOUT_MS


def test_a_loss_is_said_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The topic is missing, and records are rejected one by one."""
    world = DeadLetterNode()
    world.publish(topic_image("orders", 5), enabled=False)
    for offset in range(500):
        assert world.send(offset, offset).result() is False
    told = errors_in(caplog)
    assert told == [
        "group 'workers': no dead letters of orders-4, offsets 0 to 0: topic dlq.orders does not exist, and "
        "errors.deadletterqueue.auto.create.topics.enable is false. The records are archived all the same"
    ]
    caplog.clear()
    world.time.advance(SAID_EVERY_MS)
    (summary,) = errors_in(caplog)
    assert "'workers': 499 more records have no dead letters (orders-4: 499 between 1 and 499)" in summary
    assert "does not exist" in summary
    caplog.clear()
    world.time.advance(10 * SAID_EVERY_MS)
    assert errors_in(caplog) == []
    assert world.time.waiting == []
    world.send(500, 500)
    assert len(errors_in(caplog)) == 1


def test_another_reason_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = DeadLetterNode(DeadLetterPolicy("wrong"))
    world.send(0, 0)
    world.policy = DeadLetterPolicy("dlq.missing")
    world.send(1, 1)
    first, second = errors_in(caplog)
    assert "does not begin with" in first
    assert "dlq.missing does not exist" in second


def test_a_topic_that_is_made_anew_takes_no_letter_that_was_begun_for_the_old_one() -> None:
    """Nobody has enabled the new one, which may belong to somebody else."""
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a")
    sent = world.queue.enqueue(*world.one_letter(0))
    world.time.advance(0)
    assert world.workers.submitted, "the source is being read"
    made_anew = topic_image(QUEUE, 3, topic_id=b"another".ljust(16))
    world.publish(topic_image("orders", 5), made_anew, enabled=False)
    world.run()
    assert world.letters() == []
    world.time.advance(BACKOFF_MS)
    world.run()
    assert sent.result() is False
    assert world.letters() == []


def test_a_read_that_fails_as_none_should_is_reported_and_tried_again(faults: Any) -> None:
    """A full pool is no bug."""
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a")
    sent = world.queue.enqueue(*world.one_letter(0))
    problem = KeyError("a bug")
    for failure in (WorkersBusy("10000 jobs wait"), problem):
        world.time.advance(0)
        reads = [job for job in world.workers.submitted if "DeadLetterQueue" in repr(job[0])]
        ((_, read),) = reads
        world.workers.submitted.remove(reads[0])
        read.fail(failure)
        assert faults.take() == ([problem] if failure is problem else [])
        world.time.advance(4 * BACKOFF_MS)
    world.run()
    assert sent.result() is True
    assert world.letters() == [(b"a", "0")]


def test_a_letter_for_which_there_is_no_memory_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a")

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(dead_letter_queue, "build", fails)
        sent = world.send(0, 0)
    assert not sent.done
    world.time.advance(BACKOFF_MS)
    world.run()
    assert sent.result() is True
    assert world.letters() == [(b"a", "0")]


def test_a_topic_that_is_made_anew_and_enabled_takes_the_letter() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a")
    sent = world.queue.enqueue(*world.one_letter(0))
    world.time.advance(0)
    assert world.workers.submitted, "the source is being read"
    world.publish(
        topic_image("orders", 5), topic_image(QUEUE, 1, topic_id=b"another".ljust(16)), enabled=True
    )
    world.run()
    world.time.advance(BACKOFF_MS)
    world.run()
    assert sent.result() is True
    assert world.letters(0) == [(b"a", "0")]


def test_a_topic_that_brokers_may_not_write_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = DeadLetterNode()
    led_by_other(world)
    sent = world.send(0, 0)
    world.peer.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert sent.result() is False
    (told,) = errors_in(caplog)
    assert "node 2 answered TOPIC_AUTHORIZATION_FAILED" in told.replace(f"node {OTHER}", "node 2")


@pytest.mark.parametrize("broken", ["build", "sources_in"])
def test_a_bug_of_ours_holds_up_nothing(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("a bug")

    reported: list[BaseException] = []
    monkeypatch.setattr(faults, "listeners", [reported.append])
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a", b"b")
    with monkeypatch.context() as patched:
        patched.setattr(dead_letter_queue, broken, fails)
        sent = world.send(0, 0)
        for pause_ms in PAUSES_MS:
            world.time.advance(pause_ms)
            world.run()
    assert sent.result() is False
    assert world.send(1, 1).result() is True
    assert world.letters() == [(b"b", "1")]


def test_letters_of_a_share_partition_that_has_moved_are_left_to_its_next_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = DeadLetterNode()
    led_by_other(world)
    is_led = True
    sent = [world.queue.enqueue(*world.one_letter(offset), lambda: is_led) for offset in range(3)]
    world.run()
    is_led = False
    world.peer.answer(ErrorCode.NONE)
    world.run()
    assert [each.result() for each in sent] == [True, False, False]
    assert len(world.peer.asked) == 1
    assert (world.queue.given_up, errors_in(caplog)) == (0, [])


def test_the_source_may_be_gone_when_the_letter_is_written() -> None:
    world = DeadLetterNode(DeadLetterPolicy(QUEUE, copies_records=True))
    world.fill(b"a")
    sent = world.queue.enqueue(*world.one_letter(0))
    world.time.advance(0)
    assert world.workers.submitted, "the source is being read"
    world.publish(topic_image(QUEUE, 3), enabled=True)
    world.run()
    assert sent.result() is True
    assert [offset for _, offset in world.letters()] == ["0"]
    assert world.manager.log(TopicPartition(*SOURCE)) is None
