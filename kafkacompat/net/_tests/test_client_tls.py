"""Connections to other nodes through TLS: which certificates are accepted, and that no byte of a request is lost."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from kafkacompat._tests.certificates import Authority, Identity
from kafkacompat.net._tests.helpers import TLS, ScriptedDispatcher, Terms, serving
from kafkacompat.net._tests.test_channels import HEARTBEAT, reply_frame
from kafkacompat.net.channel import receive_some
from kafkacompat.net.channels import Channels, ConnectionLost
from kafkacompat.net.dialing import dial
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.runtime import TrioClock, TrioTimers, wait_for
from kafkacompat.net.settings import ChannelSettings
from kafkacompat.net.tls_socket import secured
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending, Reply
from kafkacompat.security.sasl_client import ClientSecurity
from kafkacompat.wire.headers import parse_request_header
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse

DEADLINE_S = 20


def server_context(identity: Identity, **more: str) -> ssl.SSLContext:
    """`more`: other settings, with _ for the dots of their names."""
    from kafkacompat.security.ssl_factory import server_context, ssl_settings

    settings = {
        **{name.replace("_", "."): value for name, value in more.items()},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.chain_pem(),
        "ssl.keystore.key": identity.key_pem(),
    }
    return server_context(ssl_settings(settings))


def client_context(authority: Authority) -> ssl.SSLContext:
    from kafkacompat.security.ssl_factory import client_context, ssl_settings

    return client_context(
        ssl_settings({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem()})
    )


@asynccontextmanager
async def echoing(identity: Identity) -> AsyncIterator[int]:
    """A server that echoes. Returns its port."""
    context = server_context(identity)

    async def echo(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True)
        try:
            async for data in tls:
                await tls.send_all(data)
        except (trio.BrokenResourceError, ssl.SSLError):
            return

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, echo, [listener])
        with trio.fail_after(DEADLINE_S):
            yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def test_frames_of_every_size_come_back_whole() -> None:
    authority = Authority()
    async with echoing(authority.issue()) as port:
        tls = await secured(await dial("127.0.0.1", port), client_context(authority), "127.0.0.1")
        buffer = ReceiveBuffer(2**24)
        for size in (0, 1, 16_383, 16_384, 65_536, 1_000_000):
            body = bytes([size % 251]) * size
            rest = memoryview(len(body).to_bytes(4, "big") + body)
            received = None
            while rest or received is None:
                with suppress(BlockingIOError):
                    rest = rest[tls.send(rest) :] if rest else rest
                if received is None and (received := buffer.next_frame()) is None:
                    await receive_some(tls, buffer)
            assert bytes(received) == body
            del received
        tls.close()


@pytest.mark.parametrize(
    ("host", "told"),
    [("127.0.0.1", "self-signed|issuer|signature|verify"), ("other.example", "hostname|mismatch")],
)
async def test_a_peer_with_an_untrusted_certificate_gets_no_request(host: str, told: str) -> None:
    authority = Authority()
    believed = authority if host != "127.0.0.1" else Authority("Another Root")
    async with echoing(authority.issue()) as port:
        with pytest.raises(ConnectionAbortedError, match=f"(?i){told}"):
            await secured(await dial("127.0.0.1", port), client_context(believed), host)


async def test_a_peer_that_speaks_no_tls_or_leaves_is_logged() -> None:
    async def rude(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\0\0\0\4abcd")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, rude, [listener])
        with trio.fail_after(DEADLINE_S):
            sock = await dial("127.0.0.1", listener.socket.getsockname()[1])
            with pytest.raises(ConnectionError):
                await secured(sock, client_context(Authority()), "127.0.0.1")
        nursery.cancel_scope.cancel()


class Answering(ScriptedDispatcher):
    """Another node: it has heartbeats."""

    def dispatch(self, connection: ConnectionInfo, frame: memoryview) -> Reply | Pending | None:
        header = parse_request_header(frame)
        keys = [ApiVersion(api_key=HEARTBEAT, min_version=0, max_version=3)]
        answer = HeartbeatResponse() if header.api_key == HEARTBEAT else ApiVersionsResponse(api_keys=keys)
        return [reply_frame(header.api_key, header.api_version, header.correlation_id, answer)]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_peer_that_wants_another_certificate_is_logged_once_until_it_takes_this_one(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With TLS 1.3 the client's handshake is over before the peer refuses its certificate."""
    authority = Authority()
    store = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": authority.pem()}
    refusing, taking = (
        server_context(authority.issue(), ssl_enabled_protocols=version, ssl_client_auth=client_auth, **store)
        for client_auth in ("required", "none")
    )
    terms = Terms(refusing)
    monkeypatch.setitem(TLS, "PLAINTEXT", terms)
    async with serving(Answering()) as server, trio.open_nursery() as nursery:
        clock = TrioClock(0)
        timers = TrioTimers(clock)
        await nursery.start(timers.run)
        settings = ChannelSettings(reconnect_backoff_ms=1, reconnect_backoff_max_ms=1)
        channels = Channels(nursery, clock, timers, "7", settings, ClientSecurity(client_context(authority)))
        channel = channels.get("127.0.0.1", server.listeners[0].port, "test")
        for terms.context in (refusing, refusing, taking, refusing, refusing):
            for each in list(server._connections.values()):
                each.close()
            answer = wait_for(channel.request(HeartbeatRequest(), 5_000))
            if terms.context is taking:
                assert await answer
            else:
                with pytest.raises(ConnectionLost):
                    await answer
        channels.close_all()
        nursery.cancel_scope.cancel()
    told = [each.getMessage() for each in caplog.records if each.name == "kafkacompat.net.channel"]
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0].startswith(f"no TLS with 127.0.0.1:{channel.port}: ")
