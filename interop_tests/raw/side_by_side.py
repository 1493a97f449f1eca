"""One of two brokers that get the same requests: its connections, and the conditions before the next request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, frame
from interop_tests.raw.canonical import Names
from interop_tests.raw.excused import NOT_COMPARED
from interop_tests.raw.patient_author import PatientAuthor
from kafkacompat._tests.fuzz.author import Request
from kafkacompat._tests.fuzz.choices import Choices, SeededChoices
from kafkacompat._tests.fuzz.judge import read_answer
from kafkacompat._tests.fuzz.values import GROUPS, TOPICS, TRANSACTIONAL_IDS, WITNESSED_TOPIC
from kafkacompat.api.registry import Entry

CONNECTIONS = 3
SILENT_S = 0.4
"""A request that may wait for another client is given up if both brokers let it wait for this time."""
LATE_S = 20.0
"""The maximum time of any other request."""
CLOSED, WAITS = "closed", "waits"
WAIT_FOR_OTHERS = ("JoinGroup", "SyncGroup")
BARRIER = "barrier"
UNKNOWN_TOPIC = 3
LOADING = (14, 15, 16)
BEING_ENDED = ("PrepareCommit", "PrepareAbort")
CHANGES_METADATA = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ElectLeaders",
    "UpdateFeatures",
    "AlterUserScramCredentials",
}
ENDS_TRANSACTIONS = {"EndTxn", "InitProducerId", "WriteTxnMarkers"}


Connect = Callable[[int], Connection]
"""Returns the connection with this number, 0 to CONNECTIONS - 1."""


class Side:
    """One broker: connections, an author that has learned from this broker's responses, and the names of its ids."""

    def __init__(
        self, broker: BrokerProcess, seed: int, entries: Sequence[Entry], connect: Connect | None = None
    ) -> None:
        """`connect`: makes the connections of the author's requests, whose senders may lack rights."""
        self.kind = kind = broker.kind
        self._bootstrap = bootstrap = broker.bootstrap
        self._may_lack_rights = connect is not None
        self.author = self.make_author(SeededChoices(f"{seed}/side by side"), entries)
        self._connect = connect or (lambda number: Connection(bootstrap))
        self._connections: dict[int, Connection] = {}
        self.own = Connection(bootstrap)
        self.data_dir = str(broker.data_dir)
        self.names = Names(self.data_dir, frozenset(NOT_COMPARED))
        self._barriers = 0
        for topic in (WITNESSED_TOPIC, *TOPICS[:3], BARRIER):
            policy = {"cleanup.policy": "compact"} if topic == "compacted" else {}
            create_topic(bootstrap, topic, 2, policy)
        for group in filter(None, GROUPS):
            coordinator(self.own, group)
        for name in TRANSACTIONAL_IDS:
            wait_until(lambda name=name: self._has_coordinator(name), f"{kind} takes transactions", 30)  # type: ignore[misc]
        wait_until(self._gives_producer_ids, f"{kind} gives producer ids", 30)

    def make_author(self, choices: Choices, entries: Sequence[Entry]) -> PatientAuthor:
        return PatientAuthor(choices, entries, may_lack_rights=self._may_lack_rights)

    def connection_for(self, number: int, request: Request) -> int:
        """The number of the connection for a request that chance gives to `number`."""
        return number

    def _has_coordinator(self, transactional_id: str) -> bool:
        found = self.own.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [transactional_id]})
        if found["Coordinators"][0]["ErrorCode"]:
            return False
        reply = self.own.call("DescribeTransactions", 0, {"TransactionalIds": [transactional_id]})
        return reply["TransactionStates"][0]["ErrorCode"] not in LOADING

    def _gives_producer_ids(self) -> bool:
        """The first block of producer ids comes from the controller."""
        asked = {"TransactionalId": None, "TransactionTimeoutMs": 60_000}
        return bool(self.own.call("InitProducerId", 1, asked)["ErrorCode"] == 0)

    def connection_of_a_sender(self, number: int = 0) -> Connection:
        """A new connection whose sender may lack rights."""
        return self._connect(number)

    def close(self) -> None:
        for connection in (self.own, *self._connections.values()):
            connection.close()

    def send(self, number: int, request: Request) -> None:
        connection = self._connections.get(number)
        if connection is None:
            connection = self._connections[number] = self._connect(number)
        # If a connection was closed meanwhile, reading the response shows it.
        with contextlib.suppress(ConnectionClosed):
            connection.send_bytes(frame(request.frame))

    def receive(self, number: int, request: Request, timeout_s: float) -> Any:
        """The response, CLOSED or WAITS."""
        try:
            return read_answer(request, self._connections[number].receive_frame(timeout_s))
        except ConnectionClosed:
            return CLOSED
        except Silence:
            return WAITS

    def hang_up(self, number: int) -> None:
        self._connections.pop(number).close()

    # Conditions before the next request.

    def settle(self, api: str) -> None:
        """Wait until the broker applies the changes that it has acknowledged."""
        if api in CHANGES_METADATA:
            self.pass_barrier()
        if api in ENDS_TRANSACTIONS:
            wait_until(self._has_ended, f"{self.kind} has ended its transactions", 20, 0.005)

    def pass_barrier(self) -> None:
        """Changes reach the broker in the controller's order, so an earlier one has arrived when a later one has."""
        self._barriers += 1
        wanted = str(10**9 + self._barriers)
        config = {"Name": "retention.ms", "ConfigOperation": 0, "Value": wanted}
        resource = {"ResourceType": 2, "ResourceName": BARRIER, "Configs": [config]}
        reply = self.own.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        if reply["Responses"][0]["ErrorCode"] == UNKNOWN_TOPIC:
            # A request has deleted it by its id.
            create_topic(self._bootstrap, BARRIER, 2)
            reply = self.own.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        assert reply["Responses"][0]["ErrorCode"] == 0, reply
        asked = {"ResourceType": 2, "ResourceName": BARRIER, "ConfigurationKeys": ["retention.ms"]}

        def is_known() -> bool:
            (result,) = self.own.call("DescribeConfigs", 4, {"Resources": [asked]})["Results"]
            return bool(result["Configs"][0]["Value"] == wanted)

        wait_until(is_known, f"{self.kind} knows of the change", 20, 0.002)

    def _has_ended(self) -> bool:
        """The author's own ids, and any that it has made up."""
        asked = {"StateFilters": list(BEING_ENDED), "ProducerIdFilters": [], "DurationFilter": -1}
        return not self.own.call("ListTransactions", 1, asked)["TransactionStates"]


def answers_of(sides: Sequence[Side], number: int, requests: Sequence[Request]) -> list[Any]:
    """The responses of both sides. If only one side waits, it gets more time."""
    for side, request in zip(sides, requests, strict=True):
        side.send(number, request)
    first_s = SILENT_S if requests[0].entry.name in WAIT_FOR_OTHERS else LATE_S
    answers: list[Any] = [
        side.receive(number, request, first_s) for side, request in zip(sides, requests, strict=True)
    ]
    if answers.count(WAITS) == 1 and first_s < LATE_S:
        late = answers.index(WAITS)
        answers[late] = sides[late].receive(number, requests[late], LATE_S)
    return answers
