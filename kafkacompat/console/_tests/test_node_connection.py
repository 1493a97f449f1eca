"""Nodes that require TLS and a login tell the console what they tell it without."""

from __future__ import annotations

import ssl
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from kafkacompat._tests.certificates import Authority
from kafkacompat.client.trio_connection import _LOGINS
from kafkacompat.console import clients
from kafkacompat.console._tests.test_share_groups import SEEN, Coordinator
from kafkacompat.console.core.snapshot import NodeSeen
from kafkacompat.console.share_groups import CoordinatedGroups, share_groups_of
from kafkacompat.console.sizes import sizes_of
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_authenticator import (
    Answer,
    AskedForVersions,
    EnabledMechanism,
    Failure,
    SaslServerAuthenticator,
)
from kafkacompat.security.scram import SCRAM_SHA_256
from kafkacompat.security.scram_exchange import ScramSaslServer

USER, PASSWORD = "reader", "a secret"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredNode:
    """A coordinator behind TLS, which answers nobody who has not logged in by SCRAM."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        self.coordinator = Coordinator("g")
        identity = folder / "node.pem"
        identity.write_text(authority.issue().pem())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity)

    async def serve(self, tcp: trio.SocketStream) -> None:
        stream = trio.SSLStream(tcp, self._context, server_side=True, https_compatible=True)
        try:
            if await self._logs_in(stream):
                await self.coordinator.serve(stream)
        except trio.BrokenResourceError:
            return

    async def _logs_in(self, stream: trio.abc.Stream) -> bool:
        mechanism = SCRAM_SHA_256
        kept = mechanism.credential(b"salt", mechanism.salted_password(PASSWORD, b"salt", 4096), 4096)
        enabled = EnabledMechanism(lambda: ScramSaslServer(mechanism, {USER: kept}.get, "server"), 0)
        authenticator = SaslServerAuthenticator({mechanism.name: enabled})
        received = bytearray()
        while not authenticator.is_complete:
            while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
                part = await stream.receive_some(1 << 16)
                if not part:
                    return False
                received += part
            size = struct.unpack_from(">i", received)[0]
            request = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            outcome = authenticator.handle(memoryview(request), 0)
            if isinstance(outcome, AskedForVersions):
                answer = self.coordinator.answer_to(request)
                await stream.send_all(struct.pack(">i", len(answer)) + answer)
                continue
            assert isinstance(outcome, (Answer, Failure))
            if outcome.reply is not None:
                await stream.send_all(outcome.reply)
            if isinstance(outcome, Failure):
                return False
        return True


@asynccontextmanager
async def secured(authority: Authority, folder: Path) -> AsyncIterator[tuple[SecuredNode, NodeSeen]]:
    node = SecuredNode(authority, folder)
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, node.serve, 0, host="127.0.0.1"))
        yield node, NodeSeen(1, *listener.socket.getsockname())
        nursery.cancel_scope.cancel()


def address(authority: Authority, folder: Path, password: str = PASSWORD) -> ClusterAddress:
    trusted = folder / "trusted.pem"
    trusted.write_text(authority.pem())
    return ClusterAddress(
        "127.0.0.1:1",
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{USER}" password="{password}";',
        },
    )


async def test_share_groups_are_seen_through_tls_and_a_login(tmp_path: Path) -> None:
    authority = Authority()
    async with secured(authority, tmp_path) as (_, node):
        found = await share_groups_of([node], address(authority, tmp_path).security(), {})
    (group,) = found[1].groups
    assert (group.group_id, group.stands, found[1].error) == (SEEN.group_id, SEEN.stands, "")


async def test_a_login_that_is_refused_is_told_and_what_was_known_stays(tmp_path: Path) -> None:
    authority = Authority()
    async with secured(authority, tmp_path) as (node, seen):
        security = address(authority, tmp_path, "another").security()
        found = await share_groups_of([seen], security, {1: CoordinatedGroups((SEEN,))})
        assert found[1].groups == (SEEN,)
        told = f"authentication with 127.0.0.1:{seen.port} failed: Authentication failed"
        assert found[1].error.startswith(told)
        assert node.coordinator.asked == []


@pytest.mark.parametrize("trusts_another", [True, False])
async def test_a_node_that_the_client_does_not_trust_is_told_nothing(
    tmp_path: Path, trusts_another: bool
) -> None:
    """Its certificate is another authority's, or the client asks in the clear."""
    properties = address(Authority(), tmp_path) if trusts_another else ClusterAddress("127.0.0.1:1")
    async with secured(Authority(), tmp_path) as (node, seen):
        sizes, error = await sizes_of([seen], properties.security())
        assert sizes is None
        if trusts_another:
            assert error.startswith(f"node 1: the certificate of 127.0.0.1:{seen.port} is refused: ")
        else:
            assert error.startswith(f"node 1: the broker at 127.0.0.1:{seen.port} closed the connection")
            assert "security.protocol" in error
        assert node.coordinator.asked == []


async def test_logins_that_hang_leave_the_threads_of_the_page_alone(
    mock_clock: trio.testing.MockClock,
) -> None:
    """A server that issues tickets may answer nobody, and a thread that waits for it cannot be ended."""
    hangs, release = threading.Semaphore(0), threading.Event()

    def step(response: object) -> None:
        hangs.release()
        release.wait(60)

    hanging = SimpleNamespace(context=None, authenticator=lambda host: SimpleNamespace(step=step))

    async def let_time_pass() -> None:
        await trio.to_thread.run_sync(hangs.acquire)
        mock_clock.jump(clients.NODE_TIMEOUT_S)

    try:
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, Coordinator("g").serve, 0, host="127.0.0.1")
            (listener,) = await nursery.start(serve)
            seen = NodeSeen(1, *listener.socket.getsockname())
            for _ in range(3):
                nursery.start_soon(let_time_pass)
                found = await share_groups_of([seen], hanging, {})  # type: ignore[arg-type]  # as much as is used
                told = f"did not answer within {clients.NODE_TIMEOUT_S:g} s"
                assert found[1].error == f"the broker at 127.0.0.1:{seen.port} {told}"
            nursery.cancel_scope.cancel()
        assert not trio.to_thread.current_default_thread_limiter().borrowed_tokens
        assert _LOGINS.borrowed_tokens == 3
    finally:
        release.set()
