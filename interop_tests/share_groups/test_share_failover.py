"""Share groups in every state when the leader of their records or their share coordinator dies, hangs or moves, on three
nodes of kafkacompat, and in a cluster of kafkacompat and Apache Kafka.

These tests start both kinds of brokers, whatever kind the other tests use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import BROKER, CONTROLLER, Cluster
from interop_tests.cluster.test_mixed import SETTINGS as MIXED
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.chance import seeded_chance
from interop_tests.share_groups.at_work import AtWork
from interop_tests.share_groups.changes import (
    COORDINATOR,
    LEADER,
    elected,
    killed,
    paused,
    reassigned,
    survive,
)
from interop_tests.share_groups.chaos import run
from interop_tests.share_groups.held_shares import HeldShares
from interop_tests.share_groups.scene import HELD, SETTINGS, Scene
from interop_tests.share_groups.sides import STATE_TOPIC

pytestmark = pytest.mark.needs_control

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[MakeScene]:
    """make_scene(kinds, settings) starts a controller, which is the first kind, and brokers."""
    made: list[Cluster] = []

    def make(kinds: Sequence[str], settings: dict[str, str] | None = None) -> Scene:
        roles = [CONTROLLER] + [BROKER] * (len(kinds) - 1)
        folder = tmp_path / "cluster"
        cluster = Cluster(kinds, folder, len(kinds), roles, SETTINGS | (settings or {}))
        made.append(cluster)
        return Scene(cluster.start())

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[Callable[[Scene], AtWork]]:
    made: list[AtWork] = []

    def begin(scene: Scene) -> AtWork:
        made.append(AtWork(scene, tmp_path))
        return made[-1]

    yield begin
    for each in made:
        each.abandon()


def test_leaders_and_share_coordinators_of_three_nodes_change(
    make_scene: MakeScene, at_work: Callable[[Scene], AtWork]
) -> None:
    scene = make_scene([KAFKACOMPAT] * 4)
    brokers = [node.node_id for node in scene.cluster.brokers]
    scene.place(*brokers)
    work = at_work(scene)
    changes = (
        (killed, LEADER),
        (killed, COORDINATOR),
        (elected, LEADER),
        (reassigned, COORDINATOR),
        (paused, LEADER),
        (paused, COORDINATOR),
    )
    for number, (change, topics) in enumerate(changes):
        survive(scene, work, change, topics, f"{number}-{change.__name__}-{topics[0].strip('_')}")
        brokers = brokers[1:] + brokers[:1]
        scene.place(*brokers)
    work.finish()


def test_leaders_and_share_coordinators_move_between_kafkacompat_and_apache_kafka(
    make_scene: MakeScene, at_work: Callable[[Scene], AtWork]
) -> None:
    """Each kind of node leads while the other one coordinates, and takes over from the other one."""
    scene = make_scene([KAFKACOMPAT, KAFKACOMPAT, APACHE], MIXED)
    ours, theirs = 2, 3
    scene.place(ours, theirs, ours)
    work = at_work(scene)
    kept = HeldShares(scene, "kept")
    kept.begin()
    told = kept.told()
    moves = (
        (elected, COORDINATOR, (ours, ours)),
        (elected, LEADER, (theirs, ours)),
        (elected, COORDINATOR, (theirs, theirs)),
        (elected, LEADER, (ours, theirs)),
        (killed, COORDINATOR, (ours, ours)),
    )
    for number, (change, topics, places) in enumerate(moves):
        survive(scene, work, change, topics, f"{number}-{change.__name__}-{topics[0].strip('_')}")
        assert (scene.home(HELD), scene.home(STATE_TOPIC)) == places
        assert kept.told() == told
    kept.judge()
    work.finish()


if SOAK:  # minutes long

    @pytest.mark.parametrize(
        "kinds", [[KAFKACOMPAT] * 3, [KAFKACOMPAT, KAFKACOMPAT, APACHE]], ids=["ours", "mixed"]
    )
    @pytest.mark.parametrize("number", range(5))
    def test_share_groups_survive_chance(kinds: list[str], number: int, tmp_path: Path) -> None:
        seed = seeded_chance().randrange(1 << 20) + number
        print(run(seed, 180.0, tmp_path, kinds))
