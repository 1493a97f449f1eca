"""`kafkacompat groups` on scripted brokers: which request it sends for a group, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.__main__ import main
from kafkacompat.client import blocking
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kafkacompat.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from kafkacompat.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup as ClassicGroup
from kafkacompat.wire.messages.describe_groups_response import DescribeGroupsResponse
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseGroup as DescribedGroupOffsets,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponsePartition as DescribedOffset,
)
from kafkacompat.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseTopic as DescribedOffsets,
)
from kafkacompat.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from kafkacompat.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kafkacompat.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkacompat.wire.messages.share_group_describe_response import Assignment as ShareAssignment
from kafkacompat.wire.messages.share_group_describe_response import DescribedGroup as ShareGroup
from kafkacompat.wire.messages.share_group_describe_response import Member as ShareMember
from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
from kafkacompat.wire.messages.share_group_describe_response import TopicPartitions as SharePartitions
from kafkacompat.wire.messages.streams_group_describe_response import Assignment as TaskAssignment
from kafkacompat.wire.messages.streams_group_describe_response import DescribedGroup as StreamsGroup
from kafkacompat.wire.messages.streams_group_describe_response import Member as StreamsMember
from kafkacompat.wire.messages.streams_group_describe_response import (
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

BOOTSTRAP = ("--bootstrap", "h:9092")
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
Answers = dict[int, Message]
Run = Callable[..., list[str]]


class ScriptedBroker:
    """Stands for every connection of the commands. Each answer passes through the codec of the version asked for."""

    def __init__(self, answers: Answers, versions: dict[int, int], first: Answers) -> None:
        """`first` are the answers to the first request of their kind."""
        self.answers = base_answers() | answers
        self.first = dict(first)
        self.versions = versions
        self.asked: list[ApiKey] = []
        self.is_lost = False

    def call(
        self, request: Any, response_type: Any, max_version: int | None = None, timeout_s: float | None = None
    ) -> Any:
        key = ApiKey(request.API_KEY)
        self.asked.append(key)
        most = request.MAX_VERSION if max_version is None else max_version
        version = min(most, self.versions.get(key, request.MAX_VERSION))
        answer = self.first.pop(key) if key in self.first else self.answers[key]
        return decode(response_type, version, encode(answer, version))

    def serves(self, api_key: int, version: int) -> bool:
        return version <= self.versions.get(api_key, 99)

    def close(self) -> None:
        self.is_lost = True


def base_answers() -> Answers:
    """One broker that leads the two partitions of topic t, with 10 records each. The group has read 4 of the first."""
    partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(2)]
    ends = [
        ListOffsetsPartitionResponse(partition_index=number, timestamp=-1, offset=10) for number in range(2)
    ]
    committed = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=4)]
    topics = [OffsetFetchResponseTopics(name="t", partitions=committed)]
    return {
        ApiKey.METADATA: MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=9092)],
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        ),
        ApiKey.FIND_COORDINATOR: FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=1, host="h", port=9092)]
        ),
        ApiKey.LIST_OFFSETS: ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="t", partitions=ends)]
        ),
        ApiKey.OFFSET_FETCH: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)]
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: share_group(error_code=NOT_FOUND),
        ApiKey.STREAMS_GROUP_DESCRIBE: streams_group(error_code=NOT_FOUND),
    }


def streams_group(*members: StreamsMember, **fields: Any) -> StreamsGroupDescribeResponse:
    known: dict[str, Any] = {
        "group_id": "g",
        "group_state": "Stable",
        "group_epoch": 7,
        "assignment_epoch": 6,
    } | fields
    return StreamsGroupDescribeResponse(
        groups=[StreamsGroup(members=list(members), assignor_name="sticky", **known)]
    )


def tasks(**numbers: list[int]) -> list[TaskIds]:
    """s0=[1, 2]: tasks of subtopology 0."""
    return [
        TaskIds(subtopology_id=name.removeprefix("s"), partitions=partitions)
        for name, partitions in numbers.items()
    ]


def share_group(*members: ShareMember, **fields: Any) -> ShareGroupDescribeResponse:
    known: dict[str, Any] = {
        "group_id": "g",
        "group_state": "Stable",
        "group_epoch": 7,
        "assignment_epoch": 6,
    } | fields
    return ShareGroupDescribeResponse(
        groups=[ShareGroup(members=list(members), assignor_name="simple", **known)]
    )


def share_offsets(*partitions: tuple[int, int, int]) -> DescribeShareGroupOffsetsResponse:
    """Partition, start offset and lag."""
    made = [
        DescribedOffset(partition_index=number, start_offset=start, lag=lag)
        for number, start, lag in partitions
    ]
    topics = [DescribedOffsets(topic_name="t", partitions=made)] if made else []
    return DescribeShareGroupOffsetsResponse(groups=[DescribedGroupOffsets(group_id="g", topics=topics)])


def consumer_group(*members: Member, **fields: Any) -> ConsumerGroupDescribeResponse:
    known: dict[str, Any] = {
        "group_id": "g",
        "group_state": "Stable",
        "group_epoch": 7,
        "assignment_epoch": 6,
    } | fields
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(members=list(members), assignor_name="uniform", **known)]
    )


def refused(code: ErrorCode) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id="g", error_code=code, error_message="no")]
    )


def classic_group(code: ErrorCode = ErrorCode.NONE) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[ClassicGroup(group_id="g", error_code=code, group_state="Empty", protocol_type="consumer")]
    )


def assignment(**topics: list[int]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=bytes(16), topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    )


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """groups("describe", "g", answers={...}) runs the command, and returns the lines that it printed."""

    def run(
        *words: str,
        answers: Answers,
        versions: dict[int, int] | None = None,
        first: Answers | None = None,
        status: int = 0,
    ) -> list[str]:
        broker = ScriptedBroker(answers, versions or {}, first or {})
        monkeypatch.setattr(blocking, "Connection", lambda *_: broker)
        assert main(["groups", *words, *BOOTSTRAP]) == status
        said = capsys.readouterr()
        return (said.err if status else said.out).splitlines()

    return run


def test_a_consumer_group_is_shown_with_its_epochs_and_both_assignments(groups: Run) -> None:
    moving = Member(
        member_id="b",
        member_epoch=6,
        client_id="one",
        client_host="/127.0.0.1",
        subscribed_topic_names=["u", "t"],
        assignment=assignment(u=[0], t=[1, 0]),
        target_assignment=assignment(t=[0]),
        member_type=1,
    )
    old = Member(
        member_id="a",
        instance_id="i",
        member_epoch=7,
        client_id="two",
        client_host="/127.0.0.2",
        subscribed_topic_regex="t.*",
        target_assignment=assignment(t=[1]),
        member_type=0,
    )
    answers: Answers = {
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group(moving, old, group_state="Reconciling")
    }
    lines = groups("describe", "g", answers=answers)
    assert lines[:2] == [
        "g: Reconciling, 2 members",
        "type consumer, group epoch 7, target assignment epoch 6, assignor uniform",
    ]
    assert [line.split() for line in lines[2:5]] == [
        [
            "member",
            "epoch",
            "type",
            "instance",
            "client",
            "host",
            "subscribed",
            "regex",
            "assigned",
            "target",
        ],
        ["a", "7", "classic", "i", "two", "/127.0.0.2", "-", "t.*", "-", "t:1"],
        ["b", "6", "consumer", "-", "one", "/127.0.0.1", "t,u", "-", "t:0,1;u:0", "t:0"],
    ]
    assert lines[-1].split() == ["t", "0", "4", "10", "6", "b"]


def test_version_0_does_not_tell_the_type_of_a_member(groups: Run) -> None:
    answers: Answers = {ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group(Member(member_id="a", member_type=1))}
    lines = groups("describe", "g", answers=answers, versions={ApiKey.CONSUMER_GROUP_DESCRIBE: 0})
    assert lines[3].split()[:3] == ["a", "0", "-"]


def test_a_consumer_group_without_members_has_no_table_of_them(groups: Run) -> None:
    answers: Answers = {ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group(group_state="Empty")}
    lines = groups("describe", "g", answers=answers)
    assert lines[0] == "g: Empty, 0 members"
    assert [line.split() for line in lines[2:]] == [
        ["topic", "partition", "offset", "end", "lag", "member"],
        ["t", "0", "4", "10", "6", "-"],
    ]


@pytest.mark.parametrize(
    ("answers", "versions"),
    [
        ({ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND)}, {}),
        ({ApiKey.CONSUMER_GROUP_DESCRIBE: refused(ErrorCode.UNSUPPORTED_VERSION)}, {}),
        ({}, {ApiKey.CONSUMER_GROUP_DESCRIBE: -1}),
    ],
    ids=["another type", "the protocol is disabled", "an older broker"],
)
def test_a_classic_group_is_asked_for_as_before(
    groups: Run, answers: Answers, versions: dict[int, int]
) -> None:
    lines = groups(
        "describe", "g", answers=answers | {ApiKey.DESCRIBE_GROUPS: classic_group()}, versions=versions
    )
    assert lines[0] == "g: Empty, 0 members"
    assert lines[1].split()[0] == "topic"


def test_a_streams_group_is_shown_with_its_tasks_and_its_topology(groups: Run) -> None:
    topology = Topology(
        epoch=3,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["u", "t"], repartition_sink_topics=["app-r"]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name="app-r")],
                state_changelog_topics=[TopicInfo(name="app-s"), TopicInfo(name="app-c")],
            ),
        ],
    )
    members = [
        StreamsMember(
            member_id="b",
            member_epoch=7,
            topology_epoch=3,
            process_id="p",
            client_id="one",
            client_host="/127.0.0.1",
            assignment=TaskAssignment(
                active_tasks=tasks(s1=[2, 0], s0=[0]), standby_tasks=tasks(s1=[1]), warmup_tasks=tasks(s1=[3])
            ),
            target_assignment=TaskAssignment(active_tasks=tasks(s1=[2]), standby_tasks=tasks(s1=[0])),
        ),
        StreamsMember(member_id="a", instance_id="i", member_epoch=6, topology_epoch=2),
    ]
    answers: Answers = {
        ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
        ApiKey.STREAMS_GROUP_DESCRIBE: streams_group(*members, topology=topology),
    }
    lines = groups("describe", "g", answers=answers)
    assert lines[:2] == [
        "g: Stable, 2 members",
        "type streams, group epoch 7, target assignment epoch 6, assignor sticky",
    ]
    assert lines[2].split()[:8] == [
        "member",
        "epoch",
        "topology",
        "process",
        "instance",
        "client",
        "host",
        "active",
    ]
    assert [line.split() for line in lines[3:5]] == [
        ["a", "6", "2", "-", "i", "-", "-", "-", "-", "-", "-", "-"],
        ["b", "7", "3", "p", "-", "one", "/127.0.0.1", "0:0;1:0,2", "1:1", "1:3", "1:2", "1:0"],
    ]
    assert lines[5] == "topology epoch 3"
    assert [line.split() for line in lines[7:9]] == [
        ["0", "t,u", "-", "app-r", "-"],
        ["1", "-", "app-r", "-", "app-c,app-s"],
    ]
    assert lines[-1].split() == ["t", "0", "4", "10", "6", "b"]


def test_a_streams_group_of_an_older_broker_is_shown_without_a_topology(groups: Run) -> None:
    answers: Answers = {
        ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
        ApiKey.STREAMS_GROUP_DESCRIBE: streams_group(group_state="Empty"),
    }
    lines = groups("describe", "g", answers=answers, versions={ApiKey.STREAMS_GROUP_DESCRIBE: 0})
    assert lines[:3] == [
        "g: Empty, 0 members",
        "type streams, group epoch 7, target assignment epoch 6, assignor -",
        lines[2],
    ]
    assert lines[2].split()[0] == "topic"


def test_a_group_of_no_known_type_is_shown_without_members_and_an_unknown_one_is_refused(
    groups: Run,
) -> None:
    answers: Answers = {
        ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
        ApiKey.DESCRIBE_GROUPS: classic_group(NOT_FOUND),
        ApiKey.LIST_GROUPS: ListGroupsResponse(groups=[ListedGroup(group_id="g", group_type="streams")]),
    }
    lines = groups("describe", "g", answers=answers)
    assert (
        lines[0]
        == "g is neither a classic, a consumer, a share nor a streams group, so its members are not shown"
    )
    (line,) = groups("describe", "g", answers=answers | {ApiKey.LIST_GROUPS: ListGroupsResponse()}, status=1)
    assert line == "kafkacompat: group g: GROUP_ID_NOT_FOUND"


@pytest.mark.parametrize("kind", ["share", "consumer"])
def test_a_group_that_begins_between_two_questions_is_found(groups: Run, kind: str) -> None:
    """Its type was asked for while it did not exist yet, and then the list has it."""
    if kind == "share":
        described: Answers = {
            ApiKey.SHARE_GROUP_DESCRIBE: share_group(),
            ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets(),
        }
    else:
        described = {ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group()}
    answers: Answers = described | {
        ApiKey.DESCRIBE_GROUPS: classic_group(NOT_FOUND),
        ApiKey.LIST_GROUPS: ListGroupsResponse(groups=[ListedGroup(group_id="g", group_type=kind)]),
    }
    before: Answers = {
        ApiKey.SHARE_GROUP_DESCRIBE: share_group(error_code=NOT_FOUND),
        ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
    }
    lines = groups("describe", "g", answers=answers, first=before)
    assert lines[0] == "g: Stable, 0 members"
    assert lines[1].startswith(f"type {kind}, ")


def test_a_refusal_is_no_group_of_another_type(groups: Run) -> None:
    answers: Answers = {ApiKey.CONSUMER_GROUP_DESCRIBE: refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    (line,) = groups("describe", "g", answers=answers, status=1)
    assert line == "kafkacompat: group g: GROUP_AUTHORIZATION_FAILED (no)"


def test_groups_of_all_types_are_listed(groups: Run) -> None:
    listed = [
        ListedGroup(group_id="new", group_state="Assigning", group_type="consumer", protocol_type="consumer"),
        ListedGroup(group_id="made", group_state="Empty", group_type="classic"),
    ]
    lines = groups("list", answers={ApiKey.LIST_GROUPS: ListGroupsResponse(groups=listed)})
    assert [line.split() for line in lines] == [
        ["group", "state", "type", "protocol"],
        ["made", "Empty", "classic"],
        ["new", "Assigning", "consumer", "consumer"],
    ]


def test_a_broker_that_still_loads_groups_is_asked_again(
    groups: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells none of its groups until then."""
    monkeypatch.setattr(blocking.Backoff, "wait", lambda _: None)
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    listed = ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state="Empty")])
    lines = groups("list", answers={ApiKey.LIST_GROUPS: listed}, first={ApiKey.LIST_GROUPS: loading})
    assert [line.split()[0] for line in lines] == ["group", "g"]


def test_a_group_is_not_called_unknown_while_groups_cannot_be_listed(groups: Run) -> None:
    answers: Answers = {
        ApiKey.CONSUMER_GROUP_DESCRIBE: refused(NOT_FOUND),
        ApiKey.DESCRIBE_GROUPS: classic_group(NOT_FOUND),
        ApiKey.LIST_GROUPS: ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    }
    (line,) = groups("describe", "g", answers=answers, status=1)
    assert line == "kafkacompat: groups of broker 1: CLUSTER_AUTHORIZATION_FAILED"


def test_offsets_of_a_group_with_members_are_not_moved(groups: Run) -> None:
    partitions = [
        OffsetCommitResponsePartition(partition_index=number, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        for number in range(2)
    ]
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])
    (line,) = groups(
        *("reset", "g", "--topic", "t", "--to-latest"),
        answers={ApiKey.OFFSET_COMMIT: answer},
        status=1,
    )
    assert line == "kafkacompat: group g has members; stop them first"


def test_a_share_group_is_shown_with_members_start_offsets_and_lag(groups: Run) -> None:
    parts = [SharePartitions(topic_id=bytes(16), topic_name="t", partitions=[1, 0])]
    members = [
        ShareMember(
            member_id=name,
            member_epoch=7,
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=["u", "t"],
            assignment=ShareAssignment(topic_partitions=parts if name == "a" else []),
        )
        for name in ("b", "a")
    ]
    answers: Answers = {
        ApiKey.SHARE_GROUP_DESCRIBE: share_group(*members),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets((1, -1, -1), (0, 4, 5)),
    }
    lines = groups("describe", "g", answers=answers)
    assert lines[:2] == [
        "g: Stable, 2 members",
        "type share, group epoch 7, target assignment epoch 6, assignor simple",
    ]
    assert [line.split() for line in lines[2:]] == [
        ["member", "epoch", "client", "host", "subscribed", "assigned"],
        ["a", "7", "c", "/127.0.0.1", "t,u", "t:0,1"],
        ["b", "7", "c", "/127.0.0.1", "t,u", "-"],
        ["topic", "partition", "start", "end", "lag", "members"],
        ["t", "0", "4", "10", "5", "1"],
        ["t", "1", "-", "10", "-", "1"],
    ]
    older = groups("describe", "g", answers=answers, versions={ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0})
    assert older[-2].split() == ["t", "0", "4", "10", "-", "1"]


def test_an_older_broker_is_not_asked_for_share_groups(groups: Run) -> None:
    answers: Answers = {ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group(group_state="Empty")}
    lines = groups("describe", "g", answers=answers, versions={ApiKey.SHARE_GROUP_DESCRIBE: -1})
    assert lines[0] == "g: Empty, 0 members"


def altered(top: int = 0, *codes: int) -> AlterShareGroupOffsetsResponse:
    partitions = [
        AlterShareGroupOffsetsResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    topics = [AlterShareGroupOffsetsResponseTopic(topic_name="t", partitions=partitions)]
    return AlterShareGroupOffsetsResponse(error_code=top, responses=topics)


def test_a_share_group_begins_elsewhere_if_it_has_no_members(groups: Run) -> None:
    reset = ("reset", "g", "--topic", "t", "--to-latest")
    empty: Answers = {ApiKey.SHARE_GROUP_DESCRIBE: share_group()}
    lines = groups(*reset, answers=empty | {ApiKey.ALTER_SHARE_GROUP_OFFSETS: altered(0, 0, 0)})
    assert [line.split() for line in lines[1:]] == [["t", "0", "10"], ["t", "1", "10"]]
    for refused in (altered(ErrorCode.NON_EMPTY_GROUP), altered(0, 0, ErrorCode.NON_EMPTY_GROUP)):
        (line,) = groups(*reset, answers=empty | {ApiKey.ALTER_SHARE_GROUP_OFFSETS: refused}, status=1)
        assert line == "kafkacompat: group g has members; stop them first"
    groups(*reset, "--dry-run", answers=empty)  # nothing is sent, for which there would be no answer


def test_a_share_group_forgets_a_topic(groups: Run) -> None:
    forget = ("delete-offsets", "g", "--topic", "t")
    for code, expected in (
        (0, "deleted the offsets of t"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "kafkacompat: topic t: UNKNOWN_TOPIC_OR_PARTITION (no)"),
    ):
        topics = [DeleteShareGroupOffsetsResponseTopic(topic_name="t", error_code=code, error_message="no")]
        answers: Answers = {
            ApiKey.SHARE_GROUP_DESCRIBE: share_group(),
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsResponse(responses=topics),
        }
        assert groups(*forget, answers=answers, status=int(code != 0)) == [expected]


def test_settings_of_a_group_are_changed(groups: Run) -> None:
    done = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse()])
    answers: Answers = {ApiKey.INCREMENTAL_ALTER_CONFIGS: done}
    words = ("--config", "share.delivery.count.limit=3", "--unset", "share.isolation.level")
    assert groups("alter", "g", *words, answers=answers) == ["altered g"]
    (line,) = groups("alter", "g", answers={}, status=1)
    assert line == "kafkacompat: groups alter requires --config or --unset"


def test_why_a_group_is_not_deleted_is_told(groups: Run) -> None:
    """A plug-in of Apache Kafka may refuse the deletion of a streams group (DeleteGroups 3)."""
    refused = DeletableGroupResult(
        group_id="g", error_code=ErrorCode.GROUP_DELETION_FAILED, error_message="not now"
    )
    answers: Answers = {ApiKey.DELETE_GROUPS: DeleteGroupsResponse(results=[refused])}
    assert groups("delete", "g", answers=answers, status=1) == [
        "kafkacompat: group g: GROUP_DELETION_FAILED (not now)"
    ]
