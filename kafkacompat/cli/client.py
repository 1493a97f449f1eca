"""A small blocking client for the commands: any message of any API, to any broker of a cluster.

It uses the protocol like any client. It sends one request at a time, and every wait is bounded. After a lost
connection it retries with the same broker or another one, as Kafka's clients do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from kafkacompat.addresses import split_host_and_port
from kafkacompat.cli.connection import REQUEST_TIMEOUT_S, BrokerAway, Connection
from kafkacompat.cli.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.find_coordinator_response import FindCoordinatorResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse

API_TIMEOUT_S = 60.0
"""default.api.timeout.ms of Kafka's clients."""
RETRY_BACKOFF_S, RETRY_BACKOFF_MAX_S = 0.1, 1.0
"""retry.backoff.ms and retry.backoff.max.ms."""
COORDINATOR_MOVES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

ErrorCodes = frozenset(ErrorCode)

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise CommandFailed with the name of the error, unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise CommandFailed(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))


def error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCodes else f"error {code}"


class Backoff:
    """Pauses between tries. Each is twice as long as the last one, up to a bound. `is_over` is True after the time limit."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = RETRY_BACKOFF_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def wait(self) -> None:
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, RETRY_BACKOFF_MAX_S)


class Remote(Protocol):
    """An object that answers requests: one broker, or any."""

    def call(
        self,
        request: Message,
        response_type: type[M],
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> M: ...

    def serves(self, api_key: int, version: int) -> bool: ...


class Cluster:
    """The brokers of a cluster by node id, found through bootstrap servers."""

    def __init__(self, address: ClusterAddress, timeout_s: float = API_TIMEOUT_S) -> None:
        """Connect to the first server that answers. `timeout_s` limits the wait for each answer, including retries.

        Raises CommandFailed at once if no server answers.
        """
        self._timeout_s = timeout_s
        self._security = address.security()
        self._bootstrap = [parsed(server) for server in address.servers.split(",")]
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._any = self._first_that_answers(self._bootstrap)

    def any(self) -> Remote:
        """Return a remote for any broker that answers."""
        return _PatientRemote(self, None)

    def node(self, node_id: int) -> Remote:
        """Return a remote for the broker with that id. Raises BrokerAway if the cluster has no such broker."""
        self._address_of(node_id)
        return _PatientRemote(self, node_id)

    def connection(self, node_id: int | None) -> Connection:
        """Return a connection to that broker, or to any broker for None. An open connection is reused. BrokerAway may
        be retried."""
        if node_id is not None:
            found = self._connections.get(node_id)
            if found is None or found.is_lost:
                host, port = self._address_of(node_id)
                found = self._connections[node_id] = self._connect(host, port)
            return found
        if self._any.is_lost:
            self._any = self._first_that_answers([*self._addresses.values(), *self._bootstrap])
        return self._any

    def leader(self, node_id: int, of: str) -> Connection:
        """Return a connection to a partition's leader, as the metadata names it. Raises BrokerAway, also if there is no leader."""
        if node_id < 0:
            raise BrokerAway(f"{of} has no leader")
        return self.connection(node_id)

    def patiently(self, ask: Callable[[], T]) -> T:
        """Return the answer. Ask again while brokers are away. Raises BrokerAway after the time limit."""
        backoff = Backoff(self._timeout_s)
        while True:
            try:
                return ask()
            except BrokerAway:
                if backoff.is_over:
                    raise
            backoff.wait()
            self._addresses.clear()  # the broker may return at another address

    def node_ids(self) -> list[int]:
        self.metadata([])
        return sorted(self._addresses)

    def metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Return the metadata of the named topics, or of all topics for None."""
        return self.patiently(lambda: self.ask_metadata(topics, create))

    def ask_metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Like `metadata`, but without retries. Raises BrokerAway."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        answer = self.connection(None).call(request, MetadataResponse)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def coordinator_call(
        self,
        group: str,
        request: Message,
        response_type: type[M],
        error_of: Callable[[M], int],
        max_version: int | None = None,
        timeout_s: float | None = None,
        within_s: float | None = None,
    ) -> M:
        """Ask the group's coordinator. Asks again for a while if the coordinator is being found, created or loaded:
        `within_s` if given, and once for 0. Raises BrokerAway."""
        backoff = Backoff(self._timeout_s if within_s is None else within_s)
        while True:
            try:
                node_id = self._coordinator_id(group)
                if node_id is not None:
                    answer = self.connection(node_id).call(request, response_type, max_version, timeout_s)
                    if error_of(answer) not in COORDINATOR_MOVES or backoff.is_over:
                        return answer
            except BrokerAway:
                if backoff.is_over:
                    raise
            if backoff.is_over:
                raise BrokerAway(f"group {group} has no coordinator yet")
            backoff.wait()

    def _coordinator_id(self, group: str) -> int | None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        found = self.connection(None).call(request, FindCoordinatorResponse).coordinators[0]
        if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return None
        check(found.error_code, f"coordinator of group {group}", found.error_message)
        self._addresses[found.node_id] = found.host, found.port
        return found.node_id

    def close(self) -> None:
        for connection in [self._any, *self._connections.values()]:
            connection.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _request_timeout_s(self) -> float:
        return min(self._timeout_s, REQUEST_TIMEOUT_S)

    def _address_of(self, node_id: int) -> tuple[str, int]:
        if node_id not in self._addresses:
            self.ask_metadata([])
        if node_id not in self._addresses:
            raise BrokerAway(f"broker {node_id} is not alive")
        return self._addresses[node_id]

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(host, port, self._request_timeout_s, self._security)

    def _first_that_answers(self, addresses: list[tuple[str, int]]) -> Connection:
        failures = []
        for host, port in dict.fromkeys(addresses):
            try:
                return self._connect(host, port)
            except BrokerAway as failure:
                failures.append(str(failure))
        raise BrokerAway("; ".join(failures))


class _PatientRemote:
    """The broker with one id, or any broker. A request is repeated after a lost connection."""

    def __init__(self, cluster: Cluster, node_id: int | None) -> None:
        self._cluster = cluster
        self._node_id = node_id

    def call(
        self,
        request: Message,
        response_type: type[M],
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> M:
        return self._cluster.patiently(
            lambda: self._cluster.connection(self._node_id).call(
                request, response_type, max_version, timeout_s
            )
        )

    def serves(self, api_key: int, version: int) -> bool:
        return self._cluster.patiently(
            lambda: self._cluster.connection(self._node_id).serves(api_key, version)
        )


def parsed(address: str) -> tuple[str, int]:
    """Split 'host:port' into host and port."""
    found = split_host_and_port(address)
    if found is None:
        raise CommandFailed(
            f"--bootstrap (or --bootstrap-server) takes host:port[,host:port...], not {address!r}"
        )
    return found
