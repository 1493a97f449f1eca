"""Share acknowledgements: what a request must look like, and what each partition is told."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.share._tests.kit import ACCEPT, RELEASE, ShareLeader, codes, rows, taken
from kafkacompat.share.share_partition_manager import WORK_AT_ONCE, AcknowledgementMeter, are_valid, work_of
from kafkacompat.share.values import AcknowledgementBatch
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.one_by_one import OneByOne, Run


def batch(first: int, last: int, *types: int) -> Any:
    return SimpleNamespace(first_offset=first, last_offset=last, acknowledge_types=list(types))


VALID = [
    [],
    [batch(0, 0, 1)],
    [batch(0, 4, 2)],
    [batch(0, 2, 0, 1, 3)],
    [batch(0, 2, 1), batch(3, 3, 2)],
    [batch(0, 2, 1), batch(2, 3, 2)],
]
INVALID = [
    [batch(1, 0, 1)],
    [batch(-2, -1, 1)],
    [batch(0, 0)],
    [batch(0, 1, 1, 1, 1)],
    [batch(0, 0, 5)],
    [batch(0, 0, -1)],
    [batch(0, 1, 1, 9)],
    [batch(3, 4, 1), batch(0, 1, 1)],
    [batch(0, 4, 1), batch(3, 5, 1)],
    [batch(0, 0, 4)],
    [batch(0, 1, 1, 4)],
]


@pytest.mark.parametrize("batches", VALID)
def test_valid_batches(batches: list[Any]) -> None:
    assert are_valid(batches, supports_renew=True, is_renew=False)


@pytest.mark.parametrize("batches", INVALID)
def test_invalid_batches(batches: list[Any]) -> None:
    assert not are_valid(batches, supports_renew=True, is_renew=False)


def test_only_a_renewal_of_a_new_version_may_renew() -> None:
    assert are_valid([batch(0, 1, 1, 4)], supports_renew=True, is_renew=True)
    assert not are_valid([batch(0, 1, 1, 4)], supports_renew=False, is_renew=True)


def test_batches_of_one_offset_each_are_judged_and_counted_alike() -> None:
    """Whether they were read together or one after the other."""
    rng = random.Random(78)
    outcomes = set()
    for _ in range(500):
        runs = []
        first = rng.randrange(-3, 3)
        for _ in range(rng.randrange(1, 4)):
            kinds = [0, 1, 2, 3, 4, 5, 255] if rng.random() < 0.1 else [1, 2, 3, rng.choice([1, 4])]
            runs.append(Run(first, bytes(rng.choices(kinds, k=rng.randrange(1, 6)))))
            first = runs[-1].last_offset + rng.choice([2, 2, 2, 3, 0, -1])
        together = OneByOne(AcknowledgementBatch, runs)
        apart = list(together)
        forms = itertools.product((False, True), repeat=2)
        judged = [
            (are_valid(each, supports_renew=supports, is_renew=renews))
            for supports, renews in forms
            for each in (together, apart)
        ]
        assert judged[::2] == judged[1::2], runs
        outcomes.add(tuple(judged))
        if judged[-1]:
            meters = AcknowledgementMeter(), AcknowledgementMeter()
            meters[0].count(together)
            meters[1].count(apart)
            assert meters[0].by_type == meters[1].by_type
            assert sum(meters[0].by_type) == len(apart)
    assert len(outcomes) == 3  # never good, always good, and good if renewals are


@pytest.mark.parametrize(
    ("types", "takes_steps"),
    [([1] * 2000, False), ([1] * 1999 + [2], True), ([4] * 2000, True), ([1, 2] * 400, False)],
    ids=["one type", "two types", "renewals", "fewer"],
)
def test_what_is_changed_together_is_less_work(types: list[int], takes_steps: bool) -> None:
    batches = OneByOne(AcknowledgementBatch, [Run(7, bytes(types))])
    assert (work_of(batches) > WORK_AT_ONCE) == takes_steps


def filled(records: int = 4) -> ShareLeader:
    world = ShareLeader()
    world.produce("t", 0, *([b"v"] * records))
    world.produce("t", 1)
    world.fetched(partitions=[0, 1])
    return world


def test_one_type_counts_for_a_batch_and_many_for_single_records() -> None:
    world = filled()
    response = world.acknowledged("m", 1, {0: [(0, 1, ACCEPT), (2, 3, RELEASE, ACCEPT)], 1: [(0, 0, ACCEPT)]})
    assert codes(response) == {0: 0, 1: 0}
    assert response.acquisition_lock_timeout_ms == 30_000
    assert taken(world.fetched("b", partitions=[0])) == {0: [(2, 2, 2)]}


def test_one_bad_partition_leaves_the_others_alone() -> None:
    world = filled()
    response = world.acknowledged("m", 1, {0: [(1, 0, ACCEPT)], 1: [(0, 0, ACCEPT)], 2: [(0, 0, ACCEPT)]})
    assert codes(response) == {
        0: ErrorCode.INVALID_REQUEST,
        1: ErrorCode.NONE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert rows(response)[2].error_message == "This server does not host this topic-partition."
    assert rows(response)[0].error_message is None


def test_unknown_and_forbidden_topics() -> None:
    world = filled()
    response = world.acknowledged("m", 1, {0: [(0, 0, ACCEPT)]}, topic_id=b"?" * 16)
    assert codes(response) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
    response = world.acknowledged("m", 2, {0: [(0, 0, ACCEPT)]}, may_read=lambda _: False)
    assert codes(response) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    response = world.acknowledged("m", 3, {9: [(0, 0, ACCEPT)]})
    assert codes(response) == {9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partitions_without_acknowledgements_are_told_beside_others_only() -> None:
    world = filled()
    assert codes(world.acknowledged("m", 1, {0: []})) == {}
    assert codes(world.acknowledged("m", 2, {0: [], 1: [(0, 0, ACCEPT)]})) == {0: 0, 1: 0}


def test_an_acknowledgement_is_answered_when_it_is_written() -> None:
    world = filled()
    world.persister.is_held = True
    answer = world.request_acknowledge("m", 1, {0: [(0, 3, ACCEPT)], 1: [(0, 0, ACCEPT)]})
    assert isinstance(answer, Deferred)
    assert len(world.persister.writes) == 2
    world.persister.answer_all()
    assert codes(answer.result()) == {0: 0, 1: 0}


def test_the_last_acknowledgement_ends_the_session_when_it_is_written() -> None:
    world = filled()
    world.persister.is_held = True
    answer = world.request_acknowledge("m", -1, {0: [(0, 1, ACCEPT)]})
    assert len(world.shares.sessions) == 1
    world.persister.answer_all()
    assert codes(answer.result()) == {0: 0}
    assert len(world.shares.sessions) == 0
    world.persister.answer_all()
    assert taken(world.fetched("b", partitions=[0])) == {0: [(2, 3, 2)]}


def test_many_acknowledgements_take_several_steps() -> None:
    world = ShareLeader(share_partition_max_record_locks="4000")
    world.produce("t", 0, *([b"v"] * 3900))
    assert taken(world.fetched(partitions=[0], max_records=4000)) == {0: [(0, 3899, 1)]}
    response = world.acknowledged("m", 1, {0: [(each, each, ACCEPT) for each in range(3900)]})
    assert codes(response) == {0: 0}
    assert world.core().start_offset == 3900


def test_what_many_partitions_write_takes_several_steps() -> None:
    """A share coordinator on this node writes each change at once."""
    world = ShareLeader(topic_image("t", 30))
    for index in range(30):
        world.produce("t", index)
    assert len(taken(world.fetched(partitions=range(30)))) == 30
    world.result = lambda answer: answer  # type: ignore[method-assign]
    handling = world.request_acknowledge("m", 1, {index: [(0, 0, ACCEPT)] for index in range(30)})
    written = [0]
    answer = None
    while answer is None:
        try:
            handling.send(None)
        except StopIteration as end:
            answer = end.value
        written.append(len(world.persister.writes))
    assert written[-1] == 30
    assert max(after - before for before, after in itertools.pairwise(written)) <= 20
    assert codes(answer) == dict.fromkeys(range(30), ErrorCode.NONE)


def test_too_many_batches_of_a_partition_are_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may renew the lock of one record half a million times in a request. All are judged in one step."""
    monkeypatch.setattr("kafkacompat.share.share_partition_manager.BATCHES_MAX", 4)
    world = filled(records=5)
    response = world.acknowledged("m", 1, {0: [(each, each, ACCEPT) for each in range(5)]})
    assert codes(response) == {0: ErrorCode.INVALID_REQUEST}
    response = world.acknowledged("m", 2, {0: [(each, each, ACCEPT) for each in range(4)]})
    assert codes(response) == {0: ErrorCode.NONE}


def test_too_many_partitions_are_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered, and the answer is made in one step."""
    monkeypatch.setattr("kafkacompat.share.share_partition_manager.ACKNOWLEDGED_MAX", 3)
    world = filled()
    many = {0: [(0, 0, ACCEPT)], 1: (), 7: ()}
    assert world.acknowledged("m", 1, many).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetched("m", 1, partitions=many).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetched("m", 1, partitions=[0, 1, 2], max_wait_ms=0).error_code == ErrorCode.NONE
    del many[7]
    assert codes(world.acknowledged("m", 2, many)) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
