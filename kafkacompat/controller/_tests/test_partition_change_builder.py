"""The record of one partition: leader, ISR and eligible replicas, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller.image import PartitionRegistration
from kafkacompat.controller.partition_change_builder import (
    Election,
    PartitionChangeBuilder,
    completed_reassignment,
)

NEWEST, BEFORE_DIRECTORIES, BEFORE_3_6 = 30, 16, 11
NOTHING: dict[str, Any] = {}


def at(broker_id: int) -> bytes:
    return bytes([*bytes(15), broker_id])


def partition(**fields: Any) -> PartitionRegistration:
    """A partition on 1, 2 and 3, all in sync, led by 1."""
    given = {
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
        "removing_replicas": (),
        "adding_replicas": (),
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "leader_recovering": False,
        "leader_epoch": 5,
        "partition_epoch": 9,
        **fields,
    }
    return PartitionRegistration(directories=tuple(map(at, given["replicas"])), **given)


def built(
    known: PartitionRegistration,
    *,
    isr: tuple[int, ...] | None = None,
    up: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
    level: int = NEWEST,
    elr: bool = True,
    **wanted: Any,
) -> dict[str, Any]:
    """The fields that the record sets. min.insync.replicas is 2."""
    builder = PartitionChangeBuilder(
        known,
        bytes(16),
        7,
        up.__contains__,
        level,
        2,
        elr,
        at,
        known.isr if isr is None else isr,
        **wanted,
    )
    change = builder.build()
    if change is None:
        return NOTHING
    record: Any = change.message
    said = {
        "isr": record.isr,
        "leader": None if record.leader == -2 else record.leader,
        "elr": record.eligible_leader_replicas,
        "last": record.last_known_elr,
        "replicas": record.replicas,
        "removing": record.removing_replicas,
        "adding": record.adding_replicas,
        "directories": record.directories,
        "recovery": None if record.leader_recovery_state == -1 else record.leader_recovery_state,
    }
    return {name: value for name, value in said.items() if value is not None}


def test_nothing_is_written_for_what_is_so_already() -> None:
    assert built(partition()) == NOTHING
    same: dict[str, Any] = {"target_replicas": (1, 2, 3), "target_removing": (), "target_adding": ()}
    assert built(partition(), **same, target_directories={1: at(1)}, target_recovering=False) == NOTHING


@pytest.mark.parametrize(
    ("level", "isr", "change"),
    [
        (NEWEST, (1, 2), {"isr": [1, 2]}),
        (BEFORE_3_6, (1, 2), {"isr": [1, 2], "leader": 1}),
        (BEFORE_3_6, (1, 2, 3, 4), {"isr": [1, 2, 3, 4]}),
    ],
)
def test_only_an_isr_that_shrinks_raised_the_leader_epoch_before_3_6(
    level: int, isr: tuple[int, ...], change: dict[str, Any]
) -> None:
    assert built(partition(), isr=isr, level=level, elr=False) == change


@pytest.mark.parametrize(
    ("up", "change"),
    [
        # A replica out of sync lacks what the ISR has committed without it, eligible or not.
        ((2,), {"isr": [3], "leader": -1, "elr": [1, 2], "last": [1]}),
        ((2, 3), {"isr": [3], "leader": 3, "elr": [1, 2]}),
    ],
)
def test_nobody_eligible_leads_while_somebody_is_in_sync(up: tuple[int, ...], change: dict[str, Any]) -> None:
    known = partition(isr=(1, 3), eligible_leader_replicas=(2,))
    assert built(known, isr=(3,), up=up) == change


def test_an_eligible_replica_leads_where_none_is_in_sync() -> None:
    known = partition(isr=(), leader=-1, eligible_leader_replicas=(2, 3), last_known_elr=(1,))
    assert built(known, up=(3,)) == {"isr": [3], "leader": 3, "elr": [2], "last": []}


@pytest.mark.parametrize(
    ("fields", "elr", "leads"),
    [
        ({}, True, True),
        ({"eligible_leader_replicas": (2,)}, True, False),
        ({"isr": (3,)}, True, False),
        ({"last_known_elr": (1, 2)}, True, False),
        ({"last_known_elr": (4,)}, True, False),
        ({"last_known_elr": ()}, True, False),
    ],
)
def test_the_last_known_leader_leads_where_nobody_else_can(
    fields: dict[str, Any], elr: bool, leads: bool
) -> None:
    known = partition(**{"isr": (), "leader": -1, "last_known_elr": (1,), **fields})
    change = built(known, up=(1, 4), elr=elr)
    assert change.get("leader") == (1 if leads else None)
    if leads:
        assert change == {"isr": [1], "leader": 1, "last": [], "recovery": 1}


def test_the_last_leader_is_remembered_and_not_who_leads_after_it() -> None:
    known = partition(isr=(1,), eligible_leader_replicas=(2,))
    assert built(known, isr=(), up=()) == {"isr": [], "leader": -1, "elr": [1, 2], "last": [1]}
    forgotten = partition(isr=(1,))
    assert built(forgotten, isr=(1,), up=(), elr=False) == {"leader": -1}
    remembered = partition(isr=(2,), leader=2, last_known_elr=(1,))
    assert "last" not in built(remembered, isr=(), up=())


def test_node_0_is_a_leader_like_any_other() -> None:
    known = partition(replicas=(0, 1), isr=(), leader=-1, eligible_leader_replicas=(0,), last_known_elr=(1,))
    assert built(known, up=(0,)) == {"isr": [0], "leader": 0, "elr": [], "last": []}


def test_an_unclean_election_takes_who_is_there_and_forgets_who_was_eligible() -> None:
    known = partition(isr=(1,), eligible_leader_replicas=(3,))
    assert built(known, isr=(1,), up=(2,), election=Election.UNCLEAN) == {
        "isr": [2],
        "leader": 2,
        "elr": [],
        "recovery": 1,
    }


@pytest.mark.parametrize("level", [NEWEST, BEFORE_DIRECTORIES])
def test_directories_are_told_to_those_that_know_of_them(level: int) -> None:
    change = built(
        partition(),
        level=level,
        elr=False,
        target_replicas=(1, 2, 3, 4),
        target_adding=(4,),
    )
    directories = {"directories": [at(each) for each in (1, 2, 3, 4)]} if level == NEWEST else {}
    assert change == {"replicas": [1, 2, 3, 4], "adding": [4], **directories}


def test_a_replica_that_leaves_is_fenced_off_by_a_new_epoch() -> None:
    moving = partition(replicas=(1, 2, 3, 4), isr=(1, 2, 4), removing_replicas=(3,), adding_replicas=(4,))
    assert built(moving, elr=False) == {
        "leader": 1,
        "replicas": [1, 2, 4],
        "removing": [],
        "adding": [],
        "directories": [at(1), at(2), at(4)],
    }


@pytest.mark.parametrize(
    ("removing", "adding", "isr", "after"),
    [
        ((), (), (1,), None),
        ((1,), (4,), (1, 2, 3), None),
        ((1,), (4,), (1, 2, 3, 4), ((2, 3, 4), (2, 3, 4))),
        ((1,), (4,), (1, 4), ((2, 3, 4), (4,))),
        ((1,), (), (1, 2), None),
        ((1,), (), (2, 3, 4), ((2, 3, 4), (2, 3, 4))),
        ((1,), (), (1,), None),
        ((), (4,), (1, 4), ((1, 2, 3, 4), (1, 4))),
        ((1, 2, 3, 4), (), (1, 2), None),
    ],
)
def test_when_a_reassignment_is_complete(
    removing: tuple[int, ...], adding: tuple[int, ...], isr: tuple[int, ...], after: Any
) -> None:
    assert completed_reassignment((1, 2, 3, 4), removing, adding, isr) == after
