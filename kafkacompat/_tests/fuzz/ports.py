"""The ports of a node that lives in this process: virtual time, workers, a network of none but us. The disk is the simulator's.

What a node asks of its ports is its work, counted in units that a seed repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import nan
from typing import Any, TypeVar

from kafkacompat.config import EndPoint, ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.ports import ProbeResult, WorkersBusy
from kafkacompat.ports.dispatcher import Dispatcher
from kafkacompat.ports.network import ListenerReading, MemoryReading
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.processes import StepWork, Timer, VirtualTime, outcome_of
from kafkacompat.sim.scheduler import Scheduler

T = TypeVar("T")
SYNC_US = 300
DIAL_MS = 5


class NodeTime(VirtualTime):
    """Clock, timers and workers of one life of a node; a life that is over hears of nothing any more."""

    def __init__(
        self, scheduler: Scheduler, step: Callable[[str, Callable[[], None]], None], work: StepWork
    ) -> None:
        """Whatever comes due is handed to `step`."""
        super().__init__(scheduler)
        self._step = step
        self._work = work
        self._looks = 0

    def enter(self, what: str, call: Callable[[], None]) -> None:
        self._step(what, call)

    def monotonic_s(self) -> float:
        """Each look takes a millisecond: steps end by how often they look."""
        self._looks += 1
        return self._looks / 1000

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        self._work.timers += 1
        return super().call_after(delay_ms, callback)

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        """As Workers: a job is done when its time is over. What threads do is no step of the loop."""
        answer: Deferred[T] = Deferred()

        def finish(_: Any) -> None:
            if self.alive:
                outcome = outcome_of(function)
                self._step("worker", lambda: outcome.pass_to(answer))

        self._scheduler.after(SYNC_US, finish)
        return answer


class FullPool:
    """A pool that now and then has no room for a job, as that of cold reads may."""

    def __init__(self, workers: NodeTime, chance: Chance) -> None:
        self._workers = workers
        self._chance = chance
        self.is_full_in_8 = 0

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        if self._chance.randrange(8) >= self.is_full_in_8:
            return self._workers.submit(function)
        refused: Deferred[T] = Deferred()
        refused.fail(WorkersBusy("no room for another job"))
        return refused


class NoChannel:
    """Nobody is at the other end."""

    on_refused: Callable[[], None] | None = None
    is_closed = False

    def __init__(self, time: NodeTime) -> None:
        self._time = time

    def peer_versions(self, api_key: int) -> tuple[int, int] | None:
        return None

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        self._time.call_after(DIAL_MS, lambda: reply.fail(ConnectionLost("nobody is there")))
        return reply

    def close(self) -> None:
        self.is_closed = True


class NoChannels:
    def __init__(self, time: NodeTime) -> None:
        self._time = time

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> NoChannel:
        return NoChannel(self._time)

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        result: Deferred[ProbeResult] = Deferred()
        self._time.call_after(DIAL_MS, lambda: result.resolve(ProbeResult.UNREACHABLE))
        return result

    def close_all(self) -> None:
        """Nothing is held."""


class FrameServer:
    """A socket server of which the frames come from us."""

    dispatcher: Dispatcher

    def __init__(self) -> None:
        self.serves = False

    def bind(self, endpoints: Iterable[EndPoint]) -> Deferred[tuple[EndPoint, ...]]:
        return Deferred.of(tuple(endpoints))

    def serve(self, dispatcher: Dispatcher) -> Deferred[None]:
        self.dispatcher = dispatcher
        self.serves = True
        return Deferred.of(None)

    def redirect(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def hold(self, listeners: Collection[str]) -> None:
        """All listeners are one."""

    def take_settings(self, config: ServerConfig) -> None:
        """Connections are not bounded."""

    def check_settings(self, config: ServerConfig) -> None:
        """There are no stores."""

    def take_connection_creation_rates(self, rates: Mapping[str | None, int]) -> None:
        """Connections are not bounded."""

    def listener_readings(self) -> dict[str, ListenerReading]:
        none = 0, 0.0
        traffic = (900, 3.0), (800, 2.0), (30, 0.3), (29, 0.2)
        software = {("a", "1"): 1}
        of_connections = 1, (3, 0.1), (2, 0.05), 1, none, (4, 0.2), none, none
        anew, sizes = (2, (20.0, 30.0)), (67.0, 90.0)
        return {"PLAINTEXT": ListenerReading(*of_connections, *anew, *traffic, *sizes, software, 7.0, nan)}

    def certificate_ends_s(self) -> dict[str, float]:
        return {"PLAINTEXT": 1_900_000_000.0}

    def memory_reading(self) -> MemoryReading | None:
        return None

    def drain(self, deadline_ms: int) -> Deferred[None]:
        return Deferred.of(None)

    def close_listeners(self) -> None:
        self.serves = False


class FrameNetwork:
    """`servers` in the order in which the node asks for them: the controller's, the broker's."""

    def __init__(self, time: NodeTime) -> None:
        self.channels = self.controller_channels = NoChannels(time)
        self.servers: list[FrameServer] = []

    def socket_server(self) -> FrameServer:
        self.servers.append(FrameServer())
        return self.servers[-1]

    def own_name(self, endpoints: Iterable[EndPoint]) -> Deferred[str]:
        return Deferred.of("")

    def resolve(self, host: str) -> Deferred[str | None]:
        return Deferred.of(None)
