"""The requests that must be answered, and their time limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.processes import Timer
from kafkacompat.sim.waiting_oracles import SLACK_MS, VERIFIED_MS, AnswerOracle, Watch
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.produce_request import ProduceRequest


class Watched:
    """A life whose timers the test can fire, and the request's connection."""

    def __init__(self) -> None:
        self.id = 1
        self.is_stopping, self.is_serving = False, True
        self.is_held_by_a_full_disk = False
        self.timers: list[tuple[int, Timer]] = []
        self.found: list[Breach] = []
        env = SimpleNamespace(
            found=self.found.append,
            scheduler=SimpleNamespace(now_us=60_000_000),
            network=SimpleNamespace(severed=[]),
        )
        self.machines: dict[int, Any] = {}
        self.oracle = AnswerOracle(cast(Any, env), self.machines)
        self.connection = SimpleNamespace(is_refused=False)

    def look_after(self, delay_ms: int, call: Any) -> Timer:
        self.timers.append((delay_ms, Timer(call)))
        return self.timers[-1][1]

    def watch(self, message: Any) -> Watch | None:
        return self.oracle.watch(cast(Any, self), cast(Any, self.connection), message)

    def run_out(self) -> list[str]:
        for _, timer in list(self.timers):
            if timer.call is not None:
                timer.call()
        return [str(each) for each in self.found]


def test_a_request_without_an_answer_in_its_time_is_a_breach() -> None:
    life = Watched()
    life.watch(ProduceRequest(timeout_ms=800))
    life.watch(FetchRequest(max_wait_ms=250))
    assert [delay for delay, _ in life.timers] == [800 + VERIFIED_MS + SLACK_MS, 250 + SLACK_MS]
    life.timers[1][1].cancel()
    (found,) = life.run_out()
    assert "who waits is answered: node 1 owes a Produce" in found


def test_what_is_passed_on_may_wait_for_a_controller() -> None:
    life = Watched()
    watched = life.watch(ElectLeadersRequest(timeout_ms=800))
    assert watched is not None
    assert life.run_out() == []
    metadata = SimpleNamespace(is_active=True)
    life.machines[1] = SimpleNamespace(life=SimpleNamespace(metadata=metadata, active_since_us=0))
    del life.timers[0]
    (found,) = life.run_out()
    assert "owes a ElectLeaders" in found


def test_what_is_passed_on_is_answered_late() -> None:
    life = Watched()
    watched = life.watch(ElectLeadersRequest(timeout_ms=800))
    assert watched is not None
    assert life.run_out() == []
    watched.cancel()
    assert life.timers[-1][1].call is None


def test_what_is_not_parked_is_not_watched() -> None:
    assert Watched().watch(MetadataRequest()) is None


@pytest.mark.parametrize("ends", ["stops", "has closed", "refuses"])
def test_a_node_that_ends_in_order_owes_no_answer(ends: str) -> None:
    life = Watched()
    life.watch(ProduceRequest(timeout_ms=800))
    life.is_stopping = ends == "stops"
    life.is_serving = ends != "has closed"
    life.connection.is_refused = ends == "refuses"
    assert life.run_out() == []


def test_a_quorum_that_cannot_write_answers_later() -> None:
    life = Watched()
    life.watch(FetchRequest(max_wait_ms=250))
    life.is_held_by_a_full_disk = True
    assert not life.run_out()
    life.is_held_by_a_full_disk = False
    assert "owes a Fetch" in life.run_out()[0]
