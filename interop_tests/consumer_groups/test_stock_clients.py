"""Stock clients with group.protocol=consumer (KIP-848) on Apache Kafka and on kafkacompat: the same tests on both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from interop_tests.consumer_groups.members import (
    CONFLUENT,
    FRANZ_GO,
    JAVA,
    PLATFORMATIC,
    GuestMember,
    Member,
)
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.java_tools import KafkaTools, ToolOutput
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from kafkacompat.client.blocking import Connection
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

pytestmark = pytest.mark.needs_control

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    # A member of a busy machine is silent for seconds, and may not lose its partitions.
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
GROUPS = "consumer.group.ConsumerGroupCommand"
RECORDS = 10
ALL = list(range(RECORDS))
Unique = Callable[[str], str]
Join = Callable[..., Member]


@pytest.fixture(scope="module", params=[APACHE, KAFKACOMPAT])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker of each kind, with short sessions."""
    broker = BrokerProcess(request.param, tmp_path_factory.mktemp(request.param), SETTINGS)
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.kill()


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def join(served: str, group: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Join]:
    """join(kind, client, topic=...) starts a member of the group. All end with the test. If one is to be killed, it is told."""
    made: list[Member | GuestMember] = []

    def start(kind: str, client: str, is_killed: bool = False, **settings: str) -> Member | GuestMember:
        own = {"bootstrap": served, "group": group, "client": client} | settings
        if kind == JAVA and not is_killed:
            made.append(GuestMember(request.getfixturevalue("java_members"), **own))
        else:
            made.append(Member(kind, tmp_path / f"{client}.log", **own))
        return made[-1]

    yield start
    for member in made:
        member.end()


def filled_topic(bootstrap: str, name: str, partitions: int) -> str:
    """A topic with RECORDS records in each partition."""
    create_topic(bootstrap, name, partitions, None)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        for number in ALL:
            producer.produce(name, str(number), partition=partition)
    assert producer.flush(30) == 0
    return name


def described(bootstrap: str, group: str) -> DescribedGroup:
    """The group as its coordinator describes it. The library of Python clients in the harness does not have this API."""
    host, _, port = bootstrap.rpartition(":")
    connection = Connection(host, int(port))
    try:
        answer = connection.call(
            ConsumerGroupDescribeRequest(group_ids=[group]), ConsumerGroupDescribeResponse
        )
    finally:
        connection.close()
    (found,) = answer.groups
    return found


def is_stable(bootstrap: str, group: str, members: int) -> bool:
    """Whether that many members have what they should have, all in the newest epoch."""
    found = described(bootstrap, group)
    epochs = {found.assignment_epoch, *(member.member_epoch for member in found.members)}
    return found.group_state == "Stable" and len(found.members) == members and epochs == {found.group_epoch}


def committed(bootstrap: str, group: str) -> dict[int, int]:
    """The committed offsets by partition, of a group with one topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {place.partition: place.offset for place in asked[group].result(30).topic_partitions}


def partitions_of(owned: frozenset[str]) -> set[int]:
    return {int(name.rpartition("-")[2]) for name in owned}


def shares(*members: Member) -> list[frozenset[str]]:
    return [member.state.owned for member in members]


def has_read_all(places: list[str], *members: Member) -> bool:
    """Whether each record of these partitions was read, by one of the members and once."""
    found = [(place, member.state.read.get(place, [])) for member in members for place in places]
    read = [(place, offset) for place, offsets in found for offset in offsets]
    assert len(read) == len(set(read)), read
    return len(read) == len(places) * RECORDS


def wait_for_halves(bootstrap: str, group: str, *members: Member) -> None:
    """Wait until two members have two of the four partitions each."""
    wait_until(
        lambda: sorted(map(len, shares(*members))) == [2, 2] and is_stable(bootstrap, group, 2),
        "two members share four partitions",
    )


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("kind", [JAVA, CONFLUENT, FRANZ_GO, PLATFORMATIC])
def test_two_share_and_one_takes_over_where_the_lost_one_committed(
    served: str, group: str, join: Join, unique: Unique, kind: str, assignor: str
) -> None:
    topic = filled_topic(served, unique("topic"), 4)
    stays, lost = (
        join(kind, name, name == "lost", topic=topic, assignor=assignor) for name in ("stays", "lost")
    )
    wait_for_halves(served, group, stays, lost)
    kept, given = map(partitions_of, shares(stays, lost))
    assert kept | given == {0, 1, 2, 3}
    found = described(served, group)
    assert found.assignor_name == assignor
    assert {member.client_id: member.subscribed_topic_names for member in found.members} == {
        "stays": [topic],
        "lost": [topic],
    }
    if assignor == "range":
        assert kept in ({0, 1}, {2, 3})
    # What a member reads only after it was told to forget would look read again.
    for member, owned in ((stays, kept), (lost, given)):
        wait_until(
            lambda member=member, owned=owned: all(
                member.state.read.get(f"{topic}-{each}", [])[-1:] == [RECORDS - 1] for each in owned
            ),
            "each member has read its partitions",
        )
    stays.commit("sync", dict.fromkeys(kept, RECORDS))
    lost.commit("async", dict.fromkeys(given, 4))
    assert committed(served, group) == dict.fromkeys(kept, RECORDS) | dict.fromkeys(given, 4)
    stays.ask("forget")
    lost.kill()
    wait_until(lambda: partitions_of(stays.state.owned) == {0, 1, 2, 3}, "the lost member is replaced")
    expected = {f"{topic}-{each}": ALL[4:] for each in given}
    wait_until(lambda: stays.state.read.keys() == expected.keys(), "the partitions are read on")
    wait_until(
        lambda: sum(map(len, stays.state.read.values())) >= len(given) * (RECORDS - 4),
        "everything uncommitted is read",
    )
    assert stays.state.read == expected
    stays.commit("sync", dict.fromkeys(given, RECORDS))
    stays.close()
    assert committed(served, group) == dict.fromkeys(range(4), RECORDS)
    assert described(served, group).group_state == "Empty"


@pytest.mark.parametrize("kind", [JAVA, CONFLUENT])
def test_a_static_member_restarts_without_a_rebalance(
    served: str, group: str, join: Join, unique: Unique, tools: KafkaTools, kind: str
) -> None:
    topic = filled_topic(served, unique("topic"), 4)
    # A busy machine takes longer than the session of the other tests to start a process again.
    entity = ("--entity-type", "groups", "--entity-name", group)
    session = ("--alter", "--add-config", "consumer.session.timeout.ms=45000")
    tools.run("ConfigCommand", "--bootstrap-server", served, *entity, *session)
    one, two = (join(kind, name, topic=topic, instance=name) for name in ("one", "two"))
    wait_for_halves(served, group, one, two)
    before, other = shares(one, two)
    epoch = described(served, group).group_epoch
    one.close()
    found = described(served, group)
    assert {member.instance_id: member.member_epoch for member in found.members} == {
        "one": -2,
        "two": epoch,
    }
    again = join(kind, "again", topic=topic, instance="one")
    wait_until(lambda: again.state.owned == before, "the member has its partitions again")
    assert two.state.owned == other
    assert is_stable(served, group, 2)
    assert described(served, group).group_epoch == epoch
    fenced = join(kind, "fenced", topic=topic, instance="two")
    error = wait_until(lambda: fenced.ask("state").error, "an instance that is taken is refused")
    assert re.search("(?i)unreleased|instance id is still used", error), error
    assert shares(again, two) == [before, other]


def test_regular_expressions_are_matched_by_the_broker(
    served: str, group: str, join: Join, unique: Unique
) -> None:
    """Kafka resolves the expressions of a group at most every 10 s, for a new one as well as for new topics. So the
    expressions in the first group are the same, and the third client, which writes them differently, has another group.
    """
    stem, other = unique("matched"), unique("other-group")
    topics = [filled_topic(served, f"{stem}-{number}", 2) for number in range(2)]
    filled_topic(served, f"not-{stem}", 1)
    java = join(JAVA, "java", regex=f"(^{stem}-.*)")
    confluent = join(CONFLUENT, "confluent", regex=f"^{stem}-.*")
    franz_go = join(FRANZ_GO, "franz-go", regex=f"^{stem}-.*", group=other)
    expected = {f"{topic}-{partition}" for topic in topics for partition in range(2)}

    def all_owned() -> bool:
        """Whether the partitions of the matching topics are owned, each by one member of each group."""
        owned = [place for share in shares(java, confluent) for place in share]
        return len(owned) == len(expected) and {*owned} == franz_go.state.owned == expected

    wait_until(
        lambda: all_owned() and is_stable(served, group, 2) and is_stable(served, other, 1),
        "all topics are matched",
    )
    assert [len(share) for share in shares(java, confluent)] == [2, 2]
    regexes = {
        member.client_id: member.subscribed_topic_regex
        for each in (group, other)
        for member in described(served, each).members
    }
    assert regexes == {
        "java": f"(^{stem}-.*)",
        "confluent": f"(^{stem}-.*)",
        "franz-go": f"(?:^{stem}-.*)",
    }
    late = filled_topic(served, f"{stem}-late", 2)
    expected |= {f"{late}-0", f"{late}-1"}
    wait_until(all_owned, "a topic that came later is matched")
    for members in ((java, confluent), (franz_go,)):
        wait_until(partial(has_read_all, [f"{late}-0", f"{late}-1"], *members), "it is read")


@pytest.mark.parametrize("kind", [JAVA, CONFLUENT])
def test_an_expression_that_the_broker_cannot_read_is_refused(join: Join, kind: str) -> None:
    """librdkafka reads it first, and knows references to groups. RE2 does not."""
    member = join(kind, "wrong", regex=r"^(a)\1")
    error = wait_until(lambda: member.ask("state").error, "the expression is refused")
    assert re.search("(?i)regular ?expression", error), error


class Command:
    """kafka-consumer-groups.sh on one group."""

    def __init__(self, tools: KafkaTools, bootstrap: str, group: str) -> None:
        self._tools = tools
        self._server = (GROUPS, "--bootstrap-server", bootstrap)
        self._group = group

    def __call__(self, *words: str, status: int | None = 0) -> ToolOutput:
        return self._tools.run(*self._server, *words, "--group", self._group, status=status)

    def listed(self, *words: str) -> list[str]:
        """What --list says of the group after its name."""
        lines = [line.split() for line in self._tools.run(*self._server, "--list", *words).lines]
        return next((line[1:] for line in lines if line[0] == self._group), ["is not listed"])

    def offsets(self) -> dict[str, tuple[str, str, str]]:
        """Current offset, end and lag by partition."""
        rows = self("--describe", "--offsets").rows("GROUP", "TOPIC", "PARTITION")
        return {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows}


def test_the_group_command(served: str, group: str, join: Join, unique: Unique, tools: KafkaTools) -> None:
    topic = filled_topic(served, unique("topic"), 4)
    one, two = (join(CONFLUENT, name, topic=topic) for name in ("one", "two"))
    wait_for_halves(served, group, one, two)
    command = Command(tools, served, group)
    one.commit("sync", dict.fromkeys(partitions_of(one.state.owned), 3))
    two.commit("sync", dict.fromkeys(partitions_of(two.state.owned), 3))
    assert command.listed() == []
    assert command.listed("--type") == ["Consumer"]
    assert command.listed("--state") == ["Stable"]
    assert command.listed("--type", "consumer", "--state", "stable") == ["Consumer", "Stable"]
    assert command.listed("--type", "classic") == ["is not listed"]
    (state,) = command("--describe", "--state", "--verbose").rows("GROUP", "COORDINATOR")
    epoch = str(described(served, group).group_epoch)
    names = ("ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS")
    assert [state[name] for name in names] == ["uniform", "Stable", epoch, epoch, "2"]
    members = command("--describe", "--members", "--verbose").rows("GROUP", "CONSUMER-ID")
    assignments = {
        client: f"{topic}:{','.join(map(str, sorted(partitions_of(member.state.owned))))}"
        for client, member in (("one", one), ("two", two))
    }
    columns = (
        "HOST",
        "#PARTITIONS",
        "CURRENT-EPOCH",
        "TARGET-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-ASSIGNMENT",
    )
    assert {row["CLIENT-ID"]: [row[name] for name in columns] for row in members} == {
        client: ["/127.0.0.1", "2", epoch, epoch, share, share] for client, share in assignments.items()
    }
    assert command.offsets() == {str(each): ("3", "10", "7") for each in range(4)}
    verbose = command("--describe", "--offsets", "--verbose").rows("GROUP", "TOPIC", "PARTITION")
    owners = {str(each): "one" for each in partitions_of(one.state.owned)}
    assert {row["PARTITION"]: row["CLIENT-ID"] for row in verbose} == dict.fromkeys("0123", "two") | owners
    reset = ("--reset-offsets", "--topic", topic)
    assert "GroupNotEmptyException" in command("--delete", status=None).out
    assert "is inactive, but the current state is Stable" in command(*reset, "--to-earliest", "--execute").out
    refused = command("--delete-offsets", "--topic", topic, status=None).out
    assert refused.count("GroupSubscribedToTopicException") == 4
    assert command.offsets() == {str(each): ("3", "10", "7") for each in range(4)}
    one.close()
    two.close()
    assert command.listed("--state") == ["Empty"]
    command(*reset, "--to-offset", "5", "--execute")
    assert command.offsets() == {str(each): ("5", "10", "5") for each in range(4)}
    assert "Successful" in command("--delete-offsets", "--topic", f"{topic}:0").out
    assert command.offsets() == {str(each): ("5", "10", "5") for each in range(1, 4)}
    assert "was successful" in command("--delete").out
    assert command.listed() == ["is not listed"]
    assert described(served, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
