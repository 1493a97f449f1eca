"""The client that blocks, for commands: connections to brokers, and the brokers of a cluster.

It sends one request at a time, and every wait is bounded. After a lost connection it retries with the same broker or
another one, as Kafka's clients do.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.addresses import host_and_port
from kafkacompat.client.brokers import COORDINATOR_RETRIABLE, Address, Brokers, Retries
from kafkacompat.client.exchange import BrokerAway, Exchange
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from ssl import SSLContext

CLIENT_ID = "kafkacompat-cli"
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
"""request.timeout.ms of Kafka's clients."""
API_TIMEOUT_S = 60.0
"""default.api.timeout.ms of Kafka's clients."""
RESPONSE_BYTES_MAX = 256 * 1024 * 1024
RECEIVE_BYTES = 256 * 1024

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Connection:
    """One broker. Each request uses the highest version that both sides support."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """timeout_s: time limit for an answer. Raises BrokerAway, or CommandFailed if a retry cannot help."""
        self._timeout_s = timeout_s
        self._exchange = Exchange(
            host_and_port(host, port), CLIENT_ID, RESPONSE_BYTES_MAX, security.authenticator(host)
        )
        self._socket = _connected(
            self._exchange, host, port, min(timeout_s, CONNECT_TIMEOUT_S), security.context
        )
        self.is_lost = False
        """True if the connection cannot be used any more."""
        try:
            request = self._exchange.opening(None)
            while request is not None:
                self._ask(request, None, timeout_s)
                request = self._exchange.opening(self._exchange.any_response())
        except BaseException:
            self.close()
            raise

    def call(
        self,
        request: Message,
        response_type: type[M],
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> M:
        """Send a request and wait for its answer. `timeout_s`: for a request that the broker may hold back. Raises BrokerAway."""
        self._ask(request, max_version, self._timeout_s if timeout_s is None else timeout_s)
        try:
            return self._exchange.response(response_type)
        except CommandFailed:
            self.close()
            raise

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker supports this version of an API."""
        return self._exchange.serves(api_key, version)

    def close(self) -> None:
        self.is_lost = True
        self._socket.close()

    def _ask(self, request: Message, max_version: int | None, timeout_s: float) -> None:
        """Send the request and receive the whole answer, both together within the time limit."""
        frame = self._exchange.send(request, max_version)
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            while True:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(left_s)
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    raise self._exchange.closed()
                if self._exchange.receive(data):
                    return
        except BaseException as error:
            # Also after an interrupt: a late answer would be taken for the answer to the next request.
            self.close()
            if isinstance(error, TimeoutError):
                raise self._exchange.timed_out(timeout_s) from error
            if isinstance(error, OSError):
                raise self._exchange.broken(error) from error
            raise


def _connected(
    exchange: Exchange, host: str, port: int, timeout_s: float, context: SSLContext | None
) -> socket.socket:
    try:
        plain = socket.create_connection((host, port), timeout=timeout_s)
    except (OSError, UnicodeError) as error:  # UnicodeError: a text that names no host
        raise exchange.unreachable(error) from error
    if context is None:
        return plain
    from ssl import SSLCertVerificationError

    try:
        return context.wrap_socket(plain, server_hostname=host)
    except SSLCertVerificationError as error:
        plain.close()
        raise exchange.certificate_refused(error.verify_message) from None
    except OSError as error:
        plain.close()
        raise exchange.handshake_failed(error) from error


class Backoff:
    """Waits between tries. `is_over` is True after the time limit."""

    def __init__(self, timeout_s: float) -> None:
        self._retries = Retries(time.monotonic(), timeout_s)

    @property
    def is_over(self) -> bool:
        return self._retries.is_over(time.monotonic())

    def wait(self) -> None:
        time.sleep(self._retries.next_pause_s())


class Cluster:
    """The brokers of a cluster by node id, found through bootstrap servers."""

    def __init__(self, address: ClusterAddress, timeout_s: float = API_TIMEOUT_S) -> None:
        """Connect to the first server that answers. `timeout_s` limits the wait for each answer, including retries.

        Raises CommandFailed at once if no server answers.
        """
        self._timeout_s = timeout_s
        self._security = address.security()
        self._brokers = Brokers(address.servers)
        self._connections: dict[int, Connection] = {}
        self._any = self._first_that_answers(self._brokers.candidates())

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
            self._any = self._first_that_answers(self._brokers.candidates())
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
            self._brokers.forget()

    def node_ids(self) -> list[int]:
        self.metadata([])
        return self._brokers.node_ids

    def metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Return the metadata of the named topics, or of all topics for None."""
        return self.patiently(lambda: self.ask_metadata(topics, create))

    def ask_metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Like `metadata`, but without retries. Raises BrokerAway."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        answer = self.connection(None).call(request, MetadataResponse)
        self._brokers.learn(answer.brokers)
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
                    if error_of(answer) not in COORDINATOR_RETRIABLE or backoff.is_over:
                        return answer
            except BrokerAway:
                if backoff.is_over:
                    raise
            if backoff.is_over:
                raise BrokerAway(f"group {group} has no coordinator yet")
            backoff.wait()

    def _coordinator_id(self, group: str) -> int | None:
        from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
        from kafkacompat.wire.messages.find_coordinator_response import FindCoordinatorResponse

        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        answer = self.connection(None).call(request, FindCoordinatorResponse)
        return self._brokers.learn_coordinator(answer.coordinators[0], group)

    def close(self) -> None:
        for connection in [self._any, *self._connections.values()]:
            connection.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _address_of(self, node_id: int) -> Address:
        address = self._brokers.address_of(node_id)
        if address is None:
            self.ask_metadata([])
            address = self._brokers.address_of(node_id)
        if address is None:
            raise BrokerAway(f"broker {node_id} is not alive")
        return address

    def _connect(self, host: str, port: int) -> Connection:
        return Connection(host, port, min(self._timeout_s, REQUEST_TIMEOUT_S), self._security)

    def _first_that_answers(self, addresses: Iterable[Address]) -> Connection:
        failures = []
        for host, port in addresses:
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


Remote = Connection | _PatientRemote
"""What answers requests: one broker, or any."""
