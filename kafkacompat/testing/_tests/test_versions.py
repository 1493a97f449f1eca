"""What a node shows that shows itself as an older release."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api._tests.kit import Api
from kafkacompat.ports.dispatcher import ANONYMOUS, CloseConnection, ConnectionInfo, Principal
from kafkacompat.testing.ports import ReservedPorts
from kafkacompat.testing.settings import client_listeners, nodes_settings
from kafkacompat.testing.versions import ReleaseDispatcher, release, releases
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse

CLIENTS = "PLAINTEXT"


class Shown:
    """A broker's dispatcher that shows itself as a release."""

    def __init__(self, version: str) -> None:
        self.connection = ConnectionInfo(1, CLIENTS, "127.0.0.1", 1)
        self.dispatcher = ReleaseDispatcher(Api().dispatcher, release(version), {CLIENTS})

    def ask(self, key: int, version: int, body: bytes = b"") -> bytes:
        frame = memoryview(bytearray(request_header_bytes(key, version, 7, "client") + body))
        reply = self.dispatcher.dispatch(self.connection, frame)
        assert isinstance(reply, list)
        return b"".join(map(bytes, reply))

    def api_versions(self, version: int = 3, answer_version: int | None = None) -> Any:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        reply = self.ask(18, version, encode(request, min(version, 4)))
        assert int.from_bytes(reply[:4], "big") == len(reply) - 4
        assert reply[4:8] == b"\0\0\0\7"
        return decode(ApiVersionsResponse, version if answer_version is None else answer_version, reply[8:])

    def ranges(self) -> dict[int, tuple[int, int]]:
        return {each.api_key: (each.min_version, each.max_version) for each in self.api_versions(0).api_keys}


def test_apis_and_versions_are_those_of_the_release_as_far_as_this_package_serves_them() -> None:
    old, new = Shown("2.8").ranges(), Shown("4.4").ranges()
    assert (old[1], new[1]) == ((4, 12), (4, 18))
    assert old[0] == (0, 9), "librdkafka looks for version 0 of Produce"
    assert (old.get(68), new[68]) == (None, (0, 1))
    assert all(new[key][0] <= low and high <= new[key][1] for key, (low, high) in old.items())


def test_no_release_shows_an_api_that_it_has_not() -> None:
    for name in releases():
        for key, (low, high) in Shown(name).ranges().items():
            served = release(name).apis[key]
            assert key == 0 or served[0] <= low <= high <= served[1], (name, key)


def test_a_version_that_the_release_has_not_closes_the_connection() -> None:
    with pytest.raises(CloseConnection, match=r"API 1 version 13 is not served by Kafka 2.8"):
        Shown("2.8").ask(1, 13)


def test_a_login_after_the_oldest_handshake_reaches_the_node() -> None:
    """It has no header, so it is no request of any version."""
    shown = Shown("2.8")
    shown.connection.listener_is_sasl = True
    seen: list[bytes] = []

    class Node:
        def dispatch(self, _: ConnectionInfo, frame: memoryview) -> list[bytes]:
            seen.append(bytes(frame))
            return [b"reply"]

        def connection_closed(self, _: ConnectionInfo) -> None:
            """Nothing is kept."""

    shown.dispatcher = ReleaseDispatcher(Node(), release("2.8"), {CLIENTS})
    login = b"\0alice\0wonderland"
    with pytest.raises(CloseConnection):
        shown.dispatcher.dispatch(shown.connection, memoryview(login))
    handshake = request_header_bytes(17, 0, 7, "client") + b"\0\5PLAIN"
    for frame in (handshake, login, b"\0"):
        shown.dispatcher.dispatch(shown.connection, memoryview(bytearray(frame)))
    assert seen == [handshake, login, b"\0"]
    shown.connection.principal = Principal("User", "alice")
    with pytest.raises(CloseConnection, match="API 1 version 13"):
        shown.ask(1, 13)
    shown.connection.principal = ANONYMOUS
    shown.dispatcher.connection_closed(shown.connection)
    with pytest.raises(CloseConnection):
        shown.dispatcher.dispatch(shown.connection, memoryview(login))


@pytest.mark.parametrize(("version", "told"), [("2.3", []), ("2.4", [(18, 0, 3)]), ("3.9", [(18, 0, 4)])])
def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_form(
    version: str, told: list[tuple[int, int, int]]
) -> None:
    answer = Shown(version).api_versions(5, answer_version=0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == told


def test_a_release_with_zookeeper_has_no_features() -> None:
    answer = Shown("3.2").api_versions()
    assert not answer.supported_features
    assert not answer.finalized_features
    assert answer.finalized_features_epoch == -1


def test_other_listeners_show_what_the_node_is() -> None:
    shown = Shown("2.1")
    shown.connection.listener_name = "CONTROLLER"
    assert shown.ranges()[1] == (4, 18)


def test_a_release_is_found_by_its_version_of_two_or_three_numbers() -> None:
    assert release("3.9.2") == release("3.9")
    assert [release(each).metadata_version for each in ("2.1", "3.9")] == [7, 21]
    assert release("2.1").defaults["message.max.bytes"] == "1000012"
    assert release("2.1").defaults["group.coordinator.rebalance.protocols"] == "classic"


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"version='5.0' is no release from 2.1 to 4.4: 2.1, 2.2"):
        release("5.0")


@pytest.mark.parametrize(
    ("settings", "of_clients"),
    [
        ({}, {"PLAINTEXT"}),
        ({"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}, set()),
    ],
)
def test_nodes_of_a_cluster_have_a_listener_of_their_own_unless_listeners_are_given(
    settings: dict[str, object], of_clients: set[str]
) -> None:
    ports = ReservedPorts()
    try:
        assert client_listeners(nodes_settings(settings, 2, ports)[2], 2) == of_clients
    finally:
        ports.release()


def test_nodes_that_show_themselves_as_a_release_have_a_listener_of_their_own() -> None:
    ports = ReservedPorts()
    try:
        config = nodes_settings({}, 2, ports, release("2.1"))[2]
        assert client_listeners(config, 2) == {"PLAINTEXT"}
        assert config.get_int("message.max.bytes") == 1_000_012
        assert (
            nodes_settings({"message.max.bytes": 9}, 1, ports, release("2.1"))[1].get_int("message.max.bytes")
            == 9
        )
    finally:
        ports.release()
