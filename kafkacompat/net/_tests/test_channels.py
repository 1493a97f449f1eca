"""Requests of this node to others: order, versions, loss, timeouts, backoff; the difference between a dead process and
a closed connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from kafkacompat.net import channel as channel_module
from kafkacompat.net import channels as channels_module
from kafkacompat.net import dialing as dialing_module
from kafkacompat.net._tests.helpers import DEADLINE_S, receive_frame, until
from kafkacompat.net.channel import REQUESTS_WAITING_MAX, Channel, _Reading
from kafkacompat.net.channels import (
    ChannelFull,
    Channels,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedByPeer,
)
from kafkacompat.net.dialing import dial
from kafkacompat.net.loop_wait import LoopWait
from kafkacompat.net.poller import Poller
from kafkacompat.net.receive_buffer import ReceiveBuffer
from kafkacompat.net.runtime import TrioClock, TrioTimers, wait_for
from kafkacompat.net.settings import ChannelSettings
from kafkacompat.net.watchdog import LoopRest
from kafkacompat.ports import ProbeResult
from kafkacompat.security.sasl_authenticator import Answer, EnabledMechanism, Failure, SaslServerAuthenticator
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity, PlainSaslClient
from kafkacompat.security.sasl_server import PlainSaslServer
from kafkacompat.wire.codec import encode
from kafkacompat.wire.headers import parse_request_header, request_frame, response_header_bytes
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest

TIMEOUT_MS = 5_000
HEARTBEAT, FETCH, API_VERSIONS = 12, 1, 18


def reply_frame(key: int, version: int, correlation_id: int, message: object) -> bytes:
    body = bytes(response_header_bytes(key, version, correlation_id)) + encode(message, version)  # type: ignore[arg-type]
    return struct.pack(">i", len(body)) + body


class Peer:
    """The other node. It answers ApiVersions by itself, and heartbeats unless it holds them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.versions = {API_VERSIONS: (0, 5), HEARTBEAT: (0, 3), FETCH: (4, 17)}
        self.api_versions_max = 5
        self.holds = False
        self.requests: list[tuple[int, int, str | None]] = []
        """(key, version, client id) of the requests."""
        self.streams: list[trio.SocketStream] = []
        self.held: list[bytes] = []
        self.fetch: FetchResponse | None = None
        self.closes_before_agreement = False
        self.users: dict[str, str] | None = None
        """If set, it requires SASL: the options of PLAIN's login module."""
        self._nursery = nursery
        self._listener: trio.SocketListener | None = None
        self._scope: trio.CancelScope | None = None
        self.port = 0

    async def listen(self) -> None:
        (self._listener,) = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = self._listener.socket.getsockname()[1]
        self._scope = await self._nursery.start(self._serve, self._listener)

    async def stop_listening(self) -> None:
        assert self._scope is not None
        assert self._listener is not None
        self._scope.cancel()
        await self._listener.aclose()

    async def _serve(
        self, listener: trio.SocketListener, task_status: trio.TaskStatus[trio.CancelScope]
    ) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await trio.serve_listeners(self._talk, [listener], handler_nursery=self._nursery)

    async def _talk(self, stream: trio.SocketStream) -> None:
        self.streams.append(stream)
        authenticator = self._authenticator()
        try:
            while True:
                frame = await receive_frame(stream)
                if self.closes_before_agreement:
                    await stream.aclose()
                    return
                if authenticator is not None and frame[:2] in (b"\0\x11", b"\0\x24"):
                    self.requests.append((frame[1], frame[3], None))
                    await stream.send_all(self._authenticated(authenticator, frame))
                    continue
                answer = self._answer(frame)
                if self.holds and not frame.startswith(struct.pack(">h", API_VERSIONS)):
                    self.held.append(answer)
                else:
                    await stream.send_all(answer)
        except (AssertionError, trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def _authenticator(self) -> SaslServerAuthenticator | None:
        if self.users is None:
            return None
        users = self.users
        return SaslServerAuthenticator({"PLAIN": EnabledMechanism(lambda: PlainSaslServer(users), 60_000)})

    @staticmethod
    def _authenticated(authenticator: SaslServerAuthenticator, frame: bytes) -> bytes:
        if authenticator.is_complete:
            assert authenticator.begins_anew(frame[1], 0)
        outcome = authenticator.handle(memoryview(frame), 0)
        assert isinstance(outcome, (Answer, Failure))
        assert outcome.reply is not None
        return outcome.reply

    def _answer(self, frame: bytes) -> bytes:
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        self.requests.append((key, version, header.client_id))
        if key == API_VERSIONS:
            keys = [
                ApiVersion(api_key=each, min_version=low, max_version=high)
                for each, (low, high) in self.versions.items()
            ]
            if version > self.api_versions_max:
                refusal = ApiVersionsResponse(error_code=35, api_keys=keys)
                return reply_frame(key, 0, header.correlation_id, refusal)
            return reply_frame(key, version, header.correlation_id, ApiVersionsResponse(api_keys=keys))
        if key == FETCH:
            assert self.fetch is not None
            return reply_frame(key, version, header.correlation_id, self.fetch)
        # The answer contains the request's size, so that a test sees which request it is for.
        return reply_frame(
            key, version, header.correlation_id, HeartbeatResponse(throttle_time_ms=len(frame))
        )

    async def release(self) -> None:
        held, self.held = self.held, []
        for answer in held:
            await self.streams[-1].send_all(answer)


@pytest.fixture(params=[False, True], ids=["in the loop", "in the loop's place"], autouse=True)
def in_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a poller waits in the loop's place, and delivers the replies."""
    chosen: bool = request.param
    monkeypatch.setattr(DialingNode, "is_in_place", chosen)
    return chosen


class DialingNode:
    is_in_place = False

    def __init__(
        self, nursery: trio.Nursery, settings: ChannelSettings, security: ClientSecurity = NO_SECURITY
    ) -> None:
        clock = TrioClock(0)
        self.timers = TrioTimers(clock)
        self.nursery = nursery
        self.peer = Peer(nursery)
        self.wait = LoopWait(LoopRest(), self.timers)
        self.channels = Channels(nursery, clock, self.timers, "7", settings, security, self.wait)
        self.pollers: list[Poller] = []

    async def wait_in_place(self) -> trio.CancelScope:
        """Another poller begins to. The scope ends it."""
        poller = Poller(lambda until_s: None, lambda: None, wait=self.wait)
        self.pollers.append(poller)
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await poller.run()

        self.nursery.start_soon(run)
        await until(lambda: self.wait.owner is poller)
        return scope

    def channel(self, purpose: str = "test") -> Channel:
        return self.channels.get("127.0.0.1", self.peer.port, purpose)


@asynccontextmanager
async def dialing(
    settings: ChannelSettings | None = None, security: ClientSecurity = NO_SECURITY
) -> AsyncIterator[DialingNode]:
    async with trio.open_nursery() as nursery:
        made = DialingNode(nursery, settings or ChannelSettings(), security)
        await nursery.start(made.timers.run)
        await made.peer.listen()
        if made.is_in_place:
            await made.wait_in_place()
        with trio.fail_after(DEADLINE_S):
            yield made
        made.channels.close_all()
        nursery.cancel_scope.cancel()
    for poller in made.pollers:
        poller.close()


def heartbeat(member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


async def test_requests_are_pipelined_at_the_highest_common_version() -> None:
    async with dialing() as w:
        w.peer.holds = True
        channel = w.channel()
        replies = [channel.request(heartbeat("m" * count), TIMEOUT_MS) for count in range(1, 9)]
        await until(lambda: len(w.peer.held) == 8)
        await w.peer.release()
        sizes = [(await wait_for(reply)).throttle_time_ms for reply in replies]
        assert sizes == sorted(sizes)
        assert len(set(sizes)) == 8
        assert [each[0] for each in w.peer.requests] == [API_VERSIONS] + [HEARTBEAT] * 8
        assert set(w.peer.requests) == {(API_VERSIONS, 5, "7"), (HEARTBEAT, 3, "7")}
        assert len(w.peer.streams) == 1
        assert channel.requests_waiting == 0


async def test_a_lower_version_may_be_asked_for() -> None:
    async with dialing() as w:
        await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS, max_version=1))
        assert w.peer.requests[-1][:2] == (HEARTBEAT, 1)


async def test_a_peer_that_knows_only_older_apiversions_is_asked_again() -> None:
    async with dialing() as w:
        w.peer.api_versions_max = 2
        w.peer.versions[API_VERSIONS] = (0, 2)
        await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS))
        assert [each[:2] for each in w.peer.requests] == [
            (API_VERSIONS, 5),
            (API_VERSIONS, 2),
            (HEARTBEAT, 3),
        ]


async def test_a_request_that_the_peer_does_not_serve_fails_alone() -> None:
    async with dialing() as w:
        channel = w.channel()
        with pytest.raises(UnsupportedByPeer, match="ListGroupsRequest"):
            await wait_for(channel.request(ListGroupsRequest(), TIMEOUT_MS))
        w.peer.versions[HEARTBEAT] = (0, 2)
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        # A peer's version 2 has no field for a static member's id, which is known once the connection is established.
        other = w.channel("other")
        request = heartbeat()
        request.group_instance_id = "static"
        with pytest.raises(UnsupportedByPeer, match="version 2"):
            await wait_for(other.request(request, TIMEOUT_MS))
        await wait_for(other.request(heartbeat(), TIMEOUT_MS))
        assert len(w.peer.streams) == 2


async def test_records_of_a_large_response_are_views_that_stay() -> None:
    async with dialing() as w:
        w.peer.fetch = FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=bytes(16), partitions=[PartitionData(records=bytes([n]) * 3_000_000)]
                )
                for n in (1, 2)
            ]
        )
        channel = w.channel()
        first = await wait_for(channel.request(FetchRequest(), TIMEOUT_MS))
        views = [topic.partitions[0].records for topic in first.responses]
        assert all(isinstance(view, memoryview) for view in views)
        second = await wait_for(channel.request(FetchRequest(), TIMEOUT_MS))
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert [bytes(view) == bytes([n]) * 3_000_000 for n, view in zip((1, 2), views, strict=True)] == [
            True
        ] * 2
        assert second.responses[1].partitions[0].records[:3] == b"\x02\x02\x02"


async def test_without_memory_for_a_response_the_connection_is_lost_and_the_next_one_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacks(buffer: ReceiveBuffer, capacity: int, keep: int) -> None:
        raise MemoryError

    async with dialing() as w:
        records = PartitionData(records=bytes(100_000))
        w.peer.fetch = FetchResponse(
            responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[records])]
        )
        channel = w.channel()
        with monkeypatch.context() as patch:
            patch.setattr(ReceiveBuffer, "_replace", lacks)
            assert await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
            with pytest.raises(ConnectionLost, match="MemoryError"):
                await wait_for(channel.request(FetchRequest(), TIMEOUT_MS))
        assert (await wait_for(channel.request(FetchRequest(), TIMEOUT_MS))).responses


@pytest.mark.parametrize("is_connected", [False, True])
async def test_without_memory_for_a_request_it_fails_alone(
    is_connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(message: Any, *rest: Any) -> bytearray:
        if isinstance(message, ListGroupsRequest):
            raise MemoryError
        return request_frame(message, *rest)

    async with dialing() as w:
        w.peer.versions[16] = (0, 5)
        monkeypatch.setattr(channel_module, "request_frame", lacks)
        channel = w.channel()
        if is_connected:
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        replies = [
            channel.request(each, TIMEOUT_MS) for each in (heartbeat(), ListGroupsRequest(), heartbeat())
        ]
        with pytest.raises(ConnectionLost, match="no memory"):
            await wait_for(replies[1])
        assert await wait_for(replies[0])
        assert await wait_for(replies[2])
        assert len(w.peer.streams) == 1


async def test_a_large_request_leaves_whole_though_the_socket_is_full() -> None:
    async with dialing() as w:
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        replies = [
            channel.request(FetchRequest(rack_id="r" * 30_000), TIMEOUT_MS, max_version=17)
            for _ in range(100)
        ]
        w.peer.fetch = FetchResponse()
        for reply in replies:
            assert (await wait_for(reply)).responses == []


async def test_a_refused_connection_loses_what_waits_and_the_next_request_tries_again() -> None:
    async with dialing() as w:
        await w.peer.stop_listening()
        channel = w.channel()
        refused: list[int] = []
        channel.on_refused = lambda: refused.append(1)
        with pytest.raises(ConnectionLost, match="refused"):
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        await w.peer.listen()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        # Only a close of an established connection and then a refusal show that the process is gone.
        assert refused == []


async def test_a_close_followed_by_a_refusal_is_told() -> None:
    async with dialing() as w:
        channel = w.channel()
        refused: list[int] = []
        channel.on_refused = lambda: refused.append(1)
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.holds = True
        pending = channel.request(heartbeat(), TIMEOUT_MS)
        await until(lambda: len(w.peer.held) == 1)
        await w.peer.stop_listening()
        await w.peer.streams[0].aclose()
        with pytest.raises(ConnectionLost):
            await wait_for(pending)
        await until(lambda: refused == [1])


async def test_a_close_alone_is_not_told_and_the_connection_comes_back_by_itself() -> None:
    async with dialing() as w:
        channel = w.channel()
        refused: list[int] = []
        channel.on_refused = lambda: refused.append(1)
        for number in range(3):
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
            await w.peer.streams[number].aclose()
            await until(lambda wanted=number + 2: len(w.peer.streams) == wanted and channel.is_ready)  # type: ignore[misc]
        assert refused == []


async def test_a_peer_that_always_closes_is_left_alone_after_some_attempts() -> None:
    async with dialing(ChannelSettings(reconnect_backoff_ms=1, reconnect_backoff_max_ms=4)) as w:
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.closes_before_agreement = True
        await w.peer.streams[0].aclose()
        await until(lambda: channel._scope is None)
        assert 2 <= len(w.peer.streams) <= 8
        w.peer.closes_before_agreement = False
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))


async def test_a_request_without_a_response_ends_the_connection_in_its_time() -> None:
    async with dialing() as w:
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.holds = True
        slow = channel.request(heartbeat(), 50)
        behind = channel.request(heartbeat(), TIMEOUT_MS)
        with pytest.raises(RequestTimedOut):
            await wait_for(slow)
        with pytest.raises(ConnectionLost):
            await wait_for(behind)
        w.peer.holds = False
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert len(w.peer.streams) == 2


async def test_a_request_in_line_times_out_without_harm_to_the_others() -> None:
    with socket.socket() as deaf:
        # It accepts connections into its backlog and never answers, like a stopped process.
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        async with dialing(ChannelSettings(connection_setup_timeout_ms=2000)) as w:
            channel = w.channels.get("127.0.0.1", deaf.getsockname()[1], "test")
            early = channel.request(heartbeat(), 20)
            late = channel.request(heartbeat(), TIMEOUT_MS)
            with pytest.raises(RequestTimedOut):
                await wait_for(early)
            assert not late.done
            with pytest.raises(ConnectionLost):
                await wait_for(late)


async def test_more_than_the_bound_is_refused_at_once() -> None:
    async with dialing() as w:
        channel = w.channel()
        w.peer.holds = True
        kept = [channel.request(heartbeat(), TIMEOUT_MS) for _ in range(REQUESTS_WAITING_MAX)]
        with pytest.raises(ChannelFull):
            channel.request(heartbeat(), TIMEOUT_MS).result()
        await until(lambda: len(w.peer.held) == REQUESTS_WAITING_MAX)
        await w.peer.release()
        for reply in kept:
            await wait_for(reply)


async def test_replies_out_of_order_end_the_connection() -> None:
    async with dialing() as w:
        channel = w.channel()
        w.peer.holds = True
        replies = [channel.request(heartbeat(), TIMEOUT_MS) for _ in range(2)]
        await until(lambda: len(w.peer.held) == 2)
        w.peer.held.reverse()
        await w.peer.release()
        for reply in replies:
            with pytest.raises(ConnectionLost):
                await wait_for(reply)


async def test_all_requests_have_one_timer_and_each_its_own_timeout() -> None:
    async with dialing() as w:
        channel = w.channel()
        for _ in range(3):
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.holds = True
        late = channel.request(heartbeat(), TIMEOUT_MS)
        assert len(w.timers) == 1
        early = channel.request(heartbeat(), 30)
        assert len(w.timers) == 1
        with pytest.raises(RequestTimedOut):
            await wait_for(early)
        with pytest.raises(ConnectionLost):
            await wait_for(late)
        assert len(w.timers) == 0
        w.peer.holds = False
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.holds = True
        late, later = channel.request(heartbeat(), 40), channel.request(heartbeat(), TIMEOUT_MS)
        with pytest.raises(RequestTimedOut):
            await wait_for(late)
        with pytest.raises(ConnectionLost):
            await wait_for(later)


@pytest.mark.parametrize("when", ["connecting", "connected", "waiting"])
async def test_closing_loses_what_waits_and_leaves_nothing_behind(when: str) -> None:
    async with dialing() as w:
        channel = w.channel()
        if when != "connecting":
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        w.peer.holds = True
        reply = channel.request(heartbeat(), TIMEOUT_MS)
        if when == "waiting":
            await until(lambda: len(w.peer.held) == 1)
        channel.close()
        with pytest.raises(ConnectionLost):
            reply.result()
        with pytest.raises(ConnectionLost):
            channel.request(heartbeat(), TIMEOUT_MS).result()
        assert len(w.timers) == 0
        assert w.channel() is not channel


async def test_a_callback_that_fails_harms_nobody_else(caplog: pytest.LogCaptureFixture, faults: Any) -> None:
    async with dialing() as w:
        channel = w.channel()

        def broken(_reply: object) -> None:
            raise ZeroDivisionError

        channel.request(heartbeat(), TIMEOUT_MS).on_done(broken)
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert "ZeroDivisionError" in caplog.text
        assert [type(error) for error in faults.take()] == [ZeroDivisionError]


async def test_channels_are_one_for_each_address_and_purpose() -> None:
    async with dialing() as w:
        assert w.channel("a") is w.channel("a")
        assert w.channel("a") is not w.channel("b")
        w.channels.close_all()
        with pytest.raises(ConnectionLost):
            w.channel("a").request(heartbeat(), TIMEOUT_MS).result()


async def test_channels_to_addresses_that_are_not_used_any_more_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers may come and go for years, each with an address of its own."""
    monkeypatch.setattr(channels_module, "CHANNELS_MAX", 4)
    async with dialing() as w:
        connected, rests = w.channel("connected"), w.channel("rests")
        assert await wait_for(connected.request(heartbeat(), TIMEOUT_MS))
        await w.peer.stop_listening()
        for number in range(8):
            reply = w.channel(f"gone {number}").request(heartbeat(), TIMEOUT_MS)
            with pytest.raises(ConnectionLost):
                await wait_for(reply)
        await w.peer.listen()
        assert w.channel("connected") is connected
        others = [w.channel(f"other {number}") for number in range(3)]
        replies = [each.request(heartbeat(), TIMEOUT_MS) for each in others]
        with pytest.raises(RuntimeError, match="4 channels are open"):
            w.channel("one more")
        # Whoever has kept one that has made room goes on with it.
        replies.append(rests.request(heartbeat(), TIMEOUT_MS))
        assert all([await wait_for(each) for each in replies])


async def test_probes() -> None:
    async with dialing() as w:
        assert await wait_for(w.channels.probe("127.0.0.1", w.peer.port, 1000)) is ProbeResult.CONNECTED
        await w.peer.stop_listening()
        assert await wait_for(w.channels.probe("127.0.0.1", w.peer.port, 1000)) is ProbeResult.REFUSED
        found = await wait_for(w.channels.probe("no-such-host.invalid", 1, 5000))
        assert found is ProbeResult.UNREACHABLE


NO_HOST = "kafka-1..svc"
"""As of a template whose variable is empty: the text names no host, so no resolver is asked."""


async def test_an_address_that_names_no_host_harms_nobody_else() -> None:
    async with dialing() as w:
        with pytest.raises(ConnectionLost, match="not a host name"):
            await wait_for(w.channels.get(NO_HOST, 9092, "test").request(heartbeat(), TIMEOUT_MS))
        assert await wait_for(w.channels.probe(NO_HOST, 9092, 1000)) is ProbeResult.UNREACHABLE
        assert await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS))


async def test_behind_an_address_that_does_not_answer_the_next_one_of_the_host_is_dialled(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, there = ("198.51.100.1", 9092), ("127.0.0.1", 9092)
    dialled: list[tuple[object, ...]] = []
    connected, other = socket.socketpair()

    async def resolved(*_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (silent, there)]

    async def connect(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
        dialled.append(address)
        if address == silent:
            await trio.sleep_forever()
        return connected

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolved)
    monkeypatch.setattr(dialing_module, "_connect", connect)
    with connected, other, trio.fail_after(10):
        assert await dial("broker.example", 9092) is connected
    assert dialled == [silent, there]


HANDSHAKE, AUTHENTICATE = 17, 36


def as_alice(password: str = "secret") -> ClientSecurity:
    return ClientSecurity(mechanism="PLAIN", begin=lambda host: PlainSaslClient("alice", password))


async def test_a_channel_says_who_asks_before_its_first_request() -> None:
    async with dialing(security=as_alice()) as w:
        w.peer.users = {"user_alice": "secret"}
        assert await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS))
        assert [key for key, _, _ in w.peer.requests] == [API_VERSIONS, HANDSHAKE, AUTHENTICATE, HEARTBEAT]


async def test_without_a_thread_to_authenticate_the_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_thread(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    async with dialing(security=as_alice()) as w:
        w.peer.users = {"user_alice": "secret"}
        with monkeypatch.context() as patch:
            patch.setattr(trio.to_thread, "run_sync", no_thread)
            with pytest.raises(ConnectionLost, match="new thread"):
                await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS))
        assert await wait_for(w.channel().request(heartbeat(), TIMEOUT_MS))


async def test_a_channel_that_is_not_let_in_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async with dialing(security=as_alice("n0t-this")) as w:
        w.peer.users = {"user_alice": "secret"}
        channel = w.channel()
        for _ in range(3):
            with pytest.raises(ConnectionLost, match="Invalid username or password"):
                await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert HEARTBEAT not in [key for key, _, _ in w.peer.requests]
    assert caplog.text.count("authentication with 127.0.0.1:") == 1
    assert "n0t-this" not in caplog.text


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_session_is_begun_anew_behind_what_is_in_flight(is_busy: bool) -> None:
    async with dialing(security=as_alice()) as w:
        w.peer.users = {"user_alice": "secret"}
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert channel._session._renew_at_ms is not None
        replies = []
        if is_busy:
            w.peer.holds = True
            replies += [channel.request(heartbeat(name), TIMEOUT_MS) for name in ("1st", "2nd")]
            await until(lambda: len(w.peer.held) == 2)
        channel._session._renew_at_ms = 0
        del w.peer.requests[:]
        replies += [channel.request(heartbeat("later" * count), TIMEOUT_MS) for count in (1, 2)]
        if is_busy:
            w.peer.holds = False
            last = w.peer.held.pop()
            await w.peer.release()
            await wait_for(replies[0])
            w.peer.held.append(last)
            await w.peer.release()
        sizes = [(await wait_for(reply)).throttle_time_ms for reply in replies]
        assert sizes == sorted(sizes)
        assert [key for key, _, _ in w.peer.requests] == [HANDSHAKE, AUTHENTICATE, HEARTBEAT, HEARTBEAT]
        assert len(w.peer.streams) == 1
        assert await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert len(w.peer.requests) == 5


async def test_a_request_that_comes_while_the_session_is_begun_anew_waits_for_its_end() -> None:
    async with dialing(security=as_alice()) as w:
        w.peer.users = {"user_alice": "secret"}
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        channel._session._renew_at_ms = 0
        del w.peer.requests[:]
        replies = [channel.request(heartbeat("before"), TIMEOUT_MS)]
        await until(lambda: bool(w.peer.requests))
        replies.append(channel.request(heartbeat("meanwhile"), TIMEOUT_MS))
        for reply in replies:
            await wait_for(reply)
        assert [key for key, _, _ in w.peer.requests] == [HANDSHAKE, AUTHENTICATE, HEARTBEAT, HEARTBEAT]
        assert len(w.peer.streams) == 1


async def test_pollers_come_and_go_while_replies_are_waited_for() -> None:
    async with dialing() as w:
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        for _ in range(3):
            scopes = [await w.wait_in_place(), await w.wait_in_place()]
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
            w.peer.holds = True
            reply = channel.request(heartbeat(), TIMEOUT_MS)
            await until(lambda: len(w.peer.held) == 1)
            for scope in reversed(scopes):
                scope.cancel()
            await until(lambda: w.wait.owner is None)
            await w.peer.release()
            w.peer.holds = False
            await wait_for(reply)
            await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        assert len(w.peer.streams) == 1


async def test_replies_are_delivered_in_the_turns_of_the_poller_that_waits_in_place() -> None:
    async with dialing() as w:
        scope = await w.wait_in_place()
        channel = w.channel()
        await wait_for(channel.request(heartbeat(), TIMEOUT_MS))
        poller = w.pollers[-1]

        def is_read_there() -> bool:
            return any(isinstance(guest, _Reading) for guest in poller._guests.values())

        await until(is_read_there)
        turns: list[bool] = []
        reply = channel.request(heartbeat(), TIMEOUT_MS)
        reply.on_done(lambda _: turns.append(poller.serving))
        await wait_for(reply)
        assert turns == [True]
        # What a reply leads to may close the channel.
        last = channel.request(heartbeat(), TIMEOUT_MS)
        last.on_done(lambda _: channel.close())
        await wait_for(last)
        await until(lambda: not is_read_there())
        scope.cancel()
