"""Replay on a model of the cluster: killed before every step, and beside another call that begins at any step. Each rejected
record is written once, in the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import replay as replaying
from kafkacompat.pipeline.replay import Original, Rejected, TooLarge, replay_all

REASON = "malformed JSON"


class Killed(Exception):
    """The process ends here."""


class Fenced(Exception):
    """A later call has begun."""


class Cluster:
    """Committed records, the ledger, and the transaction that is open. `before` is called before each step."""

    def __init__(self, rejected: Sequence[Rejected]) -> None:
        self.rejected = list(rejected)
        self.present = {each.place for each in rejected if each.offset % 7 != 3}
        self.written: list[str] = []
        self.ledger: list[str] = []
        self.open: list[tuple[list[str], str]] = []
        self.epoch = 0
        self.before: Callable[[], None] = lambda: None


class Call:
    """The Log of one call."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epoch = -1

    def fence(self) -> None:
        self._cluster.before()
        self._cluster.open = []
        self._cluster.epoch += 1
        self._epoch = self._cluster.epoch

    def rejected(self) -> Iterator[Rejected]:
        for each in list(self._cluster.rejected):
            self._cluster.before()
            yield each

    def ledger(self) -> Iterator[str]:
        self._cluster.before()
        yield from list(self._cluster.ledger)

    def originals(self, wanted: Sequence[Rejected]) -> list[tuple[Rejected, Original | None]]:
        assert list(wanted) == sorted(wanted, key=lambda each: each.place)
        self._cluster.before()
        record = Original(b"key", b"value", [])
        return [(each, record if each.place in self._cluster.present else None) for each in wanted]

    def write(self, found: Sequence[tuple[Rejected, Any]]) -> None:
        for each, _ in found:
            self._step()
            self._cluster.open.append((self._cluster.written, each.event_id))
            self._step()
            self._cluster.open.append((self._cluster.ledger, each.key))
        self._step()
        # The broker commits all or nothing. The process may end before it knows.
        for place, text in self._cluster.open:
            place.append(text)
        self._cluster.open = []
        self._cluster.before()

    def _step(self) -> None:
        self._cluster.before()
        if self._epoch != self._cluster.epoch:
            raise Fenced


def rejected(number: int, reason: str = REASON) -> Rejected:
    return Rejected(f"t-0-{number}", reason, "t", number % 2, number, 5, b"")


def records() -> list[Rejected]:
    """Records of two reasons, in no order, some of them twice."""
    found = [rejected(number * 5 % 12, REASON if number % 4 else "other") for number in range(12)]
    return [*found[:5], found[1], *found[5:], found[2], found[9]]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PART_RECORDS", 4)
    monkeypatch.setattr(replaying, "TRANSACTION_RECORDS", 2)


def at_step(number: int, act: Callable[[], None]) -> Callable[[], None]:
    left = [number]

    def before() -> None:
        left[0] -= 1
        if left[0] == 0:
            act()

    return before


def die() -> None:
    raise Killed


def expected() -> Counter[str]:
    return Counter({each.event_id for each in records() if each.reason == REASON and each.offset % 7 != 3})


def steps() -> int:
    """The number of steps of a call that is not disturbed."""
    cluster = Cluster(records())
    taken: list[None] = []
    cluster.before = lambda: taken.append(None)
    done = replay_all(Call(cluster), (REASON,))
    assert Counter(cluster.written) == expected()
    assert (done.topics.total(), done.left) == (len(expected()), 0)
    return len(taken)


def test_a_call_that_is_killed_before_any_step_loses_and_doubles_nothing() -> None:
    for first in range(1, steps() + 1):
        cluster = Cluster(records())
        cluster.before = at_step(first, die)
        with pytest.raises(Killed):
            replay_all(Call(cluster), (REASON,))
        # What is committed is in the ledger too.
        assert len(cluster.written) == len(cluster.ledger)
        cluster.before = at_step(first // 2 + 1, die)
        with contextlib.suppress(Killed):
            replay_all(Call(cluster), (REASON,))
        cluster.before = lambda: None
        replay_all(Call(cluster), (REASON,))
        assert Counter(cluster.written) == expected(), first
        assert replay_all(Call(cluster), (REASON,)).topics.total() == 0


def test_another_call_that_begins_at_any_step_fences_the_first() -> None:
    for step in range(1, steps() + 1):
        for records_max in (3, 1000):
            cluster = Cluster(records())

            def meanwhile(cluster: Cluster = cluster, records_max: int = records_max) -> None:
                replay_all(Call(cluster), (REASON,), records_max)

            cluster.before = at_step(step, meanwhile)
            with contextlib.suppress(Fenced):
                replay_all(Call(cluster), (REASON,))
            cluster.before = lambda: None
            replay_all(Call(cluster), (REASON,))
            assert Counter(cluster.written) == expected(), (step, records_max)


def test_calls_with_a_bound_end_and_go_on_where_they_ended() -> None:
    cluster = Cluster(records())
    calls = [replay_all(Call(cluster), (REASON,), 2) for _ in range(6)]
    assert [each.topics.total() for each in calls] == [2, 2, 2, 1, 0, 0]
    assert [each.left > 0 for each in calls] == [True, True, True, False, False, False]
    assert Counter(cluster.written) == expected()


def test_a_record_that_is_too_large_keeps_back_no_other() -> None:
    """Nor do several that are too large together."""

    class Limited(Call):
        def write(self, found: Sequence[tuple[Rejected, Any]]) -> None:
            if len(found) > 1 or found[0][0].offset == 5:
                raise TooLarge
            super().write(found)

    cluster = Cluster([rejected(number) for number in range(4, 10)])
    done = replay_all(Limited(cluster), (REASON,))
    assert sorted(cluster.written) == [f"t-0-{number}" for number in (4, 6, 7, 8, 9)]
    assert (done.topics.total(), done.large, done.gone, done.left) == (5, 1, 0, 0)


def test_no_more_than_a_part_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected records and the keys of the ledger are not kept: each is looked at, and forgotten."""
    cluster = Cluster([rejected(number) for number in range(1000)])
    cluster.ledger = [rejected(number).key for number in range(990)]
    asked = []

    class Watching(Call):
        def ledger(self) -> Iterator[str]:
            asked.append(None)
            yield from super().ledger()

    done = replay_all(Watching(cluster), (REASON,))
    assert (done.before, done.topics.total() + done.gone) == (990, 10)
    assert len(asked) == 250
