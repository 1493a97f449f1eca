"""Tests of the checker: it notices each anomaly, written by hand and as small as possible, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interop_tests.histories.check import check
from interop_tests.histories.commits import Staleness
from interop_tests.histories.ending import parse_commit
from interop_tests.histories.findings import Findings
from interop_tests.histories.history import (
    COMMITTED,
    FAIL,
    INFO,
    OK,
    UNCOMMITTED,
    Operation,
    Recorder,
    load,
    operations,
)

P, Q = "t-0", "t-1"
TICK_NS = 10_000_000_000


class Story:
    """Operations one after another, each two ticks long by default. A tick is ten seconds."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self._now = 0

    def add(
        self,
        process: str,
        f: str,
        value: Any,
        outcome: str = OK,
        asked: Any = None,
        start: int | None = None,
        end: int | None = None,
    ) -> Story:
        start = self._now if start is None else start
        end = start + 2 if end is None else end
        self._now = max(self._now, end) + 1
        self.history.append(Operation(process, f, start * TICK_NS, end * TICK_NS, outcome, asked, value))
        return self

    def send(self, process: str, *items: tuple[str, int, int | None], outcome: str = OK) -> Story:
        return self.add(process, "send", [list(item) for item in items], outcome)

    def poll(self, process: str, *entries: tuple[Any, ...], isolation: str = COMMITTED, **more: Any) -> Story:
        return self.add(process, "poll", [list(entry) for entry in entries], asked=isolation, **more)

    def txn(
        self,
        process: str,
        polled: list[tuple[Any, ...]],
        sent: list[tuple[str, int, int | None]],
        outcome: str = OK,
        end: int | None = None,
    ) -> Story:
        ended = (self._now + 2 if end is None else end) * TICK_NS
        value = {
            "group": "g",
            "polled": [list(entry) for entry in polled],
            "polled_at": self._now * TICK_NS,
            "sent": [list(item) for item in sent],
            "committing": ended,
        }
        return self.add(process, "txn", value, outcome, end=end)

    def end(
        self, uncommitted: dict[str, dict[int, int]], committed: dict[str, dict[int, int]] | None = None
    ) -> Findings:
        """The findings if the topics end with these contents: value by offset."""
        for isolation, shown in ((UNCOMMITTED, uncommitted), (COMMITTED, committed or uncommitted)):
            value = {partition: [*map(list, records.items())] for partition, records in shown.items()}
            self.add("end", "final", value, asked=isolation)
        return check(sorted(self.history, key=lambda each: each.start))


def test_a_history_without_faults_is_well() -> None:
    found = (
        Story()
        .send("a", (P, 1, 0), (P, 2, 1))
        .send("b", (Q, 3, 0))
        .add("c", "assign", {P: 0})
        .poll("c", (P, 0, 1))
        .poll("c", (P, 1, 2))
        .txn("d", [(P, None), (P, 0, 1), (P, 1, 2)], [(Q, 4, 1)])
        .txn("d", [], [(Q, 5, 3)], FAIL)
        .add("e", "commit", ["g", P, 1])
        .add("f", "fetch", ["g", P, 1])
        .add("end", "replicas", {P: {"1": "x", "2": "x"}})
        .end({P: {0: 1, 1: 2}, Q: {0: 3, 1: 4, 3: 5}}, {P: {0: 1, 1: 2}, Q: {0: 3, 1: 4}})
    )
    assert found.is_well, found
    assert found.seen["registers: Ok"] == 1


def test_a_client_that_numbers_its_records_anew_may_repeat_its_own() -> None:
    def story() -> Story:
        return Story().send("a", (P, 1, 0)).add("a", "renumbered", None).send("b", (P, 2, 2))

    found = story().end({P: {0: 1, 1: 1, 2: 2}})
    assert found.is_well, found
    assert found.seen["records that a client wrote twice"] == 1
    assert story().end({P: {0: 1, 2: 2, 3: 2}}).kinds == {"duplicate"}


LOGS = {
    "lost write": lambda: Story().send("a", (P, 1, 0), (P, 2, 1)).end({P: {0: 1}}),
    "inconsistent offset": lambda: Story().send("a", (P, 1, 0)).send("b", (P, 2, 0)).end({P: {0: 1, 1: 2}}),
    "duplicate": lambda: Story().send("a", (P, 1, 0)).end({P: {0: 1, 1: 1}}),
    "never written": lambda: Story().send("a", (P, 1, 0)).end({P: {0: 1, 1: 9}}),
    "reordered": lambda: Story().send("a", (P, 1, None), (P, 2, None), outcome=INFO).end({P: {0: 2, 1: 1}}),
    "read and lost": lambda: Story().send("a", (P, 1, None), outcome=INFO).poll("c", (P, 0, 1)).end({P: {}}),
    "skipped": lambda: (
        Story()
        .send("a", (P, 1, 0), (P, 2, 1), (P, 3, 2))
        .poll("c", (P, 0, 1), (P, 2, 3))
        .end({P: {0: 1, 1: 2, 2: 3}})
    ),
    "polled again": lambda: (
        Story().send("a", (P, 1, 0)).poll("c", (P, 0, 1)).poll("c", (P, 0, 1)).end({P: {0: 1}})
    ),
    "replicas differ": lambda: Story().add("end", "replicas", {P: {"1": "x", "2": "y"}}).end({P: {}}),
}


@pytest.mark.parametrize("kind", LOGS)
def test_an_anomaly_of_logs_is_noticed(kind: str) -> None:
    found = LOGS[kind]()
    assert kind in found.kinds, found


def test_a_poll_after_an_assignment_begins_at_its_position() -> None:
    story = Story().send("a", (P, 1, 0), (P, 2, 1)).add("c", "assign", {P: 0}).poll("c", (P, 1, 2))
    assert story.end({P: {0: 1, 1: 2}}).kinds == {"skipped"}


def test_a_new_position_is_no_second_poll() -> None:
    story = (
        Story().send("a", (P, 1, 0)).poll("c", (P, 0, 1), (P, None), (P, 0, 1)).poll("c", (P, 0), (P, 0, 1))
    )
    assert story.end({P: {0: 1}}).is_well


def test_what_a_committed_read_leaves_out_is_not_skipped() -> None:
    story = Story().txn("a", [], [(P, 1, 0)], FAIL).txn("a", [], [(P, 2, 2)])
    story.add("c", "assign", {P: 0}).poll("c", (P, 2, 2))
    assert story.end({P: {0: 1, 2: 2}}, {P: {2: 2}}).is_well


def test_a_history_without_an_end_is_not_judged_well() -> None:
    assert check(Story().send("a", (P, 1, 0)).history).kinds == {"no end"}


TRANSACTIONS = {
    "aborted and shown (G1a)": lambda: Story().txn("a", [], [(P, 1, 0)], FAIL).end({P: {0: 1}}),
    "aborted read (G1a)": lambda: (
        Story().txn("a", [], [(P, 1, 0)], FAIL).poll("c", (P, 0, 1)).end({P: {0: 1}}, {P: {}})
    ),
    "intermediate read (G1b)": lambda: (
        Story().txn("a", [], [(P, 1, 0)], end=20).poll("c", (P, 0, 1), start=3).end({P: {0: 1}})
    ),
    "lost transaction": lambda: (
        Story().txn("a", [], [(P, 1, 0), (Q, 2, 0)]).end({P: {0: 1}, Q: {0: 2}}, {P: {}, Q: {}})
    ),
    "torn transaction": lambda: (
        Story().txn("a", [], [(P, 1, 0), (Q, 2, None)], INFO).end({P: {0: 1}, Q: {0: 2}}, {P: {0: 1}, Q: {}})
    ),
    "consumed twice": lambda: (
        Story()
        .send("a", (P, 1, 0))
        .txn("b", [(P, 0, 1)], [(Q, 2, 0)])
        .txn("c", [(P, 0, 1)], [(Q, 3, 2)])
        .end({P: {0: 1}, Q: {0: 2, 2: 3}})
    ),
    "not consumed": lambda: (
        Story()
        .send("a", (P, 1, 0), (P, 2, 1))
        .txn("b", [(P, 1, 2)], [(Q, 3, 0)])
        .end({P: {0: 1, 1: 2}, Q: {0: 3}})
    ),
    "cycle of reads (G1c)": lambda: (
        Story()
        .txn("a", [(P, 0, 2)], [(Q, 1, 0)])
        .txn("b", [(Q, 0, 1)], [(P, 2, 0)])
        .end({P: {0: 2}, Q: {0: 1}})
    ),
}


@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_an_anomaly_of_transactions_is_noticed(kind: str) -> None:
    found = TRANSACTIONS[kind]()
    assert kind in found.kinds, found


def test_what_an_unknown_transaction_consumed_counts_once_it_is_shown() -> None:
    story = Story().send("a", (P, 1, 0)).txn("b", [(P, 0, 1)], [(Q, 2, None)], INFO)
    story.txn("c", [(P, 0, 1)], [(Q, 3, 2)])
    assert story.end({P: {0: 1}, Q: {0: 2, 2: 3}}).kinds == {"consumed twice"}
    assert story.end({P: {0: 1}, Q: {2: 3}}).is_well


def test_write_cycles_are_permitted_and_counted() -> None:
    """Kafka does not isolate writes from each other."""
    story = Story().txn("a", [], [(P, 1, 0), (Q, 2, 2)]).txn("b", [], [(Q, 3, 0), (P, 4, 2)])
    found = story.end({P: {0: 1, 2: 4}, Q: {0: 3, 2: 2}})
    assert found.is_well, found
    assert found.permitted["cycles of writes (G0)"] == 1


def commits(*steps: tuple[Any, ...]) -> Story:
    story = Story()
    for step in steps:
        f, offset, *more = step
        story.add(f"{f}-{len(story.history)}", f, ["g", P, offset], *more)
    return story


def test_a_committed_offset_that_goes_back_is_noticed() -> None:
    found = commits(("commit", 1), ("commit", 2), ("fetch", 1)).end({})
    assert found.kinds == {"committed offset lost", "commits not linearizable"}


def test_a_committed_offset_that_vanishes_is_noticed() -> None:
    found = commits(("commit", 1), ("fetch", -1)).end({})
    assert found.kinds == {"committed offset lost", "commits not linearizable"}


def test_an_offset_that_nobody_committed_is_noticed() -> None:
    assert "never committed" in commits(("commit", 1), ("fetch", 5)).end({}).kinds


def test_fetches_that_disagree_about_an_unknown_commit_are_noticed() -> None:
    """A state that was read once must not disappear. The rule about known commits does not find this, but the register
    does."""
    assert commits(("commit", 1), ("commit", 2, INFO), ("fetch", 2), ("fetch", 1)).end({}).kinds == {
        "commits not linearizable"
    }


def test_an_unknown_commit_may_take_effect_late_or_never() -> None:
    assert commits(("commit", 1), ("commit", 2, INFO), ("fetch", 1), ("fetch", 2)).end({}).is_well
    assert commits(("commit", 1), ("commit", 2, INFO), ("fetch", 1)).end({}).is_well


def test_a_paused_coordinator_may_answer_what_it_knew() -> None:
    story = commits(("commit", 1))
    story.add("nemesis", "fault", ["pause", [1]], start=4, end=20)
    story.add("b", "commit", ["g", P, 2], start=5, end=6).add("c", "fetch", ["g", P, 1], start=19, end=21)
    assert story.end({}).is_well
    story.add("d", "fetch", ["g", P, 1], start=40)
    assert "committed offset lost" in story.end({}).kinds


def test_a_coordinator_that_was_not_paused_answers_what_is_committed() -> None:
    """If a coordinator returns a commit that is not replicated, it is found as soon as its successor does not know the
    commit."""

    def story(node: int) -> Story:
        told = commits(("commit", 1))
        told.add("nemesis", "fault", ["cut", [1]], start=4, end=20)
        told.add("a", "commit", ["g", P, 2], start=5, end=19)
        told.add("b", "fetch", ["g", P, 2, 1], start=6, end=8)
        return told.add("c", "fetch", ["g", P, 1, node], start=10, end=12)

    assert story(1).end({}).is_well
    assert story(2).end({}).kinds == {"commits not linearizable"}


def test_apaches_coordinator_may_answer_an_old_checkpoint_after_a_kill() -> None:
    told = commits(("commit", 1))
    told.add("b", "commit", ["g", P, 2], start=9, end=10).add(
        "nemesis", "fault", ["kill-all", [1]], start=11, end=12
    )
    told.add("c", "fetch", ["g", P, 1], start=13).end({})
    assert "committed offset lost" in check(told.history).kinds
    assert check(told.history, Staleness(("kill-all",), 6 * TICK_NS, 6 * TICK_NS, True)).is_well


def test_at_the_end_no_coordinator_answers_what_it_knew() -> None:
    story = commits(("commit", 1), ("commit", 2))
    story.add("nemesis", "fault", ["pause", [1]], start=1, end=20)
    story.add("end-fetcher", "fetch", ["g", P, 1], start=20)
    assert "committed offset lost" in story.end({}).kinds


@pytest.mark.parametrize(
    ("written", "kinds"),
    [
        ([1, 3, 2], set()),
        ([3, 2], {"acknowledged commit lost"}),
        ([1, 2], {"fetched commit lost"}),
        ([2, 3, 1], {"not the last commit"}),
    ],
)
def test_what_commits_and_fetches_told_is_in_their_log(written: list[int], kinds: set[str]) -> None:
    """A lost commit is found even if it was overwritten since, and however stale a fetch may be."""
    story = commits(("commit", 1), ("commit", 3, INFO), ("fetch", 3), ("commit", 2))
    story.add("end-fetcher", "fetch", ["g", P, 2]).add("end-commits", "committed", {P: written})
    assert story.end({}).kinds == kinds


def test_a_record_of_the_log_of_commits_is_understood() -> None:
    """Encoded by hand as Kafka's OffsetCommitKey version 1 and OffsetCommitValue version 3."""
    key = bytes([0, 1, 0, 1]) + b"g" + bytes([0, 2]) + b"tt" + bytes([0, 0, 0, 5])
    value = bytes([0, 3]) + (7).to_bytes(8, "big") + b"\xff" * 4 + bytes(2 + 8)
    assert parse_commit(key, value) == ("g", "tt", 5, 7)
    assert parse_commit(key, None) is None
    assert parse_commit(bytes([0, 2, 0, 1]) + b"g", value) is None


def test_an_operation_that_does_not_end_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    begun = recorder.operation("a", "txn")
    with recorder.operation("b", "poll") as done:
        done.ok([])
    begun.__enter__().value = {"sent": [[P, 1, None]]}
    recorder.close()
    one, other = load(tmp_path / "history")
    assert {(each.f, each.outcome) for each in (one, other)} == {("poll", OK), ("txn", INFO)}
    assert [each.value for each in (one, other) if each.f == "txn"] == [{"sent": [[P, 1, None]]}]


def test_events_become_operations() -> None:
    events = [
        {"time": 1, "process": "a", "type": "invoke", "f": "send", "value": [[P, 1]]},
        {"time": 2, "process": "b", "type": "invoke", "f": "poll", "value": COMMITTED},
        {"time": 3, "process": "a", "type": "ok", "f": "send", "value": [[P, 1, 0]]},
    ]
    one, other = operations(map(json.dumps, events))
    assert (one.outcome, one.start, one.end, one.value) == (OK, 1, 3, [[P, 1, 0]])
    assert (other.outcome, other.end, other.value) == (INFO, None, COMMITTED)
    with pytest.raises(ValueError, match="two operations"):
        operations(map(json.dumps, [events[0], events[0]]))
    with pytest.raises(ValueError, match="did not begin"):
        operations([json.dumps(events[2])])
