"""The requests of the members and administrators of one group, with Kafka's expected error code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.talk import WAITS, Body
from interop_tests.harness.groups import subscription

REBALANCE_TIMEOUT_MS = 600_000
CLASSIC_SESSION_MS = 1_800_000
INVALID_EXPRESSION = " is not a valid regular expression: "
ANY = None
Owned = dict[str, list[int]]
"""Partitions by the name of their topic."""


def by_id(owned: Owned | None) -> list[Body] | None:
    if owned is None:
        return None
    return [{"TopicId": topic, "Partitions": numbers} for topic, numbers in owned.items()]


def owned_in(assignment: Body | None) -> Owned:
    """The partitions in an answer, by the name of the topic without the number of its incarnation."""
    found = (assignment or {}).get("TopicPartitions", [])
    return {each["TopicId"].partition("#")[0]: each["Partitions"] for each in found}


class Asking:
    """One group. The methods return Kafka's answer. `expect` is its error code, or ANY."""

    def __init__(self, pair: Pair, group: str) -> None:
        self.pair = pair
        self.group = group

    def _expected(self, answer: Any, code: Any, expect: int | None) -> Any:
        assert expect is ANY or code == expect, f"{self.pair.place}: Kafka answers {answer}, not {expect}"
        return answer

    def beat(
        self,
        member: str,
        epoch: int,
        expect: int | None = 0,
        version: int = 1,
        client_id: str = "client",
        made: str | None = None,
        later: str | None = None,
        **fields: Any,
    ) -> Any:
        """ConsumerGroupHeartbeat. Fields: names, regex, owned, timeout, assignor, instance, rack."""
        body: Body = {"GroupId": self.group, "MemberId": member, "MemberEpoch": epoch}
        given = {
            "instance": "InstanceId",
            "rack": "RackId",
            "timeout": "RebalanceTimeoutMs",
            "names": "SubscribedTopicNames",
            "regex": "SubscribedTopicRegex",
            "assignor": "ServerAssignor",
        }
        body |= {given[name]: value for name, value in fields.items() if name != "owned"}
        if fields.get("owned") is not None:
            body["TopicPartitions"] = by_id(fields["owned"])
        answer = self.pair.ask(
            "ConsumerGroupHeartbeat", version, body, client_id, made, without_parser, later
        )
        return self._expected(answer, answer["ErrorCode"], expect)

    def join(self, member: str, names: list[str] | None, expect: int | None = 0, **fields: Any) -> Any:
        """The first heartbeat of a member."""
        first = {"owned": {}, "timeout": REBALANCE_TIMEOUT_MS} | fields
        if names is not None:
            first["names"] = names
        return self.beat(member, 0, expect, **first)

    # classic members

    def classic_body(self, member: str, topics: list[str], **more: Any) -> Body:
        return {
            "GroupId": self.group,
            "SessionTimeoutMs": CLASSIC_SESSION_MS,
            "RebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
            "MemberId": member,
            "GroupInstanceId": None,
            "ProtocolType": "consumer",
            "Protocols": [{"Name": "range", "Metadata": subscription(*topics)}],
            "Reason": None,
        } | more

    def classic_join(
        self,
        member: str,
        topics: list[str],
        expect: Any = 0,
        version: int = 9,
        made: str | None = None,
        client_id: str = "classic",
        **more: Any,
    ) -> Any:
        """JoinGroup that is answered at once, or waits (expect=WAITS) for `settle`."""
        name = made or member or more.get("GroupInstanceId", "")
        body = self.classic_body(member, topics, **more)
        self.pair.send(name, "JoinGroup", version, body, client_id, made)
        return self._now(name, expect)

    def _now(self, name: str, expect: Any) -> Any:
        answer = self.pair.settle().get(name, WAITS)
        code = answer if isinstance(answer, str) else answer["ErrorCode"]
        return self._expected(answer, code, expect)

    def classic_sync(
        self,
        member: str,
        generation: int,
        plan: dict[str, bytes] | None = None,
        expect: Any = 0,
        version: int = 5,
        **more: Any,
    ) -> Any:
        body = {
            "GroupId": self.group,
            "GenerationId": generation,
            "MemberId": member,
            "GroupInstanceId": None,
            "ProtocolType": "consumer",
            "ProtocolName": "range",
            "Assignments": [{"MemberId": each, "Assignment": data} for each, data in (plan or {}).items()],
        } | more
        self.pair.send(member, "SyncGroup", version, body, "classic")
        return self._now(member, expect)

    def classic_beat(
        self, member: str, generation: int, expect: int | None = 0, instance: str | None = None
    ) -> Any:
        body = {
            "GroupId": self.group,
            "GenerationId": generation,
            "MemberId": member,
            "GroupInstanceId": instance,
        }
        answer = self.pair.ask("Heartbeat", 4, body)
        return self._expected(answer, answer["ErrorCode"], expect)

    def classic_leave(self, *members: tuple[str, str | None], expect: int | None = 0) -> Any:
        """LeaveGroup of (member id, instance id) pairs. `expect` is the code of each."""
        listed = [{"MemberId": member, "GroupInstanceId": instance} for member, instance in members]
        answer = self.pair.ask("LeaveGroup", 5, {"GroupId": self.group, "Members": listed})
        for each in answer["Members"]:
            self._expected(answer, each["ErrorCode"], expect)
        return answer

    # offsets

    def commit(
        self,
        member: str,
        epoch: int,
        offsets: dict[str, dict[int, int]],
        expect: int | None = 0,
        version: int = 10,
        instance: str | None = None,
    ) -> Any:
        """OffsetCommit of {topic: {partition: offset}}. `expect` is the code of each partition."""
        topics = [
            {
                "Name" if version < 10 else "TopicId": topic,
                "Partitions": [
                    {"PartitionIndex": number, "CommittedOffset": offset, "CommittedMetadata": "m"}
                    for number, offset in partitions.items()
                ],
            }
            for topic, partitions in offsets.items()
        ]
        body = {
            "GroupId": self.group,
            "GenerationIdOrMemberEpoch": epoch,
            "MemberId": member,
            "GroupInstanceId": instance,
            "Topics": topics,
        }
        answer = self.pair.ask("OffsetCommit", version, body)
        for each in answer["Topics"]:
            for partition in each["Partitions"]:
                self._expected(answer, partition["ErrorCode"], expect)
        return answer

    def fetch(
        self,
        member: str | None,
        epoch: int,
        offsets: dict[str, list[int]] | None,
        expect: int | None = 0,
        version: int = 10,
        stable: bool = False,
    ) -> Any:
        """OffsetFetch of {topic: [partition]} or of all. `expect` is the code of the group."""
        topics = None
        if offsets is not None:
            key = "Name" if version < 10 else "TopicId"
            topics = [{key: topic, "PartitionIndexes": numbers} for topic, numbers in offsets.items()]
        group = {"GroupId": self.group, "MemberId": member, "MemberEpoch": epoch, "Topics": topics}
        answer = self.pair.ask("OffsetFetch", version, {"Groups": [group], "RequireStable": stable})
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)

    # administrators

    def describe(self, expect: int | None = 0, version: int = 1, authorized: bool = False) -> Any:
        body = {"GroupIds": [self.group], "IncludeAuthorizedOperations": authorized}
        answer = self.pair.ask("ConsumerGroupDescribe", version, body)
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)

    def describe_classic(self, expect: int | None = 0, version: int = 6) -> Any:
        answer = self.pair.ask("DescribeGroups", version, {"Groups": [self.group]})
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)

    def list(self, states: list[str] | None = None, types: list[str] | None = None, version: int = 5) -> Any:
        body: Body = {}
        if version >= 4:
            body["StatesFilter"] = states or []
        if version >= 5:
            body["TypesFilter"] = types or []

        def own(answer: Any) -> Any:
            """Groups of other talks may be left behind in different states."""
            return answer | {"Groups": [each for each in answer["Groups"] if each["GroupId"] == self.group]}

        return self.pair.ask("ListGroups", version, body, loosen=own)

    def delete(self, expect: int | None = 0) -> Any:
        answer = self.pair.ask("DeleteGroups", 2, {"GroupsNames": [self.group]})
        return self._expected(answer, answer["Results"][0]["ErrorCode"], expect)

    def delete_offsets(self, topic: str, partitions: Sequence[int], expect: int | None = 0) -> Any:
        listed = [{"PartitionIndex": number} for number in partitions]
        body = {"GroupId": self.group, "Topics": [{"Name": topic, "Partitions": listed}]}
        answer = self.pair.ask("OffsetDelete", 0, body)
        return self._expected(answer, answer["ErrorCode"], expect)

    def configure(self, name: str, value: str | None, expect: int | None = 0) -> Any:
        """Set a setting of the group, or delete it (None)."""
        config = {"Name": name, "ConfigOperation": 0 if value is not None else 1, "Value": value}
        resource = {"ResourceType": 32, "ResourceName": self.group, "Configs": [config]}
        body = {"Resources": [resource]}
        answer = self.pair.ask("IncrementalAlterConfigs", 1, body, loosen=without_text)
        self.pair.change("the setting is known", lambda side: side.pass_barrier())
        return self._expected(answer, answer["Responses"][0]["ErrorCode"], expect)


def without_parser(answer: Any) -> Any:
    """What is wrong with a regular expression is said in the words of a library."""
    message = answer["ErrorMessage"] or ""
    if INVALID_EXPRESSION in message:
        return answer | {"ErrorMessage": message.partition(INVALID_EXPRESSION)[0]}
    return answer


def without_text(answer: Any) -> Any:
    """What is wrong with a setting is said in other words for settings of every kind."""
    return answer | {
        "Responses": [each | {"ErrorMessage": bool(each["ErrorMessage"])} for each in answer["Responses"]]
    }
