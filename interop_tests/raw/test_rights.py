"""With the same access control entries, Apache Kafka and kafkacompat give the same response to the same request in
every field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.schema import ZERO_UUID
from interop_tests.raw.rights import AREA, SENDER, administer, entry, make, start
from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat._tests.fuzz.values import TOPICS
from kafkacompat.security.acl import AclOperation, PatternType, ResourceType

BLOCKS = [
    "10.0.0.0/8",
    "010.000.0.1/08",
    "0.0.0.0/0",
    "10.0.0.0/33",
    "300.0.0.0/8",
    "10.0.0/8",
    "10.0.0.0/",
    "/8",
    "/",
    " 10.0.0.0/8",
    "one.example/8",
    "::/0",
    "[::1]/+64",
    "fe80::1%1/64",
    "00001::/64",
    "2001:DB8::/32",
    "::1/129",
    "::1/-1",
    "::1/x",
    "::1/64/::1",
    "::ffff:10.0.0.0/104",
    "1::2::3/64",
    "[::1/64",
    "fe80::1%4294967296/64",
    "",
]
"""Hosts of entries. A node of either kind must take or refuse the same, in the same words (KIP-1276)."""
SEEDS = seeds((3,))
REQUESTS = 5000 if SOAK else 320
ANY_ENTRY = {
    "ResourceTypeFilter": 1,
    "ResourceNameFilter": None,
    "PatternTypeFilter": 1,
    "PrincipalFilter": None,
    "HostFilter": None,
    "Operation": 1,
    "PermissionType": 1,
}
DELETION = {name: value for name, value in ANY_ENTRY.items() if name != "HostFilter"}
pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_rights_differ_in_nothing(
    tmp_path: Path, alike: Callable[[str, Comparison, str], None], number: int
) -> None:
    with kept_brokers(AREA, tmp_path) as brokers:
        comparison = brokers.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked == REQUESTS


def test_blocks_of_addresses_are_taken_and_refused_alike(tmp_path: Path) -> None:
    with start(tmp_path) as sides:
        told = []
        for side in sides:
            creations = [entry(ResourceType.GROUP, "g", host) for host in BLOCKS]
            made = side.own.call("CreateAcls", 3, {"Creations": creations})["Results"]
            side.pass_barrier()
            described = side.own.call("DescribeAcls", 3, ANY_ENTRY)["Resources"]
            found = sorted(acl["Host"] for each in described for acl in each["Acls"])
            filters = [
                DELETION | {"HostFilter": host} for host in ("10.0.0.0/8", "10.0.0.1/8", "2001:db8::/32")
            ]
            gone = side.own.call("DeleteAcls", 3, {"Filters": filters})["FilterResults"]
            told.append((made, found, [[acl["Host"] for acl in each["MatchingAcls"]] for each in gone]))
    apache, ours = told
    assert ours == apache
    assert [each["ErrorCode"] for each in ours[0]].count(0) == 8


def test_resources_that_may_not_be_altered_are_answered_in_their_places(tmp_path: Path) -> None:
    denied, allowed, denied_too = TOPICS[:3]
    resources = [(2, denied), (4, "1"), (2, allowed), (32, "group"), (2, denied_too), (4, "")]
    configs = [{"Name": "retention.ms", "Value": "1000"}]
    with start(tmp_path) as sides:
        told = []
        for side in sides:
            administer(side)
            make(side, [entry(ResourceType.TOPIC, allowed, SENDER, AclOperation.ALTER_CONFIGS)])
            sender = side.connection_of_a_sender()
            for api, version, operation, asked in (
                ("AlterConfigs", 2, {}, resources),
                ("IncrementalAlterConfigs", 1, {"ConfigOperation": 0}, [(8, "1"), *resources]),
            ):
                body = [
                    {
                        "ResourceType": kind,
                        "ResourceName": name,
                        "Configs": [each | operation for each in configs],
                    }
                    for kind, name in asked
                ]
                answer = sender.call(api, version, {"Resources": body, "ValidateOnly": True})
                told.append(answer["Responses"])
            sender.close()
    apaches, ours = told[:2], told[2:]
    assert ours == apaches
    assert [(each["ResourceType"], each["ResourceName"]) for each in ours[0]] == resources
    assert [each["ErrorCode"] for each in ours[1]] == [31, 29, 31, 0, 30, 29, 31]


GROUPS = ["denied-1", "group", "denied-2", "denied-3"]
"""Of which the sender may see and delete the second."""
DENIED, ALLOWED, DENIED_TOO = TOPICS[:3]
ASKED_TOPICS = [DENIED, ALLOWED, DENIED_TOO]
BY_TOPIC: list[tuple[str, int, str, str, str, list[Any], dict[str, Any]]] = [
    ("ListOffsets", 7, "Topics", "Topics", "Name",
     [{"Name": each, "Partitions": [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}]}
      for each in ASKED_TOPICS], {"ReplicaId": -1, "IsolationLevel": 0}),
    ("OffsetForLeaderEpoch", 4, "Topics", "Topics", "Topic",
     [{"Topic": each, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}]}
      for each in ASKED_TOPICS], {"ReplicaId": -1}),
    ("DescribeProducers", 0, "Topics", "Topics", "Name",
     [{"Name": each, "PartitionIndexes": [0]} for each in ASKED_TOPICS], {}),
    ("CreateTopics", 7, "Topics", "Topics", "Name",
     [{"Name": each, "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
      for each in ("new-b", "new-allowed", "new-a")], {"timeoutMs": 10000, "validateOnly": True}),
    ("CreatePartitions", 3, "Topics", "Results", "Name",
     [{"Name": each, "Count": 9, "Assignments": None} for each in ASKED_TOPICS],
     {"TimeoutMs": 10000, "ValidateOnly": True}),
    ("DeleteTopics", 6, "Topics", "Responses", "Name",
     [{"Name": each, "TopicId": ZERO_UUID} for each in (DENIED, "absent", DENIED_TOO)], {"TimeoutMs": 10000}),
    ("DescribeGroups", 6, "Groups", "Groups", "GroupId", GROUPS, {"IncludeAuthorizedOperations": False}),
    ("ConsumerGroupDescribe", 1, "GroupIds", "Groups", "GroupId", GROUPS, {"IncludeAuthorizedOperations": False}),
    ("ShareGroupDescribe", 1, "GroupIds", "Groups", "GroupId", GROUPS, {"IncludeAuthorizedOperations": False}),
    ("StreamsGroupDescribe", 1, "GroupIds", "Groups", "GroupId", GROUPS, {"IncludeAuthorizedOperations": False}),
    ("DescribeShareGroupOffsets", 1, "Groups", "Groups", "GroupId",
     [{"GroupId": each, "Topics": []} for each in GROUPS], {}),
    ("DeleteGroups", 2, "GroupsNames", "Results", "GroupId", GROUPS, {}),
    ("DescribeTransactions", 0, "TransactionalIds", "TransactionStates", "TransactionalId",
     ["denied-1", "transaction", "denied-2"], {}),
    ("DescribeConfigs", 4, "Resources", "Results", "ResourceName",
     [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": ["retention.ms"]}
      for kind, name in ((2, DENIED), (4, "1"), (2, ALLOWED), (2, DENIED_TOO))],
     {"IncludeSynonyms": False, "IncludeDocumentation": False}),
]  # fmt: skip


IN_KAFKAS_HASH_ORDER = ("CreatePartitions", "DeleteTopics")


def test_refused_elements_are_answered_in_kafkas_order(tmp_path: Path) -> None:
    rights = [
        entry(ResourceType.TOPIC, ALLOWED, SENDER),
        entry(ResourceType.TOPIC, "new-allowed", SENDER),
        entry(ResourceType.TOPIC, "absent", SENDER),
        entry(ResourceType.GROUP, "group", SENDER),
        entry(ResourceType.TRANSACTIONAL_ID, "transaction", SENDER),
    ]
    with start(tmp_path) as sides:
        told = []
        for side in sides:
            administer(side)
            make(side, rights)
            sender = side.connection_of_a_sender()
            order = {}
            for api, version, array, answers, name, asked, others in BY_TOPIC:
                answer = sender.call(api, version, others | {array: asked})
                order[api] = [(each[name], each.get("ErrorCode")) for each in answer[answers]]
            sender.close()
            told.append(order)
    apache, ours = told
    for api in IN_KAFKAS_HASH_ORDER:
        assert sorted(ours.pop(api)) == sorted(apache.pop(api))
    assert ours == apache


def streams_talk(side: Any) -> list[Any]:
    """What a member and an administrator are told who may not see a topic, and may create only some."""
    sender = side.connection_of_a_sender()
    owned = {"ActiveTasks": [], "StandbyTasks": [], "WarmupTasks": []}
    told: list[Any] = []

    def topology(source: str, changelog: str, sink: str = "app-shown") -> dict[str, Any]:
        changelogs = [{"Name": changelog, "Partitions": 0, "ReplicationFactor": 1, "TopicConfigs": []}]
        subtopology = {
            "SubtopologyId": "0",
            "SourceTopics": [source],
            "SourceTopicRegex": [],
            "StateChangelogTopics": changelogs,
            "RepartitionSinkTopics": [sink],
            "RepartitionSourceTopics": [],
            "CopartitionGroups": [],
        }
        return {"Epoch": 0, "Subtopologies": [subtopology]}

    def beat(connection: Any, group: str, member: str, epoch: int = 0, **more: Any) -> None:
        body = {"GroupId": group, "MemberId": member, "MemberEpoch": epoch, "RebalanceTimeoutMs": 10_000}
        answer = connection.call("StreamsGroupHeartbeat", 1, body | {"ProcessId": "p"} | more)
        statuses = [(each["StatusCode"], each["StatusDetail"]) for each in answer["Status"] or []]
        told.append((answer["ErrorCode"], answer["ErrorMessage"], answer["MemberEpoch"], statuses))

    def beat_again(connection: Any, group: str, member: str, epoch: int) -> None:
        """Whether the topic that the first beat asked for is there by now differs from run to run, and so do the statuses."""
        beat(connection, group, member, epoch)
        told[-1] = told[-1][:3]

    def describe(group: str) -> None:
        body = {"GroupIds": [group, "denied"], "IncludeAuthorizedOperations": True}
        answer = sender.call("StreamsGroupDescribe", 1, body)
        told.append(
            [
                (
                    each["ErrorCode"],
                    each["ErrorMessage"],
                    each["Topology"] is None,
                    each["AuthorizedOperations"],
                )
                for each in answer["Groups"]
            ]
        )

    for group, source, changelog, sink in (
        ("denied", ALLOWED, "app-shown", "app-shown"),
        ("group", DENIED, "app-shown", "app-shown"),
        ("group", ALLOWED, "hidden", "app-shown"),
        ("group", ALLOWED, "app-shown", "hidden"),
        ("group", ALLOWED, "app-shown", "app-shown"),
        ("group", ALLOWED, "app-shown", "app-shown"),
    ):
        beat(sender, group, "m", Topology=topology(source, changelog, sink), **owned)
    describe("group")
    beat(side.own, "group-2", "m", Topology=topology(DENIED, "app-made"), **owned)
    describe("group-2")
    beat_again(sender, "group-2", "m", 1)
    beat_again(sender, "group-2", "m", -1)
    for api, version, body in (
        ("DeleteGroups", 3, {"GroupsNames": ["denied", "group-2", "group", "none"]}),
        (
            "OffsetDelete",
            0,
            {"GroupId": "group", "Topics": [{"Name": DENIED, "Partitions": [{"PartitionIndex": 0}]}]},
        ),
    ):
        told.append(sender.call(api, version, body))
    sender.close()
    return told


def test_members_of_streams_groups_see_and_create_what_they_may(tmp_path: Path) -> None:
    rights = [
        entry(ResourceType.TOPIC, ALLOWED, SENDER),
        entry(ResourceType.TOPIC, "app-", SENDER, AclOperation.DESCRIBE, pattern=PatternType.PREFIXED),
        entry(ResourceType.GROUP, "group", SENDER, AclOperation.READ, pattern=PatternType.PREFIXED),
        entry(ResourceType.GROUP, "group", SENDER, AclOperation.DELETE),
    ]
    with start(tmp_path, only=["StreamsGroupHeartbeat"]) as sides:
        told = []
        for side in sides:
            administer(side)
            make(side, rights)
            told.append(streams_talk(side))
    apache, ours = told
    assert ours == apache
