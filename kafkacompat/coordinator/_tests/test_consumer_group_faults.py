"""Consumer groups of KIP-848 when requests, logs and times meet in unlucky ways: nothing is lost and nothing hangs."""

from __future__ import annotations

import pytest

from kafkacompat.coordinator._tests.clients import join, subscription
from kafkacompat.coordinator._tests.harness import World, topic_image
from kafkacompat.coordinator._tests.members import Member, described, member_of
from kafkacompat.group.environment import ConsumerGroupSettings, GroupSettings
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.wire.errors import ErrorCode as E


@pytest.fixture
def world() -> World:
    return World(
        GroupSettings(initial_rebalance_delay_ms=0, consumer=ConsumerGroupSettings(assignment_interval_ms=0))
    )


def publish(world: World, **counts: int) -> None:
    """Topics with this many partitions, beside the offsets topic."""
    world.publish(
        [topic_image(OFFSETS_TOPIC, 1), *(topic_image(name, count) for name, count in counts.items())]
    )


def test_a_static_member_that_is_replaced_during_an_assignment_gets_its_part(world: World) -> None:
    publish(world, t=3_000)
    one, two = Member(world, "one", "t", instance="i"), Member(world, "two", "t")
    one.join()
    two.join()
    assert described(world)[0].group_state == "Assigning"
    one.leave(-2)
    again = Member(world, "again", "t", instance="i")
    assert again.join().error_code == E.NONE
    world.time.advance(0)
    again.settle(3)
    two.settle(3)
    assert not member_of(world, "again").target & member_of(world, "two").target
    assert (len(again.partitions), len(two.partitions)) == (1_500, 1_500)
    assert described(world)[0].group_state == "Stable"


def test_a_member_is_fenced_although_the_rest_cannot_become_a_classic_group(world: World) -> None:
    one = Member(world, "one", "t")
    one.join()
    good, bad = ("range", subscription("t")), ("other", b"")
    assert join(world, protocols=(good, bad), version=3).error_code == E.NONE
    for instance in ("i", "j"):  # their votes are for the protocol that the first one fills with nothing
        protocols = (("other", subscription("t")), good)
        assert join(world, protocols=protocols, instance=instance).error_code == E.NONE
    assert one.leave().error_code == E.NONE
    assert "one" not in [each.member_id for each in described(world)[0].members]


def test_a_static_member_stays_if_the_rest_cannot_become_a_classic_group(world: World) -> None:
    one = Member(world, "one", "t", instance="i")
    one.join()
    good, bad = ("range", subscription("t")), ("other", b"")
    assert join(world, protocols=(good, bad), version=3).error_code == E.NONE
    for instance in ("j", "k"):
        protocols = (("other", subscription("t")), good)
        assert join(world, protocols=protocols, instance=instance).error_code == E.NONE
    refused = join(world, protocols=protocols, instance="i")
    assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert one.beat().error_code == E.NONE
