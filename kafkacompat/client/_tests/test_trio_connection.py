"""The client on trio: a broker of ours in the clear and behind TLS with a login, and servers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from kafkacompat._tests.certificates import Authority
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
from kafkacompat.client.exchange import BrokerAway, Exchange, NoAnswer
from kafkacompat.client.trio_connection import DECODED_AT_ONCE_BYTES, TrioConnection, connected
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity
from kafkacompat.testing.process import Broker
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import MetadataResponse

AUTHORITY = Authority()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    with secured_broker(AUTHORITY, tmp_path_factory.mktemp("node")) as running:
        yield running


def to(
    port: int, security: ClientSecurity = NO_SECURITY, within_s: float = 20, host: str = "127.0.0.1"
) -> AbstractAsyncContextManager[TrioConnection]:
    return connected(host, port, security, client_id="test", response_bytes_max=1 << 20, within_s=within_s)


async def metadata(
    port: int, security: ClientSecurity = NO_SECURITY, within_s: float = 20
) -> MetadataResponse:
    async with to(port, security, within_s) as connection:
        return await connection.call(MetadataRequest(topics=[]), MetadataResponse)


async def test_any_message_may_be_asked_one_after_another(secured: tuple[Broker, int]) -> None:
    _, port = host_and_port_of(secured[0])
    async with to(port) as connection:
        assert connection.serves(ApiKey.METADATA, MetadataRequest.MAX_VERSION)
        cluster_id = (await connection.call(DescribeClusterRequest(), DescribeClusterResponse)).cluster_id
        for version in (None, 9):
            answer = await connection.call(MetadataRequest(topics=[]), MetadataResponse, version)
            assert answer.cluster_id == cluster_id


async def test_a_large_answer_is_decoded_beside_the_loop(
    secured: tuple[Broker, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    original = Exchange.response

    def response(self: Exchange, response_type: type[Any]) -> Any:
        threads.append(threading.current_thread())
        return original(self, response_type)

    _, port = host_and_port_of(secured[0])
    async with to(port) as connection:
        node_id = (await connection.call(MetadataRequest(topics=[]), MetadataResponse)).brokers[0].node_id
        monkeypatch.setattr(Exchange, "response", response)
        asked = DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name=str(node_id))
        request = DescribeConfigsRequest(resources=[asked], include_documentation=True)
        (result,) = (await connection.call(request, DescribeConfigsResponse)).results
        await connection.call(MetadataRequest(topics=[]), MetadataResponse)
    assert sum(len(each.documentation or "") for each in result.configs) > DECODED_AT_ONCE_BYTES
    assert [each is threading.current_thread() for each in threads] == [False, True]


async def test_a_listener_with_tls_and_a_login_is_asked(secured: tuple[Broker, int], tmp_path: Path) -> None:
    answer = await metadata(secured[1], secured_address(AUTHORITY, tmp_path, secured[1]).security())
    assert [each.port for each in answer.brokers] == [secured[1]]


async def test_a_login_that_is_refused_is_told_without_the_password(
    secured: tuple[Broker, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CommandFailed) as refused:
        await metadata(secured[1], secured_address(AUTHORITY, tmp_path, secured[1], WRONG).security())
    assert type(refused.value) is CommandFailed
    assert str(refused.value).startswith(f"authentication with 127.0.0.1:{secured[1]} failed: ")
    assert WRONG not in str(refused.value) + repr(refused.value) + caplog.text


async def test_a_listener_that_does_not_fit_is_told_with_its_address(
    secured: tuple[Broker, int], tmp_path: Path
) -> None:
    with pytest.raises(CommandFailed, match=r"security\.protocol"):
        await metadata(secured[1])
    _, port = host_and_port_of(secured[0])
    with pytest.raises(BrokerAway, match=rf"TLS with 127\.0\.0\.1:{port} failed: .*security\.protocol"):
        await metadata(port, secured_address(AUTHORITY, tmp_path, port).security())
    with pytest.raises(CommandFailed, match=f"the certificate of 127.0.0.1:{secured[1]} is refused: "):
        await metadata(secured[1], secured_address(Authority(), tmp_path, secured[1]).security())


@pytest.mark.parametrize(
    ("serve", "within_s", "kind", "said"),
    [
        (close, 20, BrokerAway, "closed the connection (does security.protocol"),
        (hang, 0.1, NoAnswer, "within 0.1 s"),
        (close_later, 20, BrokerAway, "closed the connection"),
        (hang_later, 0.5, NoAnswer, "within 0.5 s"),
        (trickle, 0.5, NoAnswer, "within 0.5 s"),
        (promise_much, 20, CommandFailed, "claims 2147483647 bytes, and at most 1048576 are read"),
        (answer_another, 20, CommandFailed, "it is the one to request 3, not to 2"),
    ],
)
async def test_who_misbehaves_is_left(
    serve: Serve, within_s: float, kind: type[CommandFailed], said: str
) -> None:
    with misbehaving(serve) as port, pytest.raises(CommandFailed) as failure:
        await metadata(port, within_s=within_s)
    assert type(failure.value) is kind
    assert said in str(failure.value)
    assert f"127.0.0.1:{port}" in str(failure.value)


async def test_a_block_that_takes_too_long_ends() -> None:
    with (
        misbehaving(hang_later) as port,
        pytest.raises(NoAnswer, match=r"did not answer( API_VERSIONS)? within 1 s"),
    ):
        async with to(port, within_s=1):
            await trio.sleep_forever()


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "\udcff", ""])
async def test_a_text_that_names_no_host_is_away_and_can_be_shown(host: str) -> None:
    with pytest.raises(BrokerAway, match="no broker answers at ") as failure:
        async with to(1, host=host):
            raise AssertionError("connected")
    str(failure.value).encode()
