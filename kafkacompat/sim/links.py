"""Simulated connections: net.channels.Channels for a process in virtual time.

A connection keeps messages in order and duplicates none. Cut links delay its messages. A random reset, the end of a
process or a timeout closes it, and then messages in flight may or may not have been handled. A killed process refuses
connections; a machine without power does not answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ConnectionLost, RequestTimedOut
from kafkacompat.ports import ProbeResult
from kafkacompat.ports.dispatcher import ConnectionInfo
from kafkacompat.server.broker_coordinators import VERIFICATION_PURPOSE
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.processes import Environment, Process, Timer
from kafkacompat.wire.codec import decode, encode

RETRANSMIT_US = 30_000
SETUP_TIMEOUT_US = 1_500_000
BACKOFF_MS = 40
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZXI"
BROKER_PORT, CONTROLLER_PORT, EXTERNAL_PORT = 9092, 9093, 29092
SECURED_PORT = 9094
"""For clients that authenticate themselves. Messages to it are frames."""


def host_name(machine_id: int) -> str:
    return f"host-{machine_id}"


def machine_id_of(host: str) -> int:
    return int(host.removeprefix("host-"))


class Server(Protocol):
    """What listens on a port. Its methods are called within events of its process."""

    def opened(self, connection: Connection) -> ConnectionInfo: ...

    def closed(self, connection: Connection) -> None: ...

    def asked(self, connection: Connection, message: Any, answered: Callable[[Any], None]) -> None: ...


class ServerProcess(Protocol):
    id: int
    alive: bool
    connections: dict[int, Connection]

    @property
    def listening(self) -> Mapping[int, Server]:
        """By port."""

    @property
    def has_power(self) -> bool: ...

    def enter(self, what: str, call: Callable[[], None]) -> None: ...

    def message_sent(self) -> None: ...


class ServerMachine(Protocol):
    has_power: bool
    link_us: int
    """The maximum additional delay of its messages."""

    @property
    def life(self) -> ServerProcess | None: ...


class Links:
    """The links between all machines and clients of a run."""

    def __init__(self, env: Environment, machines: Mapping[int, ServerMachine]) -> None:
        self.env = env
        self._machines = machines
        self._chance = Chance(env.seed, "slow")
        self._connections = 0

    def next_connection_id(self) -> int:
        self._connections += 1
        return self._connections

    def message_sent(self, source: int) -> None:
        machine = self._machines.get(source)
        if machine is not None and machine.life is not None:
            machine.life.message_sent()

    def draw_delay_us(self, source: int, target: int, extra_us: int) -> int:
        """`extra_us`: maximum additional delay of the connection's messages."""
        delay_us = self.env.network.draw_delay_us()
        slow_us = self._link_us(source) + self._link_us(target)
        if slow_us:
            delay_us += int(slow_us * self._chance.uniform())
        if extra_us and not self.env.is_calm:
            delay_us += int(extra_us * self._chance.uniform())
        return delay_us

    def _link_us(self, process_id: int) -> int:
        """0 for clients."""
        machine = self._machines.get(process_id)
        return 0 if machine is None else machine.link_us

    def dial(
        self, source: Process, host: str, port: int, done: Callable[[ServerProcess | ProbeResult], None]
    ) -> None:
        """Try to connect. The result arrives as an event."""
        machine_id = machine_id_of(host)
        machine, network, scheduler = self._machines[machine_id], self.env.network, self.env.scheduler

        def reached(_: Any) -> None:
            life = machine.life
            cut = network.is_cut(source.id, machine_id) or network.is_cut(machine_id, source.id)
            if cut or not machine.has_power:
                scheduler.after(
                    SETUP_TIMEOUT_US,
                    lambda _: source.enter("unreachable", lambda: done(ProbeResult.UNREACHABLE)),
                )
            elif life is None or port not in life.listening:
                source.enter("refused", lambda: done(ProbeResult.REFUSED))
            else:
                # A source that is paused hears of it later, when the life may listen no more.
                source.enter(
                    "connected", lambda: done(life if port in life.listening else ProbeResult.REFUSED)
                )

        scheduler.after(2 * network.draw_delay_us(), reached)


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        links: Links,
        source: int,
        target: int,
        deliver: Callable[[Any], None],
        extra_us: int,
    ) -> None:
        """`extra_us`: maximum additional delay of messages."""
        self._links = links
        self._network = links.env.network
        self._scheduler = links.env.scheduler
        self._extra_us = extra_us
        self._source = source
        self._target = target
        self._deliver = deliver
        self._queue: deque[Any] = deque()
        self._arrived = 0
        self._last_due_us = 0
        self._retrying = False
        self.closed = False

    def send(self, item: Any) -> None:
        scheduler = self._scheduler
        self._links.message_sent(self._source)
        delay_us = self._links.draw_delay_us(self._source, self._target, self._extra_us)
        due_us = max(scheduler.now_us + delay_us, self._last_due_us)
        self._last_due_us = due_us
        self._queue.append(item)
        scheduler.after(due_us - scheduler.now_us, self._arrive)

    def _arrive(self, _: Any) -> None:
        self._arrived += 1
        self._drain()

    def _retry(self, _: Any) -> None:
        self._retrying = False
        self._drain()

    def _drain(self) -> None:
        while self._arrived and not self.closed:
            if self._network.is_cut(self._source, self._target):
                if not self._retrying:
                    self._retrying = True
                    self._scheduler.after(RETRANSMIT_US, self._retry)
                return
            self._arrived -= 1
            self._deliver(self._queue.popleft())


class End:
    """The last item in a pipe: the connection was closed or reset."""


END = End()


class _Call:
    __slots__ = ("message", "reply", "timer")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.reply: Deferred[Any] = Deferred()
        self.timer: Timer | None = None

    def finish(self, outcome: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.reply.done:
            return
        if isinstance(outcome, Exception):
            self.reply.fail(outcome)
        else:
            self.reply.resolve(outcome)


class _Slot:
    __slots__ = ("answer", "asked")

    def __init__(self, asked: type[Any]) -> None:
        self.asked = asked
        self.answer: Any = None


class Connection:
    """A connection between a channel and one life of a machine."""

    def __init__(self, channel: SimulatedChannel, life: ServerProcess, port: int) -> None:
        links = channel.links
        self.id = links.next_connection_id()
        self.channel = channel
        self.life = life
        self.port = port
        self._server = life.listening[port]
        self.info = self._server.opened(self)
        self.in_flight: deque[_Call] = deque()
        self._is_draining = False
        self._answers: deque[_Slot] = deque()
        self._is_ended = False
        """True once the server has closed it."""
        self.is_refused = False
        """True once the server refuses it: requests that it has not answered will get no answer."""
        options = links.env.options
        extra_us = options.slow_us if channel.purpose == options.slow_purpose else 0
        if channel.purpose == VERIFICATION_PURPOSE:
            extra_us = options.verification_us
        self._to_server = Pipe(links, channel.source.id, life.id, self._at_server, extra_us)
        self._to_client = Pipe(links, life.id, channel.source.id, self._at_client, 0)
        self._env = links.env
        self._encodes = options.encodes
        life.connections[self.id] = self
        channel.source_connections[self.id] = self

    @property
    def is_ended(self) -> bool:
        """Whether the server knows that it is closed."""
        return self._is_ended

    def send(self, call: _Call) -> None:
        self.in_flight.append(call)
        self._to_server.send(self._on_wire(call.message, type(call.message)))

    def _on_wire(self, message: Any, asked: type[Any]) -> Any:
        """`asked`: the class of the request, to which the message belongs."""
        if not self._encodes:
            return message
        version = self.channel.max_versions.get(asked, asked.MAX_VERSION)
        return decode(type(message), version, bytes(encode(message, version)))

    def close_by_client(self) -> None:
        self._to_client.closed = True
        self.channel.source_connections.pop(self.id, None)
        self._to_server.send(END)

    def source_died(self, *, silently: bool) -> None:
        self._to_client.closed = True
        if silently:
            self._to_server.closed = True
        else:
            self._to_server.send(END)

    def close_by_server(self) -> None:
        """The server closes the connection in the middle of an event."""
        self.is_refused = True
        self._to_server.closed = True
        self.life.connections.pop(self.id, None)
        if not self._is_ended:
            self._closed_at_server()
            self._to_client.send(END)

    def drain(self) -> None:
        """Accept no more requests. Close when everything received is answered."""
        self._is_draining = True
        if not self._answers:
            self.close_by_server()

    def server_died(self, *, silently: bool) -> None:
        if not silently:
            self._to_client.send(END)

    # The server's side.

    def _at_server(self, item: Any) -> None:
        life = self.life
        if not life.alive:
            if not life.has_power:
                return
            self._to_server.closed = True
            self._to_client.send(END)
            return
        if item is END or self._env.network.is_lost():
            if item is not END:
                self._env.counters.resets += 1
                self._to_client.send(END)
            self._to_server.closed = True
            life.connections.pop(self.id, None)
            life.enter("connection closed", self._closed_at_server)
            return
        if not self._is_draining:
            life.enter(type(item).__name__, lambda: self._serve(item))

    def _closed_at_server(self) -> None:
        self._is_ended = True
        self._server.closed(self)

    def _serve(self, message: Any) -> None:
        slot = _Slot(type(message))
        self._answers.append(slot)

        def answered(response: Any) -> None:
            slot.answer = response
            while self._answers and self._answers[0].answer is not None:
                ready = self._answers.popleft()
                if not self._is_ended:
                    self._to_client.send(self._on_wire(ready.answer, ready.asked))
            if self._is_draining and not self._answers and not self._is_ended:
                self.close_by_server()

        self._server.asked(self, message, answered)

    # The client's side.

    def _at_client(self, item: Any) -> None:
        self.channel.source.enter(
            "connection lost" if item is END else type(item).__name__, lambda: self._received(item)
        )

    def _received(self, item: Any) -> None:
        if self._to_client.closed:
            return
        if item is END:
            self._to_client.closed = True
            self.channel.source_connections.pop(self.id, None)
            self.channel.lost(self)
        else:
            self.in_flight.popleft().finish(item)


class SimulatedChannel:
    """net.channel.Channel of one process to one address, for one purpose."""

    def __init__(self, channels: SimulatedChannels, host: str, port: int, purpose: str) -> None:
        self.purpose = purpose
        self.links = channels.links
        self.source = channels.source
        self.source_connections = channels.connections
        self.host = host
        self.port = port
        self.on_refused: Callable[[], None] | None = None
        self.max_versions: dict[type[Any], int] = {}
        """Of messages that are not sent at their highest version."""
        self.is_closed = False
        self._connection: Connection | None = None
        self._waiting: list[_Call] = []
        self._attempt = 0
        self._is_dialling = False

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return None

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        if max_version is not None:
            self.max_versions[type(message)] = max_version
        call = _Call(message)
        if self.is_closed:
            call.finish(ConnectionLost("the channel is closed"))
            return call.reply
        call.timer = self.source.call_after(timeout_ms, lambda: self._timed_out(call))
        if self._connection is not None:
            self._connection.send(call)
        else:
            self._waiting.append(call)
            if not self._is_dialling:
                self._dial(is_again=False)
        return call.reply

    def close(self) -> None:
        self.is_closed = True
        self._drop("the channel was closed")

    def _timed_out(self, call: _Call) -> None:
        if call.reply.done:
            return
        is_sent = call not in self._waiting
        if not is_sent:
            self._waiting.remove(call)
        call.finish(RequestTimedOut(f"{type(call.message).__name__} to {self.host}"))
        if is_sent:
            self._drop("a request timed out")

    def _drop(self, reason: str) -> None:
        self._attempt += 1
        self._is_dialling = False
        connection, self._connection = self._connection, None
        lost = self._waiting
        self._waiting = []
        if connection is not None:
            connection.close_by_client()
            lost = [*connection.in_flight, *lost]
        for call in lost:
            call.finish(ConnectionLost(reason))

    def lost(self, connection: Connection) -> None:
        """The other side has closed the connection: connect again at once."""
        if connection is not self._connection:
            return
        self._connection = None
        lost, self._waiting = [*connection.in_flight, *self._waiting], []
        self._dial(is_again=True)
        for call in lost:
            call.finish(ConnectionLost("the connection was lost"))

    def _dial(self, *, is_again: bool) -> None:
        self._attempt += 1
        self._is_dialling = True
        attempt = self._attempt
        self.links.dial(
            self.source, self.host, self.port, lambda life: self._dialled(attempt, life, is_again)
        )

    def _dialled(self, attempt: int, answer: ServerProcess | ProbeResult, is_again: bool) -> None:
        if attempt != self._attempt or self.is_closed:
            return
        if isinstance(answer, ProbeResult):
            # New requests wait for the next attempt. Those that already waited fail.
            lost, self._waiting = self._waiting, []
            self.source.call_after(BACKOFF_MS, lambda: self._backed_off(attempt))
            if answer is ProbeResult.REFUSED and is_again and self.on_refused is not None:
                self.on_refused()
            for call in lost:
                call.finish(ConnectionLost(answer.name))
            return
        self._is_dialling = False
        self._connection = Connection(self, answer, self.port)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._connection.send(call)

    def _backed_off(self, attempt: int) -> None:
        if attempt != self._attempt or self.is_closed:
            return
        self._is_dialling = False
        if self._waiting:
            self._dial(is_again=False)


class SimulatedChannels:
    """net.channels.Channels of one process."""

    def __init__(self, source: Process, links: Links) -> None:
        self.links = links
        self.source = source
        self.connections: dict[int, Connection] = {}
        self._channels: dict[tuple[str, int, str], SimulatedChannel] = {}

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> SimulatedChannel:
        channel = self._channels.get((host, port, purpose))
        if channel is None or channel.is_closed:
            channel = self._channels[host, port, purpose] = SimulatedChannel(self, host, port, purpose)
        return channel

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        result: Deferred[ProbeResult] = Deferred()

        def dialled(answer: ServerProcess | ProbeResult) -> None:
            result.resolve(answer if isinstance(answer, ProbeResult) else ProbeResult.CONNECTED)

        self.links.dial(self.source, host, port, dialled)
        return result

    def close_all(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def source_died(self, *, silently: bool) -> None:
        for connection in list(self.connections.values()):
            connection.source_died(silently=silently)
        self.connections.clear()
