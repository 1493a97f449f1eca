"""What happens to nodes of a cluster while share groups are held in their states, and others are at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from interop_tests.cluster import moving
from interop_tests.share_groups.at_work import AtWork
from interop_tests.share_groups.held_shares import HeldShares
from interop_tests.share_groups.scene import HELD, LOAD, OFFSETS_TOPIC, Scene
from interop_tests.share_groups.sides import STATE_TOPIC

LEADER, COORDINATOR, GROUPS = (HELD, LOAD), (STATE_TOPIC,), (OFFSETS_TOPIC,)
"""The topics whose leader is the victim."""

Change = Callable[[Scene, int, Sequence[str]], Iterator[None]]
"""What happens to a node and to the topics that it leads, in three parts: what is done before, the blow, and the rest,
until others lead."""


def are_moved(scene: Scene, node_id: int, topics: Sequence[str]) -> None:
    for topic in topics:
        scene.cluster.wait(
            lambda topic=topic: (
                (found := scene.leader(topic)) and found.address != scene.cluster.nodes[node_id].bootstrap
            ),
            f"another node than {node_id} leads {topic}",
        )


def killed(scene: Scene, node_id: int, topics: Sequence[str]) -> Iterator[None]:
    """kill -9."""
    yield
    scene.cluster.nodes[node_id].kill()
    yield
    are_moved(scene, node_id, topics)


def stopped(scene: Scene, node_id: int, topics: Sequence[str]) -> Iterator[None]:
    """SIGTERM: the node hands its leaderships over."""
    yield
    node = scene.cluster.nodes[node_id]
    node.terminate()
    if node.is_paused:
        node.resume()
    yield
    are_moved(scene, node_id, topics)
    assert node.wait_until_ended() in (0, 143)


def paused(scene: Scene, node_id: int, topics: Sequence[str]) -> Iterator[None]:
    """SIGSTOP until its session has expired and others lead, and SIGCONT."""
    yield
    if not scene.cluster.nodes[node_id].is_paused:
        scene.cluster.nodes[node_id].pause()
    yield
    are_moved(scene, node_id, topics)
    scene.cluster.nodes[node_id].resume()


def next_broker(scene: Scene, node_id: int) -> int:
    ids = sorted(node.node_id for node in scene.cluster.brokers)
    return ids[(ids.index(node_id) + 1) % len(ids)]


def elected(scene: Scene, node_id: int, topics: Sequence[str]) -> Iterator[None]:
    """Another replica is preferred, and elected."""
    for topic in topics:
        moving.prefer(scene.cluster, topic, next_broker(scene, node_id))
    yield
    for topic in topics:
        moving.elect_preferred(scene.cluster, topic)
    yield
    are_moved(scene, node_id, topics)


def reassigned(scene: Scene, node_id: int, topics: Sequence[str]) -> Iterator[None]:
    """The partitions are taken from the node."""
    others = [node.node_id for node in scene.cluster.brokers if node.node_id != node_id]
    yield
    for topic in topics:
        moving.reassign(scene.cluster, topic, others, is_awaited=False)
    yield
    are_moved(scene, node_id, topics)


def survive(
    scene: Scene,
    work: AtWork,
    change: Change,
    topics: Sequence[str],
    name: str,
    hesitate: Callable[[], None] = lambda: None,
) -> None:
    """Hold groups in every state while `change` happens to the node that leads the topics. `hesitate` is called between
    what belongs together."""
    cluster = scene.cluster
    victim, coordinator = scene.home(topics[0]), cluster.nodes[scene.home(STATE_TOPIC)]
    held = HeldShares(scene, name)
    try:
        work.go_on(5)
        held.begin()
        blows = change(scene, victim, topics)
        next(blows)
        work.turmoil()
        held.fly()
        hesitate()
        # What is sent now waits for the share coordinator, when the blow comes.
        coordinator.pause()
        held.ask()
        hesitate()
        next(blows)
        hesitate()
        if coordinator.is_running and coordinator.is_paused and coordinator.node_id != victim:
            coordinator.resume()
        next(blows, None)
        if coordinator.is_running and coordinator.is_paused:
            coordinator.resume()
        held.judge()
        work.write(5)
        cluster.mend()
        work.calm()
        work.go_on(5)
    except AssertionError as error:
        error.add_note(f"{name}, {victim} led {topics}\n{cluster.logs()}")
        raise
    finally:
        held.close()
