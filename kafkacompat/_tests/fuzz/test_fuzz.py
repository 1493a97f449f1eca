"""Hostile requests to a whole node: a few thousand in `make test`, millions in `make soak`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from . import corpus, node
from .__main__ import run_seed
from .choices import ByteChoices
from .episode import Episode, Tally
from .node import LOG_DIRECTORIES, Finding, FuzzedNode
from .sharing import SharingAuthor

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS_A_TEST = 2000 if SOAK else 3
TESTS = 8


@pytest.mark.parametrize("number", range(TESTS))
def test_a_node_stands_whatever_it_is_sent(number: int) -> None:
    tally = Tally()
    for seed in range(number * SEEDS_A_TEST, (number + 1) * SEEDS_A_TEST):
        run_seed(seed, tally)
    assert tally.answers > 0.9 * tally.requests


@pytest.mark.parametrize("number", range(TESTS // 2))
def test_a_node_stands_whatever_members_of_share_groups_send(number: int) -> None:
    tally = Tally()
    for seed in range(number * SEEDS_A_TEST, (number + 1) * SEEDS_A_TEST):
        run_seed(seed, tally, shares=True)
    assert tally.answers > 0.9 * tally.requests


def test_members_of_share_groups_come_to_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    often = {"ShareGroupHeartbeat": 60, "ShareFetch": 90, "Metadata": 40}
    monkeypatch.setattr(SharingAuthor, "weights", SharingAuthor.weights | often)
    tally = Tally()
    run_seed(1, tally, requests=400, shares=True)
    assert tally.by_code["ShareGroupHeartbeat", 0]
    assert tally.by_code["ShareFetch", 0]


def test_the_same_seed_is_the_same_episode() -> None:
    told = []
    for _ in range(2):
        tally = Tally()
        run_seed(4, tally, requests=100)
        told.append((tally.requests, tally.answers, tally.closed, tally.steps, tally.by_code))
    assert told[0] == told[1]


def test_a_guided_episode_ends_with_its_bytes() -> None:
    tally = Tally()
    Episode(0, ByteChoices(bytes(range(256)) * 2), 200, tally).run()
    assert 0 < tally.requests < 200


@pytest.mark.parametrize("case", corpus.cases(), ids=lambda case: case.stem)
def test_the_fuzzers_stored_findings_do_not_come_again(case: Path) -> None:
    corpus.replay(case)


def test_a_handler_with_a_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkacompat.api import heartbeat

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(heartbeat, "HANDLER", replace(heartbeat.HANDLER, function=broken))

    def run() -> None:
        for seed in range(5):
            run_seed(seed, Tally())

    with pytest.raises(Finding, match="logged with a stack"):
        run()


def test_a_log_that_forgets_what_was_acknowledged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = FuzzedNode.kill

    def forgetful(fuzzed: FuzzedNode) -> None:
        killed(fuzzed)
        for directory in LOG_DIRECTORIES:
            partition = f"{directory}/witnessed-0"
            if fuzzed.disk.exists(partition):
                for name in fuzzed.disk.list_directory(partition):
                    if name.endswith(".log"):
                        fuzzed.disk.open(f"{partition}/{name}").truncate(0)

    monkeypatch.setattr(FuzzedNode, "kill", forgetful)
    with pytest.raises(Finding, match="acknowledged"):
        run_seed(0, Tally(), requests=5)


def test_a_step_beyond_its_budget_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "STEP_CALLS_MAX", 3)
    with pytest.raises(Finding, match="calls of the disk"):
        run_seed(0, Tally(), requests=5)
