"""The requests of the members and administrators of one share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interop_tests.consumer_groups.asking import Asking
from interop_tests.consumer_groups.pair import Pair, late_batches
from interop_tests.consumer_groups.talk import Body
from interop_tests.harness.records import NOW_MS, BatchPlan
from interop_tests.share_groups.sides import ShareSide

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCHES, RECORDS = 0, 1
"""The modes of acquisition: whole batches, or as many records as were asked for."""
INTERNAL_ERROR, INVALID_RECORD_STATE = -1, 121
OFFSET_NOT_AVAILABLE = 78
OPEN, FINAL = 0, -1
"""The epochs that open and close a session."""
SOON_MS, COMES_MS = 80, 8000
"""How long a share fetch waits if it is not said that records come, and if it is."""

Place = tuple[str, int]
Batch = tuple[int, int, int | Sequence[int]]
"""First and last offset, and the type for all or for each."""
Acks = Mapping[Place, Sequence[Batch]]


class KnownAccident(Exception):
    """Kafka has failed where docs/reference/compatibility.md says that it may. The two states differ from then on."""


def is_known_accident(request: str, theirs: Any, ours: Any) -> bool:
    """Kafka fails over acknowledgements and aborted transactions that begin below everything in flight."""
    if isinstance(theirs, str) or isinstance(ours, str):
        return False
    if request.startswith("ShareAcknowledge"):
        codes = {each["ErrorCode"] for topic in ours.get("Responses", ()) for each in topic["Partitions"]}
        return bool(theirs["ErrorCode"] == INTERNAL_ERROR and codes <= {0, INVALID_RECORD_STATE})
    if request.startswith("ShareFetch"):
        codes = {each["ErrorCode"] for topic in theirs["Responses"] for each in topic["Partitions"]}
        return INTERNAL_ERROR in codes and ours["ErrorCode"] == 0
    return False


def begins_where_kafka_fails(theirs: Any, ours: Any, cut: Mapping[Place, int]) -> bool:
    """Ours gives the first records of a log that has lost others, and Kafka gives nothing: its start offset has moved back
    below the start of the log, when held records there were released, and the share fetch is out of range. Or the group
    begins by a time, for which Kafka finds no offset."""
    if isinstance(theirs, str) or isinstance(ours, str):
        return False
    gives_nothing = {
        (topic["TopicId"].partition("#")[0], each["PartitionIndex"])
        for topic in theirs["Responses"]
        for each in topic["Partitions"]
        if each["ErrorCode"] in (0, OFFSET_NOT_AVAILABLE) and not each["AcquiredRecords"]
    }
    return any(
        each["AcquiredRecords"]
        and each["AcquiredRecords"][0]["FirstOffset"] == cut.get(place)
        and place in gives_nothing
        for topic in ours["Responses"]
        for each in topic["Partitions"]
        for place in [(topic["TopicId"].partition("#")[0], each["PartitionIndex"])]
    )


class SharePair(Pair):
    """Compares the records of both coordinators. Those of a share coordinator are in the order of their keys, since the
    states of different partitions are written side by side."""

    sides: Sequence[ShareSide]
    stem = ""
    """How the names of the present talk's groups begin."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.members: list[tuple[str, str]] = []
        """Group and name of each member that may have a session."""
        self.cut: Mapping[Place, int] = {}
        """Where the log of a partition begins that has lost records."""

    def _judge(self, request: str, answers: list[Any], *arguments: Any, **more: Any) -> None:
        theirs, *others = answers
        if self.stops_at_first:
            for each in others:
                reason = "" if each == theirs else self._excuse(request, theirs, each)
                if reason:
                    self.excused.append((reason, f"{self.place}: {request}"))
                    raise KnownAccident(request)
        super()._judge(request, answers, *arguments, **more)

    def _excuse(self, request: str, theirs: Any, ours: Any) -> str:
        """Why they may differ. Empty if they may not."""
        if is_known_accident(request, theirs, ours):
            return "Kafka fails below everything in flight"
        if request.startswith("ShareFetch") and begins_where_kafka_fails(theirs, ours, self.cut):
            return "Kafka gives nothing of a log that has lost records"
        return ""

    def _answers(self, api: str, version: int, body: Body, client_id: str, made: str | None) -> list[Any]:
        """Both brokers answer at once: many share fetches wait for a while."""
        for side in self.sides:
            side.send("now", api, version, body, client_id, made)
        return [side.receive("now") for side in self.sides]

    def _written(self, later: str | None) -> list[list[Any]]:
        """`later` is a group whose partitions may wait for their first state."""
        if later is not None:
            for side in self.sides:
                side.wait_until_initialized(later)
        found = [side.records.new() for side in self.sides]
        most = max(map(len, found))
        if min(map(len, found)) < most:
            for side, batches in zip(self.sides, found, strict=True):
                batches += late_batches(side, most - len(batches))
        own = [[batch for batch in batches if self._is_of_talk(batch)] for batches in found]
        return [sorted(batches, key=key_of_state) for batches in own]

    def _is_of_talk(self, batch: Any) -> bool:
        """Members that an earlier talk left behind release their records at any time."""
        key = batch[0][1]
        return "topic_id" not in key or str(key["group_id"]).startswith(self.stem)

    def end_talk(self) -> None:
        """Everybody hangs up, and the sessions end: brokers limit their number."""
        for side in self.sides:
            side.hang_up_all()
        for group, member in self.members:
            self.wait_until_gone(group, member)
        self.members = []

    def wait_until_gone(self, group: str, member: str) -> None:
        for side in self.sides:
            side.wait_until_gone(group, member)

    def states_of(self, group: str) -> list[int]:
        """How many states each side has written for the group."""
        return [side.records.states[group] for side in self.sides]

    def wait_for_states(self, group: str, before: Sequence[int], more: int | None) -> None:
        """Wait for so many more states of the group, for which no answer waits. None: for as many as there are."""
        for side, number in zip(self.sides, before, strict=True):
            side.wait_for_states(group, number + (more or 0))
            side.pass_through()
            # Of two requests to the coordinator that wait at the same time, the later one may be sent first.
            for _ in range(2):
                side.pass_persister(group)
        self.compare_records("states that no answer waits for")

    def wait_until_forgotten(self, group: str, places: Sequence[Place]) -> None:
        for side in self.sides:
            side.wait_until_forgotten(group, [*places])

    def wait_until_released(self, group: str, place: Place, offsets: set[int]) -> None:
        """Wait until the locks of these records have ended. How many records of state tell of it is accidental: leaders
        write the states of several batches together if they are waiting at the same time."""
        self.compare_records("what was written before locks ended")
        for side in self.sides:
            side.wait_until_released(group, place, offsets)
            side.pass_persister(group)
        found = [side.records.new() for side in self.sides]
        before = len(self.told)
        self.compare("locks have ended", [taken_together(batches) for batches in found], "states")
        self.maybe_stop(before)


def taken_together(batches: list[Any]) -> Any:
    """The state of each record after updates, and where the share-partition starts."""
    states: dict[str, dict[int, tuple[int, int]]] = {}
    ends: dict[str, tuple[int, int]] = {}
    for (_, key, value), *_ in batches:
        ends[repr(key)] = value["start_offset"], value["delivery_complete_count"]
        of_key = states.setdefault(repr(key), {})
        for each in value["state_batches"]:
            for offset in range(each["first_offset"], each["last_offset"] + 1):
                of_key[offset] = each["delivery_state"], each["delivery_count"]
    return states, ends


def key_of_state(batch: Any) -> str:
    name, key, _ = batch[0]
    return repr(key) if name.startswith("Share") and "topic_id" in key else ""


def topics_of(places: Mapping[Place, Any], field: str) -> list[Body]:
    """{(topic, partition): what} as a list of topics, each with its partitions."""
    topics: dict[str, list[Body]] = {}
    for (topic, partition), what in places.items():
        topics.setdefault(topic, []).append({"PartitionIndex": partition, field: what})
    return [{"TopicId": topic, "Partitions": partitions} for topic, partitions in topics.items()]


def batches_of(batches: Sequence[Batch]) -> list[Body]:
    return [
        {
            "FirstOffset": first,
            "LastOffset": last,
            "AcknowledgeTypes": [types] if isinstance(types, int) else [*types],
        }
        for first, last, types in batches
    ]


class ShareAsking(Asking):
    """One group. The methods return Kafka's answer. `expect` is its error code, or ANY."""

    pair: SharePair

    def share_beat(
        self,
        member: str | None,
        epoch: int,
        expect: int | None = 0,
        names: Sequence[str] | None = None,
        rack: str | None = None,
        client_id: str = "client",
    ) -> Any:
        """ShareGroupHeartbeat. Ends when no partition waits for its first state."""
        body: Body = {"GroupId": self.group, "MemberId": member, "MemberEpoch": epoch, "RackId": rack}
        body["SubscribedTopicNames"] = None if names is None else [*names]
        answer = self.pair.ask("ShareGroupHeartbeat", 1, body, client_id, later=self.group)
        return self._expected(answer, answer["ErrorCode"], expect)

    def share_describe(self, expect: int | None = 0, authorized: bool = False) -> Any:
        body = {"GroupIds": [self.group], "IncludeAuthorizedOperations": authorized}
        answer = self.pair.ask("ShareGroupDescribe", 1, body)
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)

    def subscribe(self, *topics: str) -> None:
        """A member joins, so that the partitions get their first state, and leaves."""
        self.share_beat("initializer", 0, names=topics)
        self.share_beat("initializer", -1)

    def member(self, name: str) -> ShareMember:
        self.pair.members.append((self.group, name))
        return ShareMember(self, name)

    # offsets

    def share_offsets(
        self, topics: Mapping[str, Sequence[int]] | None = None, expect: int | None = 0, version: int = 1
    ) -> Any:
        """DescribeShareGroupOffsets of {topic: partitions}, or of all."""
        asked = None
        if topics is not None:
            asked = [{"TopicName": topic, "Partitions": [*numbers]} for topic, numbers in topics.items()]
        body = {"Groups": [{"GroupId": self.group, "Topics": asked}]}
        answer = self.pair.ask("DescribeShareGroupOffsets", version, body)
        return self._expected(answer, answer["Groups"][0]["ErrorCode"], expect)

    def alter_share_offsets(self, offsets: Mapping[str, Mapping[int, int]], expect: int | None = 0) -> Any:
        topics = [
            {
                "TopicName": topic,
                "Partitions": [
                    {"PartitionIndex": number, "StartOffset": offset} for number, offset in partitions.items()
                ],
            }
            for topic, partitions in offsets.items()
        ]
        body = {"GroupId": self.group, "Topics": topics}
        answer = self.pair.ask("AlterShareGroupOffsets", 0, body, later=self.group)
        return self._expected(answer, answer["ErrorCode"], expect)

    def delete_share_offsets(self, *topics: str, expect: int | None = 0) -> Any:
        body = {"GroupId": self.group, "Topics": [{"TopicName": topic} for topic in topics]}
        answer = self.pair.ask("DeleteShareGroupOffsets", 0, body)
        return self._expected(answer, answer["ErrorCode"], expect)

    # state

    def state(self, what: str, places: Mapping[Place, Body], version: int = 0) -> Any:
        """One of the requests of a leader to a share coordinator: Initialize, Read, Write, Delete, and Summary."""
        topics: dict[str, list[Body]] = {}
        for (topic, partition), fields in places.items():
            topics.setdefault(topic, []).append({"Partition": partition} | fields)
        asked = [{"TopicId": topic, "Partitions": partitions} for topic, partitions in topics.items()]
        api = "ReadShareGroupStateSummary" if what == "Summary" else f"{what}ShareGroupState"
        return self.pair.ask(api, version, {"GroupId": self.group, "Topics": asked})

    # partitions

    def produce(self, topic: str, count: int = 1, partition: int = 0, at_ms: int = NOW_MS) -> None:
        """One batch."""
        batch = BatchPlan([b"%d" % number for number in range(count)], base_timestamp_ms=at_ms)
        self.pair.change(
            f"produce {count} to {topic}-{partition}", lambda side: side.produce(topic, partition, batch)
        )

    def transaction(self, topic: str, count: int, outcome: bool | None, partition: int = 0) -> None:
        """One batch whose transaction is committed, aborted or left open (None)."""
        values = [b"t%d" % number for number in range(count)]
        self.pair.change(
            f"transaction of {count} in {topic}-{partition}: {outcome}",
            lambda side: side.transaction(topic, partition, values, outcome),
        )

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        self.pair.change(
            f"delete records of {topic}-{partition} to {offset}",
            lambda side: side.delete_records(topic, partition, offset),
        )


class ShareMember:
    """A member of the group at its partitions' leader: its session, and a connection of its own."""

    def __init__(self, talk: ShareAsking, name: str) -> None:
        self.talk = talk
        self.name = name
        self.epoch = OPEN
        self.held: dict[Place, list[tuple[int, int]]] = {}
        """The records that Kafka has given to it, in ranges."""

    def fetch(
        self,
        *places: Place,
        acks: Acks | None = None,
        forget: Sequence[Place] = (),
        epoch: int | None = None,
        wait: int = COMES_MS,
        records: int = 500,
        batch: int = 500,
        mode: int = BATCHES,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        renew: bool = False,
        expect: int | None = 0,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """ShareFetch, by default with the epoch that the session is at.

        The first one of a partition waits for its state, and is answered when one partition has records: a talk asks
        for them one after the other.
        """
        body = self._body(epoch, {place: [] for place in places} | {**(acks or {})}) | {
            "MaxWaitMs": wait,
            "MinBytes": min_bytes,
            "MaxBytes": max_bytes,
            "MaxRecords": records,
            "BatchSize": batch,
            "ForgottenTopicsData": [{"TopicId": topic, "Partitions": [number]} for topic, number in forget],
        }
        if version >= 2:
            body |= {"ShareAcquireMode": mode, "IsRenewAck": renew}
        answer = self._asked("ShareFetch", version, body | more, epoch, expect)
        for topic in answer["Responses"]:
            for partition in topic["Partitions"]:
                place = topic["TopicId"].partition("#")[0], partition["PartitionIndex"]
                for each in partition["AcquiredRecords"]:
                    self.held.setdefault(place, []).append((each["FirstOffset"], each["LastOffset"]))
        return answer

    def acknowledge(
        self,
        acks: Acks,
        epoch: int | None = None,
        renew: bool = False,
        expect: int | None = 0,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """ShareAcknowledge. `expect` is the code of the whole answer."""
        body = self._body(epoch, acks) | ({"IsRenewAck": renew} if version >= 2 else {})
        return self._asked("ShareAcknowledge", version, body | more, epoch, expect)

    def _body(self, epoch: int | None, acks: Acks) -> Body:
        return {
            "GroupId": self.talk.group,
            "MemberId": self.name,
            "ShareSessionEpoch": self.epoch if epoch is None else epoch,
            "Topics": topics_of(
                {place: batches_of(batches) for place, batches in acks.items()}, "AcknowledgementBatches"
            ),
        }

    def _asked(self, api: str, version: int, body: Body, epoch: int | None, expect: int | None) -> Any:
        answer = self.talk.pair.ask(api, version, body, self.client_id)
        assert not isinstance(answer, str), (
            f"{self.talk.pair.place}: Kafka's connection is {answer} after {api}"
        )
        used = body["ShareSessionEpoch"]
        if answer["ErrorCode"] == 0:
            self.epoch = OPEN if used == FINAL else used + 1
        return self.talk._expected(answer, answer["ErrorCode"], expect)

    @property
    def client_id(self) -> str:
        return f"{self.talk.group}/{self.name}"

    def close(self, releases: int | None = 0, **more: Any) -> Any:
        """Close the session with a share fetch. The answer leaves before the records are released: `releases` states, or
        as many as there are (None)."""
        before = self.talk.pair.states_of(self.talk.group)
        answer = self.fetch(epoch=FINAL, wait=0, **more)
        self.held = {}
        self.talk.pair.wait_for_states(self.talk.group, before, releases)
        return answer

    def hang_up(self, releases: int | None = 0) -> None:
        """Close the connection. So many records of state are written for what the member held. None: it is not known."""
        before = self.talk.pair.states_of(self.talk.group)
        self.talk.pair.change(f"{self.name} hangs up", lambda side: side.hang_up(self.client_id))
        self.epoch, self.held = OPEN, {}
        self.talk.pair.wait_until_gone(self.talk.group, self.name)
        self.talk.pair.wait_for_states(self.talk.group, before, releases)
