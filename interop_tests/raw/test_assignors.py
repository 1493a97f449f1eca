"""The server-side assignors and the metadata hash of groups, compared with Kafka's own classes on random groups.

If all members subscribe to the same topics, Kafka's uniform assignor gives away the partitions that nobody has in the
order of a hash table of topics. With several topics this order decides who gets which partition, but not how many each
member gets, nor what it keeps. The same holds for the simple assignor of share groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from interop_tests.raw.kafka_assignors import HashedTopic, kafkas_assignments, kafkas_hashes, kafkas_shares
from kafkacompat.group._tests.consumer.groups import chain, moved, run, sizes
from kafkacompat.group.consumer import range_assignor, uniform_assignor
from kafkacompat.group.consumer.assignor import Assignment, GroupSpec, MemberSpec
from kafkacompat.group.modern_group import group_hash, topic_hash
from kafkacompat.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec
from kafkacompat.group.share.simple_assignor import assign as assign_shares
from kafkacompat.ids import Uuid

GROUPS = 400
LETTERS = ["a", "b", "Z", "0", "é", "\ue000", "\U0001f600"]


def text(random: Random) -> str:
    return "".join(random.choices(LETTERS, k=random.randint(1, 6)))


def texts(random: Random, count: int) -> list[str]:
    """Different ones, in random order."""
    return list({text(random): None for _ in range(count)})


def random_group(random: Random, topics: int, *, homogeneous: bool) -> GroupSpec:
    """Members with random subscriptions, and a previous assignment that is neither balanced nor complete."""
    scale = random.choice([4, 20, 60])
    counts = {random.randbytes(16): random.randint(1, scale) for _ in range(random.randint(1, topics))}
    deleted = random.randbytes(16)
    member_ids = texts(random, random.randint(1, scale))
    static = texts(random, random.randint(0, len(member_ids)))
    subscription = frozenset(random.sample([*counts, deleted], random.randint(1, len(counts) + 1)))
    # Some subscriptions occur more often than others.
    others = [
        frozenset(random.sample([*counts, deleted], random.randint(0, len(counts) + 1))) for _ in range(3)
    ]
    assigned: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in member_ids}
    owners = random.sample(member_ids, random.randint(1, len(member_ids)))
    share = random.choice([0.0, 0.5, 0.9, 1.0])
    for topic_id, count in [*counts.items(), (deleted, 3)]:
        for partition in range(count):
            if random.random() < share:
                assigned[random.choice(owners)].setdefault(topic_id, set()).add(partition)
    members = {
        member_id: MemberSpec(
            static[number] if number < len(static) else None,
            None,
            subscription if homogeneous else random.choice([subscription, *others]),
            {topic_id: frozenset(numbers) for topic_id, numbers in assigned[member_id].items()},
        )
        for number, member_id in enumerate(member_ids)
    }
    return GroupSpec(members, counts, homogeneous)


def random_groups(seed: int, topics: int, *, homogeneous: bool) -> list[GroupSpec]:
    random = Random(seed)
    return [random_group(random, topics, homogeneous=homogeneous) for _ in range(GROUPS)]


def complete(spec: GroupSpec, target: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Kafka leaves out members if the group has no topics."""
    return {member_id: target.get(member_id, {}) for member_id in spec.members}


@pytest.mark.parametrize("homogeneous", [True, False], ids=["same-topics", "different-topics"])
def test_range_assigns_as_kafka_does(homogeneous: bool) -> None:
    specs = random_groups(1, 8, homogeneous=homogeneous)
    for spec, target in zip(specs, kafkas_assignments("range", specs), strict=True):
        assert run(range_assignor.assign(spec)) == complete(spec, target)


@pytest.mark.parametrize(
    ("topics", "homogeneous"), [(1, True), (8, False)], ids=["same-topic", "different-topics"]
)
def test_uniform_assigns_as_kafka_does(topics: int, homogeneous: bool) -> None:
    specs = random_groups(2, topics, homogeneous=homogeneous)
    for spec, target in zip(specs, kafkas_assignments("uniform", specs), strict=True):
        assert run(uniform_assignor.assign(spec)) == complete(spec, target)


def test_uniform_stops_balancing_when_kafka_does() -> None:
    """The number of rounds is limited, and these groups need more."""
    specs = [chain(8, 300), chain(6, 1000)]
    for spec, target in zip(specs, kafkas_assignments("uniform", specs), strict=True):
        assert run(uniform_assignor.assign(spec)) == target


def test_uniform_moves_what_kafka_does() -> None:
    specs = random_groups(3, 8, homogeneous=True)
    moves = 0
    for spec, target in zip(specs, kafkas_assignments("uniform", specs), strict=True):
        ours, kafkas = run(uniform_assignor.assign(spec)), complete(spec, target)
        assert sizes(ours) == sizes(kafkas)
        before = {member_id: dict(member.assigned) for member_id, member in spec.members.items()}
        assert moved(before, ours) == moved(before, kafkas)
        moves += len(moved(before, ours))
    assert moves > GROUPS, "the random groups need moves"


def test_hashes_are_kafkas() -> None:
    random = Random(4)
    groups = []
    for _ in range(GROUPS):
        names = {f"topic{random.choice('._-')}{random.randrange(100)}" for _ in range(random.randint(0, 5))}
        racks = texts(random, 4)
        groups.append(
            [
                HashedTopic(
                    random.randbytes(16),
                    name,
                    [random.choices(racks, k=random.randint(0, 3)) for _ in range(random.randint(1, 40))],
                )
                for name in sorted(names)
            ]
        )
    for topics, (hashes, hash_of_group) in zip(groups, kafkas_hashes(groups), strict=True):
        ours = {
            name: topic_hash(topic_id, name, len(racks), racks if any(racks) else None)
            for topic_id, name, racks in topics
        }
        assert ours == hashes
        assert group_hash(ours) == hash_of_group


SHARERS_MAX, SHARED_MAX = 12, 12
"""Members, and partitions of a topic: so few, and without gaps, that Kafka's hash tables of their numbers are in order."""


def random_share_groups(seed: int, *, homogeneous: bool) -> list[ShareGroupSpec]:
    """Groups that change: members come and go, change their topics, and partitions get a state."""
    random = Random(seed)
    specs: list[ShareGroupSpec] = []
    for _ in range(GROUPS // 5):
        topics = [random.randbytes(16) for _ in range(random.randint(1, 4))]
        counts = {each: random.randint(0, SHARED_MAX // 2) for each in topics}
        same = frozenset(random.sample(topics, random.randint(1, len(topics))))
        members: dict[str, ShareMemberSpec] = {}
        for _ in range(5):
            for _ in range(random.randint(1, 4)):
                names = (
                    same if homogeneous else frozenset(random.sample(topics, random.randint(0, len(topics))))
                )
                name = f"m{random.randrange(SHARERS_MAX)}"
                if name in members and random.random() < 0.4:
                    del members[name]
                else:
                    former = members[name].assigned if name in members else {}
                    members[name] = ShareMemberSpec(names, former)
            if random.random() < 0.5:
                topic = random.choice(topics)
                counts[topic] = min(counts[topic] + 1, SHARED_MAX)
            if not members:
                continue
            assignable = {each: range(count) for each, count in counts.items()}
            spec = ShareGroupSpec(dict(members), assignable, homogeneous)
            specs.append(spec)
            for name, assigned in run(assign_shares(spec)).items():
                members[name] = ShareMemberSpec(members[name].topic_ids, assigned)
    return specs


def test_simple_assigns_as_kafka_does() -> None:
    specs = random_share_groups(5, homogeneous=False)
    for spec, target in zip(specs, kafkas_shares(specs), strict=True):
        ours = run(assign_shares(spec))
        assert ours == {member_id: target.get(member_id, {}) for member_id in spec.members}


def shares_of(target: Mapping[str, Assignment]) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, partition)
        for assigned in target.values()
        for topic_id, partitions in assigned.items()
        for partition in partitions
    ]


def test_simple_gives_each_member_as_much_as_kafka_does() -> None:
    specs = random_share_groups(6, homogeneous=True)
    for spec, target in zip(specs, kafkas_shares(specs), strict=True):
        ours, kafkas = run(assign_shares(spec)), {name: target.get(name, {}) for name in spec.members}
        assert sizes(ours) == sizes(kafkas)
        shared = [sorted(Counter(shares_of(target)).values()) for target in (ours, kafkas)]
        assert shared[0] == shared[1]
