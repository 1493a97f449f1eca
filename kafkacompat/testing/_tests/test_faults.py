"""Which requests meet a fault, how often, and what a test learns of it."""

from __future__ import annotations

import inspect
import re
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY, CONTROLLER_APIS
from kafkacompat.testing.faults import (
    CHANGES,
    EFFECTS,
    Delay,
    Error,
    Faults,
    NeverHit,
    Rule,
    Selector,
    rule_of,
)
from kafkacompat.wire.errors import ErrorCode


class Call:
    """A request of which everything is said."""

    def __init__(self, **values: Any) -> None:
        self.api = values.get("api", "Produce")
        self.version = values.get("version", 11)
        self.client_id = values.get("client_id", "app")
        self.principal = values.get("principal", "User:alice")
        self.node = values.get("node", 1)
        self.listener = values.get("listener", "PLAINTEXT")
        self.request = values.get("request", object())
        self.is_open = values.get("is_open", False)
        self._names = values.get("names", [{}])

    def names(self) -> Any:
        return self._names


def hits(faults: Faults, **values: Any) -> int:
    return len(faults.decide(Call(**values)).hits)


@pytest.mark.parametrize(
    ("field", "value", "other"),
    [
        ("api", "Produce", "Fetch"),
        ("version", 11, 10),
        ("client_id", "app", "another"),
        ("principal", "User:alice", "User:bob"),
        ("node", 1, 2),
        ("listener", "PLAINTEXT", "CONTROLLER"),
    ],
)
def test_a_selector_names_what_is_known_without_the_body(field: str, value: Any, other: Any) -> None:
    faults = Faults()
    faults.close(times=None, **{field: value})
    assert hits(faults) == 1
    assert hits(faults, **{field: other}) == 0


def test_a_fault_that_is_not_hit_in_time_is_told_whatever_it_names() -> None:
    fault = Faults().close(api="OffsetCommit", group="{till}")
    with pytest.raises(TimeoutError, match=r"group='\{till\}', times=1\) was hit 0 of 2 times"):
        fault.wait(2, timeout=0)


def test_names_of_a_selector_are_those_of_one_element() -> None:
    faults = Faults()
    faults.close(times=None, topic="orders", partition=1)
    names = [{"topic": "orders", "partition": 0}, {"topic": "other", "partition": 1}]
    assert hits(faults, names=names) == 0
    assert hits(faults, names=[*names, {"topic": "orders", "partition": 1}]) == 1
    faults.clear()
    faults.close(times=None, group="g", transactional_id="t")
    assert hits(faults, names=[{"group": "g"}]) == 0
    assert hits(faults, names=[{"group": "g", "transactional_id": "t"}]) == 1


def test_the_nth_time_and_a_number_of_times() -> None:
    faults = Faults()
    once = faults.delay(1)
    third = faults.delay(1, nth=3, times=2)
    always = faults.delay(1, times=None)
    assert [hits(faults) for _ in range(6)] == [2, 1, 2, 2, 1, 1]
    assert (once.hits, third.hits, always.hits) == (1, 2, 6)
    always.remove()
    assert faults.active == ()
    assert hits(faults) == 0


def test_a_probability_gives_the_same_with_the_same_seed() -> None:
    def drawn(seed: int) -> list[int]:
        faults = Faults()
        faults.delay(1, probability=0.5, seed=seed, times=None)
        return [hits(faults) for _ in range(50)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert 10 < sum(drawn(1)) < 40


def test_a_function_of_the_request() -> None:
    faults = Faults()
    faults.close(when=lambda request: request == "this one")
    assert hits(faults, request="another") == 0
    assert hits(faults, request=None) == 0
    assert hits(faults, request="this one") == 1


def test_a_request_has_one_end_and_any_number_of_delays() -> None:
    faults = Faults()
    first = faults.close()
    second = faults.error("NOT_LEADER_OR_FOLLOWER")
    faults.delay(1)
    faults.throttle(1)
    assert hits(faults) == 3
    assert (first.hits, second.hits) == (1, 0)
    assert hits(faults) == 1
    assert second.hits == 1


def test_what_was_never_hit_fails_the_test_unless_it_is_optional() -> None:
    faults = Faults()
    faults.close(api="Fetch", optional=True)
    faults.verify()
    missed = faults.error("NOT_COORDINATOR", api="OffsetCommit", group="g", nth=2)
    missed.remove()
    with pytest.raises(NeverHit, match=r"error\(NOT_COORDINATOR, .*api='OffsetCommit', group='g', nth=2"):
        faults.verify()
    faults.clear()
    faults.verify()


def test_a_test_waits_for_a_hit() -> None:
    faults = Faults()
    fault = faults.delay(1, times=2)
    with pytest.raises(TimeoutError, match="0 of 1 times"):
        fault.wait(timeout=0)
    thread = threading.Thread(target=lambda: [hits(faults) for _ in range(2)])
    thread.start()
    fault.wait(times=2)
    thread.join()
    assert fault.hits == 2


def test_who_asks_is_told_when_there_is_something_to_look_for() -> None:
    told: list[bool] = []
    faults = Faults(lambda: told.append(bool(faults.active)))
    with faults.close():
        assert told == [True]
    assert told[-1] is False
    faults.close()
    hits(faults)
    assert told[-1] is False


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"fault": "nothing"}, "no fault 'nothing'"),
        ({"fault": "error", "code": "NO_SUCH"}, "no error 'NO_SUCH'"),
        ({"fault": "error", "code": "NONE"}, "NONE is no error"),
        ({"fault": "close", "api": "Prodce"}, "no API 'Prodce'"),
        (
            {"fault": "error", "code": "NOT_LEADER_OR_FOLLOWER", "applied": True, "api": "Fetch"},
            "changes nothing",
        ),
        ({"fault": "corrupt", "api": "Produce"}, "concerns Fetch and ShareFetch"),
        ({"fault": "duplicate", "api": "Fetch"}, "concerns Produce"),
        ({"fault": "close", "times": 0}, "count from 1"),
        ({"fault": "close", "probability": 2}, "between 0 and 1"),
        ({"fault": "close", "when": "x"}, "function"),
    ],
)
def test_a_rule_that_cannot_come_to_pass_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        rule_of(values)


def test_a_rule_of_plain_values() -> None:
    values = {"fault": "error", "code": "NOT_COORDINATOR", "api": "OffsetCommit", "group": "g", "times": None}
    assert rule_of(values) == Rule(
        Error(ErrorCode.NOT_COORDINATOR), Selector(api="OffsetCommit", group="g"), times=None
    )
    assert rule_of({"fault": "delay", "ms": 5, "reply": True, "nth": 2}) == Rule(Delay(5, True), nth=2)
    for unknown in ({"fault": "delay", "ms": 5, "tpoic": "t"}, {"fault": "delay"}):
        with pytest.raises(TypeError):
            rule_of(unknown)


def test_only_served_apis_change_something() -> None:
    served = {each.name for table in (BROKER_APIS_WITH_TELEMETRY, CONTROLLER_APIS) for each in table.entries}
    assert served >= CHANGES
    reads = ("Describe", "List", "Read", "Get")
    assert not [name for name in CHANGES if name.startswith(reads)]


def test_each_effect_has_a_method() -> None:
    for name, effect in EFFECTS.items():
        terms = inspect.signature(getattr(Faults, name)).parameters.keys() - {"self", "terms"}
        assert terms == {each.name for each in fields(effect)}


def test_the_page_of_faults_has_each_effect_and_selector_with_its_arguments() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/testing.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, effect in EFFECTS.items():
        own = [each.name for each in fields(effect)]
        described = [re.findall(rf"`{name}\((.*?)\)`", row.split(" | ")[0]) for row in rows]
        told = [
            [word.split("=")[0] for word in arguments.split(", ") if word]
            for found in described
            for arguments in found
        ]
        assert told == [own], f"docs/reference/testing.md: {name}({', '.join(own)})"
    heads = " ".join(row.split(" | ")[0] for row in rows)
    names = [
        each.name for each in (*fields(Selector), *fields(Rule)) if each.name not in ("effect", "selector")
    ]
    missing = [name for name in names if not re.search(rf"`{name}[`=]", heads)]
    assert not missing, f"docs/reference/testing.md has no row of {missing}"
