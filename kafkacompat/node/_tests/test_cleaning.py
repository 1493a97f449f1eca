"""The cleaner's schedule: one cleaning per thread, no wait between cleanings, a backoff without work, a clean end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import START_MS
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.image import MetadataImage
from kafkacompat.node._tests.test_periodic import Machinery, Plan
from kafkacompat.node.log_maintenance import LOOK_ON_MS, BackgroundCleaning
from kafkacompat.node.settings import BROKER, NodeSettings
from kafkacompat.ports import WorkerPools
from kafkacompat.tasks import Tasks


class Step:
    def __init__(self, steps: int, problem: Exception | None = None) -> None:
        self.left = steps
        self.problem = problem
        self.done = False
        self.abandoned = False
        self.runs = 0
        self.summary = "a summary"

    def run(self) -> None:
        self.runs += 1

    def finish(self, now_ms: int) -> None:
        if self.problem is not None:
            raise self.problem
        self.left -= 1
        self.done = not self.left

    def abandon(self) -> None:
        """Make the next step the last one."""
        self.abandoned = True
        self.left = 1


class Cleaner:
    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.asked_at: list[int] = []
        self.trace: list[str] = []
        self.now: Callable[[], int] = lambda: 0
        self.looks_left = 0

    def begin(self, now_ms: int) -> Step | None:
        self.asked_at.append(now_ms - START_MS)
        self.looks_left = max(self.looks_left - 1, 0)
        if self.looks_left:
            return None
        return self.steps.pop(0) if self.steps else None

    @property
    def is_looking(self) -> bool:
        return self.looks_left > 0

    def checkpoint(self) -> Plan | None:
        return Plan("checkpoint", self.trace)

    def interrupt(self) -> None:
        self.trace.append("interrupted")

    def close(self) -> None:
        self.trace.append("closed")


class Throttler:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


def make(steps: list[Step], **settings: str) -> tuple[BackgroundCleaning, Machinery, Cleaner, Throttler]:
    machinery = Machinery()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    config = ServerConfig.from_properties(defaults_without_file() | named)
    cleaner, throttle = Cleaner(steps), Throttler()
    anything: Any = machinery
    work = BackgroundCleaning(
        NodeSettings(config, 1), cleaner, throttle, anything, Tasks(anything), WorkerPools.of_one(machinery)
    )
    return work, machinery, cleaner, throttle


def test_one_cleaning_follows_the_other_and_a_backoff_the_last() -> None:
    steps = [Step(3), Step(1)]
    kept = list(steps)
    work, machinery, cleaner, _ = make(steps, log_cleaner_backoff_ms="500")
    work.start()
    assert [step.runs for step in kept] == [3, 1]
    assert set(cleaner.asked_at) == {0}
    assert cleaner.trace.count("finish checkpoint") == 3
    cleaner.asked_at.clear()
    machinery.advance(499 - machinery.ms)
    assert cleaner.asked_at == []
    late = Step(1)
    cleaner.steps.append(late)
    machinery.advance(1000 - machinery.ms)
    assert late.runs == 1
    assert set(cleaner.asked_at) == {500, 1000}
    assert cleaner.asked_at[-1:] == cleaner.asked_at[cleaner.asked_at.index(1000) :], (
        "once when there is nothing"
    )


def test_a_changed_backoff_does_not_wait_for_the_end_of_the_former_one() -> None:
    step = Step(1)
    work, machinery, cleaner, _ = make([], log_cleaner_backoff_ms=str(2**63 - 1))
    settings: Any = work._dynamic
    work.start()
    machinery.advance(500)
    cleaner.steps.append(step)
    changed = {(BROKER, ""): {"log.cleaner.backoff.ms": "300"}}
    settings.on_image(MetadataImage(), MetadataImage(configs=changed))
    work.look_soon()
    assert step.runs == 1
    cleaner.asked_at.clear()
    machinery.advance(300)
    assert cleaner.asked_at == [800]
    work.stop()
    work.look_soon()
    assert cleaner.asked_at == [800]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_as_many_at_once_as_threads(threads: int) -> None:
    steps = [Step(2) for _ in range(5)]
    work, machinery, _, _ = make(list(steps), log_cleaner_threads=str(threads))
    machinery.later = True
    work.start()
    jobs = [job for job in machinery.workers.submitted if getattr(job[0], "__self__", None) in steps]
    assert len(jobs) == threads
    while machinery.workers.submitted:
        machinery.workers.run()
    assert [step.runs for step in steps] == [2] * 5


@pytest.mark.parametrize(("problem", "is_a_bug"), [(OSError(28, "full"), False), (KeyError("a bug"), True)])
def test_after_a_cleaning_that_fails_the_next_waits_for_the_backoff(
    problem: Exception, is_a_bug: bool, faults: Faults
) -> None:
    failing, following = Step(1, problem), Step(1)
    failing.summary = ""
    work, machinery, _, _ = make([failing, following], log_cleaner_backoff_ms="500")
    machinery.later = True
    work.start()
    machinery.workers.run()
    assert (failing.runs, following.runs) == (1, 0)
    assert faults.take() == [problem] * is_a_bug
    machinery.later = False
    machinery.advance(500 - machinery.ms)
    assert following.runs == 1


def test_a_look_at_very_many_logs_goes_on_after_the_others_turns() -> None:
    step = Step(1)
    work, machinery, cleaner, _ = make([], log_cleaner_backoff_ms="500")
    cleaner.looks_left = 5
    work.start()
    assert len(cleaner.asked_at) == 1
    work._fill()
    cleaner.steps.append(step)
    machinery.advance(10 * LOOK_ON_MS - machinery.ms)
    assert step.runs == 1
    assert cleaner.asked_at[:5] == [0, 0, 1, 2, 3], "one timer, however often it was asked for"


def test_a_step_that_ends_its_thread_is_given_up(faults: Faults) -> None:
    step = Step(1)
    step.summary = ""
    work, machinery, _, _ = make([step])
    machinery.later = True
    work.start()
    (job,) = [job for job in machinery.workers.submitted if getattr(job[0], "__self__", None) is step]
    machinery.workers.submitted.remove(job)
    job[1].fail(RuntimeError("a worker's job ended with SystemExit()"))
    assert step.done
    assert len(faults.take()) == 1
    assert work.stop().done is False
    machinery.workers.run()


def test_at_its_end_the_cleaner_is_closed() -> None:
    work, machinery, cleaner, _ = make([Step(1)])
    machinery.later = True
    work.start()
    work.stop()
    assert "closed" not in cleaner.trace
    while machinery.workers.submitted:
        machinery.workers.run()
    assert "closed" in cleaner.trace


def test_a_stop_waits_for_the_step_that_runs_and_begins_no_more() -> None:
    steps = [Step(3), Step(1)]
    first, second = steps
    work, machinery, cleaner, throttle = make(list(steps))
    machinery.later = True
    work.start()
    stopped = work.stop()
    assert throttle.stopped
    assert not stopped.done
    while machinery.workers.submitted:
        machinery.workers.run()
    assert stopped.done
    assert first.abandoned
    assert (first.runs, second.runs) == (2, 0), "the last one clears away"
    assert "interrupted" in cleaner.trace
    asked = list(cleaner.asked_at)
    machinery.advance(10**6 - machinery.ms)
    assert cleaner.asked_at == asked


def test_a_stop_waits_for_no_step_that_cannot_be_abandoned(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    step = Step(3)
    work, machinery, _, _ = make([step])
    machinery.later = True
    work.start()
    stopped = work.stop()
    bug = KeyError("a bug")

    def abandon() -> None:
        raise bug

    monkeypatch.setattr(step, "abandon", abandon)
    while machinery.workers.submitted:
        machinery.workers.run()
    assert faults.take() == [bug]
    assert stopped.done


def test_a_log_that_cannot_be_selected_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    step = Step(1)
    work, machinery, cleaner, _ = make([step], log_cleaner_backoff_ms="500")
    bug = KeyError("a bug")

    def begin(now_ms: int) -> Step:
        raise bug

    with monkeypatch.context() as patch:
        patch.setattr(cleaner, "begin", begin)
        work.start()
    assert faults.take() == [bug]
    machinery.advance(500 - machinery.ms)
    assert step.runs == 1


def test_a_stop_with_nothing_to_wait_for() -> None:
    work, _, _, _ = make([])
    assert work.stop().done
