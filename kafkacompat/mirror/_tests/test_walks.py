"""Two clusters that mirror each other in turn, at random: elections and kills on both sides, fail-overs, and turns back."""

from __future__ import annotations

from random import Random

import pytest

from kafkacompat.mirror._tests.test_following import Mirror, Turning, bytes_of, elect, produce
from kafkacompat.partition._tests.cluster import Cluster, values_of

ACTIONS = 40


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.active: Turning | Mirror = Turning()
        self.other: Turning | Mirror | None = None
        """It follows, or is what took records before."""
        self.follows = False
        self.written: list[bytes] = []
        """What the active cluster has acknowledged, or has taken over with."""
        self.count = 0
        self.turns = 0

    def value(self, kind: str) -> bytes:
        self.count += 1
        return f"{kind} {self.count}".encode()

    def act(self) -> None:
        actions = [self.write, self.write, self.write, lambda: self.lead_elsewhere(self.active)]
        actions.append(lambda: self.kill(self.active))
        if self.follows:
            other = self.mirror
            actions += [self.fetch, self.fetch, self.catch_up, self.fail_over]
            actions += [lambda: self.lead_elsewhere(other), lambda: self.kill(other)]
        else:
            actions.append(self.begin_to_follow)
        self.random.choice(actions)()

    @property
    def mirror(self) -> Mirror:
        assert isinstance(self.other, Mirror)
        return self.other

    def write(self) -> None:
        value = self.value("kept")
        produce(self.active, value)
        self.written.append(value)

    def lead_elsewhere(self, cluster: Cluster) -> None:
        partition = cluster.partition()
        others = [each for each in partition.isr if each != partition.leader]
        if others:
            elect(cluster, self.random.choice(others))

    def kill(self, cluster: Cluster) -> None:
        node_id = self.random.choice(cluster.ids)
        if cluster.partition().isr == (node_id,):
            return
        cluster.kill(node_id)
        cluster.settle()
        if self.follows and self.random.random() < 0.5:
            self.fetch()
        cluster.restart(node_id)
        cluster.settle(60_000)

    def begin_to_follow(self) -> None:
        if self.other is None:
            self.other = Mirror(self.active, (1, 2))
        else:
            Turning.turn_back(self.mirror, self.active)  # type: ignore[arg-type]  # it uses what a Mirror has
            self.turns += 1
        self.follows = True
        if self.turns:
            self.catch_up()  # a turn that is stopped before keeps what it was to give up

    def fetch(self) -> None:
        self.mirror.follow(self.random.randrange(1, 3))

    def catch_up(self) -> None:
        self.mirror.follow()
        assert bytes_of(self.mirror.log()) == bytes_of(self.active.leader().log())

    def fail_over(self) -> None:
        mirror = self.mirror
        mirror.put_state("stopped")
        found = list(values_of(mirror.log(), 999).values())
        assert found == self.written[: len(found)]
        self.written = found
        self.active, self.other, self.follows = mirror, self.active, False
        for _ in range(self.random.randrange(3)):
            produce(self.other, self.value("lost"))

    def end(self) -> None:
        if not self.follows:
            self.begin_to_follow()
        self.catch_up()
        for cluster in (self.active, self.mirror):
            cluster.settle(60_000)
            for node in cluster.nodes.values():
                assert list(values_of(node.log(), 999).values()) == self.written
                epochs = node.log().epoch_entries  # type: ignore[attr-defined]  # of the real log
                assert epochs == sorted(epochs)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_but_what_was_not_mirrored(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(ACTIONS):
        walk.act()
    walk.end()
    assert walk.written
