"""One broker with share groups: a connection for each member, and the records of both coordinators."""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from typing import Any

from interop_tests.consumer_groups.names import Names
from interop_tests.consumer_groups.records import WrittenRecords
from interop_tests.consumer_groups.talk import (
    CLOSED,
    LATE_S,
    SETTINGS,
    UNKNOWN_ID,
    WAITS,
    Body,
    Side,
)
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, list_offset, produce
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence
from interop_tests.transactions.by_hand import NEW, Producer
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.apis import share_record_classes

TOPIC_IN_KEY = re.compile("<(.*)>")
STATE_TOPIC = "__share_group_state"
SHARE_KEY_TYPE = 2
GROUP_SIZE_MAX = 4
SESSIONS_MAX = 8
SESSION_NOT_FOUND, SESSION_LIMIT_REACHED = 122, 133
SHORT_LOCK_MS, LONG_LOCK_MS = 1000, 1_800_000
HOUR_MS = "3600000"
SHARE_SETTINGS = SETTINGS | {
    # Apache Kafka looks for old records half a minute after its start, and the records of these talks are years old.
    "log.retention.ms": "-1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.prune.interval.ms": HOUR_MS,
    "share.coordinator.cold.partition.snapshot.interval.ms": HOUR_MS,
    "group.share.assignment.interval.ms": "0",
    "group.share.session.timeout.ms": str(LONG_LOCK_MS),
    "group.share.max.session.timeout.ms": HOUR_MS,
    "group.share.max.size": str(GROUP_SIZE_MAX),
    "group.share.max.share.sessions": str(SESSIONS_MAX),
    # No lock ends while a test runs, unless the group says so.
    "group.share.record.lock.duration.ms": str(LONG_LOCK_MS),
    "group.share.min.record.lock.duration.ms": str(SHORT_LOCK_MS),
    "group.share.max.record.lock.duration.ms": HOUR_MS,
}
INITIALIZATION = "ShareGroupStatePartitionMetadataKey"


class BothCoordinators:
    """The new batches of __consumer_offsets, and the new records of __share_group_state as batches of one record.

    The records of a group and the state of its partitions are written by different coordinators, which go on after the
    answer has left.
    """

    def __init__(self, bootstrap: str, names: Names) -> None:
        self._connection = Connection(bootstrap, client_id="records")
        self._groups = WrittenRecords(self._connection, names)
        self._states = WrittenRecords(self._connection, names, STATE_TOPIC, share_record_classes)
        self._read: list[Any] = []
        self.initializing: dict[str, bool] = {}
        """By group, whether partitions wait for their first state."""
        self.states: dict[str, int] = defaultdict(int)
        """By group, how many records of state were read."""
        self.told_last: dict[tuple[str, tuple[str, int], int], int] = {}
        """Which record of state was the last one to tell of an offset, by group, partition, and offset."""
        self.sequence = 0

    def read(self) -> None:
        """Keep what is new for `new`."""
        for batch in self._groups.new():
            for name, key, value in batch:
                if name == INITIALIZATION:
                    self.initializing[key["group_id"]] = bool(
                        # A topic without partitions stays if none of those that were asked for exist.
                        value and any(topic["partitions"] for topic in value["initializing_topics"])
                    )
            self._read.append(batch)
        for batch in self._states.new():
            for record in batch:
                self._note(*record)
                self._read.append([record])

    def _note(self, name: str, key: Any, value: Any) -> None:
        group, place = key["group_id"], (key["topic_id"].partition("#")[0], key["partition"])
        self.states[group] += 1
        self.sequence += 1
        if name == "ShareUpdateKey":
            for each in value["state_batches"]:
                for offset in range(each["first_offset"], each["last_offset"] + 1):
                    self.told_last[group, place, offset] = self.sequence

    def new(self) -> list[Any]:
        self.read()
        read, self._read = self._read, []
        return read

    @property
    def unseen_states(self) -> int:
        """How many records of state `new` has not returned."""
        return sum(1 for batch in self._read if batch[0][0].startswith(("ShareUpdate", "ShareSnapshot")))

    def close(self) -> None:
        self._connection.close()


def has_share_coordinator(connection: Connection) -> bool:
    """Whether the topic of states is there. Asking creates it."""
    key = "probe:AAAAAAAAAAAAAAAAAAAAAQ:0"
    asked = {"KeyType": SHARE_KEY_TYPE, "CoordinatorKeys": [key]}
    (found,) = connection.call("FindCoordinator", 6, asked)["Coordinators"]
    # Metadata may name a leader a moment before it leads.
    return bool(found["ErrorCode"] == 0 and list_offset(connection, STATE_TOPIC, 0, -1)[0] == 0)


class ShareSide(Side):
    """Each client id speaks over a connection of its own, since a share session belongs to a connection."""

    records: BothCoordinators  # type: ignore[assignment]

    def __init__(self, broker: BrokerProcess) -> None:
        self._speakers: dict[str, Connection] = {}
        super().__init__(broker)
        self._producers: dict[str, Producer] = {}
        wait_until(lambda: has_share_coordinator(self.connection), f"{self.kind} has a share coordinator")
        self.records = BothCoordinators(broker.bootstrap, self.names)
        self.records.new()

    def close(self) -> None:
        for connection in self._speakers.values():
            connection.close()
        self.records.close()
        super().close()

    # requests

    def resolved(self, value: Any, field: str = "") -> Any:
        """Also `<topic>` in the key of a share coordinator."""
        if field == "CoordinatorKeys" and isinstance(value, str):
            return TOPIC_IN_KEY.sub(lambda found: uuid_to_text(self.topic_id(found[1]).bytes), value)
        return super().resolved(value, field)

    def topic_id(self, name: str) -> uuid.UUID:
        return self._topic_ids.get(name, UNKNOWN_ID)

    def speaker(self, client_id: str) -> Connection:
        if client_id not in self._speakers:
            self._speakers[client_id] = self._accepted()
            self._speakers[client_id].client_id = client_id
        return self._speakers[client_id]

    def hang_up(self, client_id: str) -> None:
        """Close the connection of a member as its death does."""
        if client_id in self._speakers:
            self._speakers.pop(client_id).close()

    def hang_up_all(self) -> None:
        for client_id in list(self._speakers):
            self.hang_up(client_id)

    def wait_until_gone(self, group: str, member: str) -> None:
        """Wait until the broker has ended the session of a member that has hung up.

        An epoch that is not the session's is refused in another way while the session is there.
        """
        body: Body = {"GroupId": group, "MemberId": member, "ShareSessionEpoch": 1 << 30, "Topics": []}
        wait_until(
            lambda: self.connection.call("ShareAcknowledge", 1, body)["ErrorCode"] == SESSION_NOT_FOUND,
            f"{self.kind} has ended the session of {member}",
            20,
            0.002,
        )

    def send(self, name: str, api: str, version: int, body: Body, client_id: str, made: str | None) -> None:
        connection = self.speaker(client_id)
        number = connection.send(api, version, self.resolved(body))
        self._waiting[name] = (connection, api, version, number, made)

    def receive(self, name: str) -> Any:
        connection, api, version, number, made = self._waiting.pop(name)
        try:
            return self._named(connection.receive(api, version, number, LATE_S + 8), made)
        except (ConnectionClosed, Silence) as error:
            self.hang_up(connection.client_id or "")
            return CLOSED if isinstance(error, ConnectionClosed) else WAITS

    def give_up(self, name: str) -> None:
        del self._waiting[name]

    def _named(self, answer: Body, made: str | None) -> Any:
        return super()._named(with_read_records(answer), made)

    # partitions

    def produce(self, topic: str, partition: int, batch: BatchPlan) -> None:
        result = produce(self.connection, topic, batch, partition)
        assert result["ErrorCode"] == 0, result

    def transaction(self, topic: str, partition: int, values: list[bytes], outcome: bool | None) -> None:
        """One batch in a transaction that is committed, aborted, or left open (None)."""
        name = f"{topic}-{partition}"
        if name not in self._producers:
            self._producers[name] = Producer(self.connection, name, NEW).init()
        producer = self._producers[name]
        offset = producer.send(topic, *values, partition=partition)
        if outcome is not None:
            self.end_transaction(topic, partition, outcome, offset + len(values))

    def end_transaction(self, topic: str, partition: int, outcome: bool, end: int) -> None:
        """`end`: where the marker is written."""
        self._producers[f"{topic}-{partition}"].finish(outcome)
        wait_until(
            lambda: list_offset(self.connection, topic, partition, -1)[1] > end,
            "the marker is written",
            20,
            0.002,
        )

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        asked = {"Name": topic, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}
        answer = self.connection.call("DeleteRecords", 2, {"Topics": [asked], "TimeoutMs": 15000})
        assert answer["Topics"][0]["Partitions"][0]["ErrorCode"] == 0, answer

    def wait_until_initialized(self, group: str) -> None:
        """Wait until no partition of the group waits for its first state."""

        def is_initialized() -> bool:
            self.records.read()
            return not self.records.initializing.get(group, False)

        wait_until(is_initialized, f"{self.kind} has initialized the partitions of {group}", 20, 0.005)

    def wait_for_states(self, group: str, count: int) -> None:
        """Wait until so many records of state have been written for the group since the side was made."""

        def are_written() -> bool:
            self.records.read()
            return self.records.states[group] >= count

        wait_until(are_written, f"{self.kind} has written {count} states of {group}", 20, 0.005)

    def wait_until_released(self, group: str, place: tuple[str, int], offsets: set[int]) -> None:
        """Wait until records of state tell of these offsets that no call of `new` has returned."""
        known = self.records.sequence - self.records.unseen_states

        def are_released() -> bool:
            self.records.read()
            told = self.records.told_last
            return all(told.get((group, place, offset), -1) > known for offset in offsets)

        wait_until(are_released, f"{self.kind} has released {sorted(offsets)} of {place}", 20, 0.005)

    def wait_until_forgotten(self, group: str, places: list[tuple[str, int]]) -> None:
        """Wait until the leader has dropped these partitions of a group whose members are gone.

        Acknowledging is refused in another way then. The asking member is one of the group while it asks.
        """

        def are_forgotten() -> bool:
            with Connection(self._bootstrap) as connection:
                body: Body = {"GroupId": group, "MemberId": "forgotten", "ShareSessionEpoch": 0, "Topics": []}
                connection.call("ShareFetch", 1, body | {"MaxRecords": 1, "BatchSize": 1})
                batch = {"FirstOffset": 0, "LastOffset": 0, "AcknowledgeTypes": [1]}
                topics = [
                    {
                        "TopicId": self.topic_id(topic),
                        "Partitions": [{"PartitionIndex": number, "AcknowledgementBatches": [batch]}],
                    }
                    for topic, number in places
                ]
                answer = connection.call(
                    "ShareAcknowledge", 1, body | {"ShareSessionEpoch": 1, "Topics": topics}
                )
            return all(
                each["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                for topic in answer["Responses"]
                for each in topic["Partitions"]
            )

        wait_until(are_forgotten, f"{self.kind} has dropped {places} of {group}", 20, 0.01)
        self.wait_until_gone(group, "forgotten")
        self.pass_through()

    def pass_persister(self, group: str) -> None:
        """What was written for the group before has been told to the leaders: answers come to them in order."""
        body = {"Groups": [{"GroupId": group, "Topics": None}]}
        self.connection.call("DescribeShareGroupOffsets", 1, body)


def with_read_records(value: Any) -> Any:
    """The answer with the batches of each "Records" read: offsets, attributes, sizes and values."""
    if isinstance(value, list):
        return [with_read_records(each) for each in value]
    if not isinstance(value, dict):
        return value
    read = {name: with_read_records(each) for name, each in value.items()}
    if read.get("Records"):
        # Kafka may add a part of the next batch, which clients pass over.
        read["Records"] = [
            (
                each.base_offset,
                each.last_offset,
                each.attributes,
                each.size,
                [one.value for one in each.records],
            )
            for each in decode_batches(read["Records"])
        ]
    return read
