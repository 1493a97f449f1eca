"""The client that blocks: a broker of ours in the clear and behind TLS with a login, and servers that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from kafkacompat._tests.certificates import Authority
from kafkacompat.client import blocking
from kafkacompat.client._tests.running import (
    WRONG,
    Serve,
    answer_another,
    close,
    close_later,
    hang,
    hang_later,
    host_and_port_of,
    misbehaving,
    promise_much,
    secured_address,
    secured_broker,
    trickle,
)
from kafkacompat.client.blocking import Cluster, Connection
from kafkacompat.client.exchange import BrokerAway, NoAnswer
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.testing.process import Broker
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker

AUTHORITY = Authority()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    with secured_broker(AUTHORITY, tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkacompat.client.brokers.RETRY_BACKOFF_S", 0.001)


def asked_for_metadata(connection: Connection) -> MetadataResponse:
    return connection.call(MetadataRequest(topics=[]), MetadataResponse)


def test_any_message_may_be_asked_one_after_another(secured: tuple[Broker, int]) -> None:
    host, port = host_and_port_of(secured[0])
    connection = Connection(host, port, 20)
    assert connection.serves(ApiKey.METADATA, MetadataRequest.MAX_VERSION)
    assert not connection.serves(ApiKey.METADATA, MetadataRequest.MAX_VERSION + 1)
    for _ in range(2):
        cluster_id = connection.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id
        assert asked_for_metadata(connection).cluster_id == cluster_id
    connection.close()
    assert connection.is_lost


def test_a_cluster_is_found_behind_servers_that_are_away(secured: tuple[Broker, int]) -> None:
    host, port = host_and_port_of(secured[0])
    with Cluster(ClusterAddress(f"127.0.0.1:1,{host}:{port}"), 20) as cluster:
        (node_id,) = cluster.node_ids()
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        cluster.any().call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        (found,) = cluster.metadata(["t"]).topics
        assert [each.leader_id for each in found.partitions] == [node_id] * 2
        cluster.connection(None).close()
        cluster.connection(node_id).close()
        assert cluster.node(node_id).serves(ApiKey.METADATA, 9)
        assert cluster.any().call(DescribeClusterRequest(), DescribeClusterResponse).controller_id == node_id
        with pytest.raises(BrokerAway, match="broker 99 is not alive"):
            cluster.node(99)
        with pytest.raises(BrokerAway, match="t-0 has no leader"):
            cluster.leader(-1, "t-0")


@pytest.mark.usefixtures("short_pauses")
def test_a_coordinator_is_waited_for_and_asked(secured: tuple[Broker, int]) -> None:
    """The first question to a coordinator creates the topic of the groups."""
    with Cluster(ClusterAddress(secured[0].bootstrap_servers), 20) as cluster:
        answer = cluster.coordinator_call(
            "g",
            HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            HeartbeatResponse,
            lambda answer: answer.error_code,
        )
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_listener_with_tls_and_a_login_is_asked(secured: tuple[Broker, int], tmp_path: Path) -> None:
    with Cluster(secured_address(AUTHORITY, tmp_path, secured[1]), 20) as cluster:
        assert [each.port for each in cluster.metadata([]).brokers] == [secured[1]]


def test_a_login_that_is_refused_is_told_at_once_without_the_password(
    secured: tuple[Broker, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = secured_address(AUTHORITY, tmp_path, secured[1], WRONG)
    with pytest.raises(CommandFailed) as refused:
        Cluster(address, 20)
    assert not isinstance(refused.value, BrokerAway)
    assert str(refused.value).startswith(f"authentication with 127.0.0.1:{secured[1]} failed: ")
    assert WRONG not in str(refused.value) + repr(refused.value) + caplog.text


def test_a_certificate_of_another_authority_is_refused(secured: tuple[Broker, int], tmp_path: Path) -> None:
    with pytest.raises(
        CommandFailed, match=rf"the certificate of 127\.0\.0\.1:{secured[1]} is refused: "
    ) as refused:
        Cluster(secured_address(Authority(), tmp_path, secured[1]), 20)
    assert not isinstance(refused.value, BrokerAway)


def test_a_listener_that_does_not_fit_is_told_with_the_setting(
    secured: tuple[Broker, int], tmp_path: Path
) -> None:
    with pytest.raises(CommandFailed, match=r"security\.protocol"):
        Connection("127.0.0.1", secured[1], 20)
    _, port = host_and_port_of(secured[0])
    with pytest.raises(BrokerAway, match=rf"TLS with 127\.0\.0\.1:{port} failed: .*security\.protocol"):
        Connection("127.0.0.1", port, 20, secured_address(AUTHORITY, tmp_path, port).security())


@pytest.mark.parametrize(
    ("serve", "timeout_s", "kind", "said"),
    [
        (close, 20, BrokerAway, "closed the connection (does security.protocol"),
        (hang, 0.1, NoAnswer, "did not answer API_VERSIONS within 0.1 s"),
        (close_later, 20, BrokerAway, "closed the connection"),
        (hang_later, 0.1, NoAnswer, "did not answer METADATA within 0.1 s"),
        (trickle, 0.2, NoAnswer, "did not answer METADATA within 0.2 s"),
        (promise_much, 20, CommandFailed, "claims 2147483647 bytes"),
        (answer_another, 20, CommandFailed, "it is the one to request 3, not to 2"),
    ],
)
def test_who_misbehaves_is_left(serve: Serve, timeout_s: float, kind: type[CommandFailed], said: str) -> None:
    made: list[Connection] = []

    def ask(port: int) -> None:
        made.append(Connection("127.0.0.1", port, timeout_s if serve is hang else 20))
        made[0].call(MetadataRequest(topics=[]), MetadataResponse, timeout_s=timeout_s)

    with misbehaving(serve) as port, pytest.raises(CommandFailed) as failure:
        ask(port)
    assert type(failure.value) is kind
    assert said in str(failure.value)
    assert f"127.0.0.1:{port}" in str(failure.value)
    assert all(each.is_lost for each in made)


def test_an_api_that_is_not_served_leaves_the_connection_of_use() -> None:
    with misbehaving(hang_later) as port:
        connection = Connection("127.0.0.1", port, 20)
        with pytest.raises(CommandFailed, match="does not serve DESCRIBE_CLUSTER"):
            connection.call(DescribeClusterRequest(), DescribeClusterResponse)
        assert not connection.is_lost
        connection.close()


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 7.0
        self.slept: list[float] = []
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_request_is_repeated_until_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        is_lost = True
        made = 0

        def __init__(self, *_: object) -> None:
            Away.made += 1

        def call(self, *_: object) -> None:
            raise BrokerAway(f"gone {Away.made}")

        def close(self) -> None:
            return

    monkeypatch.setattr(blocking, "Connection", Away)
    clock = Clock(monkeypatch)
    with Cluster(ClusterAddress("a:1"), 2.0) as cluster, pytest.raises(BrokerAway, match="gone 7"):
        cluster.metadata([])
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_a_broker_that_has_moved_is_found_at_its_new_address(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [MetadataResponseBroker(node_id=1, host="old", port=1)]
    dialled: list[str] = []

    class Scripted:
        is_lost = False

        def __init__(self, host: str, *_: object) -> None:
            dialled.append(host)
            if host == "old":
                moved[0].host = "new"
                raise BrokerAway("gone")
            self.host = host

        def call(self, request: object, response_type: type, *_: object) -> object:
            if response_type is MetadataResponse:
                return MetadataResponse(brokers=[copy(moved[0])])
            return DescribeClusterResponse(cluster_id=self.host)

        def close(self) -> None:
            self.is_lost = True

    monkeypatch.setattr(blocking, "Connection", Scripted)
    Clock(monkeypatch)
    with Cluster(ClusterAddress("bootstrap:1"), 2.0) as cluster:
        remote = cluster.node(1)
        for _ in range(2):
            assert remote.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id == "new"
        assert dialled == ["bootstrap", "old", "new"]
        cluster.connection(1).close()
        assert remote.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id == "new"
    assert dialled == ["bootstrap", "old", "new", "new"]


def test_all_servers_that_do_not_answer_are_named() -> None:
    with pytest.raises(BrokerAway, match=r"127\.0\.0\.1:1: .*; no broker answers at \[::1\]:1: "):
        Cluster(ClusterAddress("127.0.0.1:1,[::1]:1"), 5)
    with pytest.raises(BrokerAway, match=r"no broker answers at a\.\.b:1: "):
        Cluster(ClusterAddress("a..b:1"), 5)
    with pytest.raises(CommandFailed, match="--bootstrap"):
        Cluster(ClusterAddress("nowhere"))
