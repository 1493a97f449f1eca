"""A node in a thread of this process: the third composition of a node, beside the command's and the simulator's.

Its sockets are real. Its disk, clock and timers are the caller's. Nothing of it changes the process: no signals, no exit, no
freezing of garbage collection.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from kafkacompat.net.network import TrioNetwork
from kafkacompat.net.runtime import SystemClock, SystemRandom, carry_out
from kafkacompat.net.workers import worker_pools
from kafkacompat.server.admission import security_between_nodes
from kafkacompat.server.process import listeners_with_tls, refuse_what_is_not_served
from kafkacompat.server.raft_server import KafkaRaftServer
from kafkacompat.server.services import NodeServices
from kafkacompat.tasks import Tasks
from kafkacompat.testing.clock import NodeTime, TestClock
from kafkacompat.testing.network import KeptServers, TestNetwork, Wrap
from kafkacompat.testing.workers import loop_pools

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.controller.image import BrokerRegistration
    from kafkacompat.controller.liveness import Liveness
    from kafkacompat.ports import Disk, Network, Timers, WorkerPools
    from kafkacompat.testing.links import NodeLinks

T = TypeVar("T")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
JOBS_LOOKS, JOBS_LOOK_S = 200, 0.001


class NodeEnded(Exception):
    """The node does not run: it was stopped or killed, or it has halted."""


class Halted(BaseException):
    """Raised where the node halts, because nothing after it may run. It ends the node's thread."""


class Arrivals:
    """A nursery for a node that may be killed: what the node starts when it is gone does not happen."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.start = nursery.start

    def start_soon(self, function: Callable[..., Any], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the nursery is closed
            self._nursery.start_soon(function, *arguments)


def know_copies(liveness: Liveness) -> None:
    """Let a controller take a broker for ended that was registered at another address. The state is then copied from another
    Kafka, such as that of which this one is a fork. No address of a node changes otherwise."""
    inner = liveness.is_live

    def is_live(broker: BrokerRegistration, endpoints: set[tuple[str, int]], host: str) -> bool:
        former = {(each.host, each.port) for each in broker.endpoints.values()}
        return former == endpoints and inner(broker, endpoints, host)

    vars(liveness)["is_live"] = is_live


def addresses_of(config: ServerConfig) -> frozenset[tuple[str, int]]:
    """Where a node listens."""
    listeners = (*config.broker_listeners(), *config.controller_listeners())
    return frozenset((each.host, each.port) for each in listeners)


class NodeThread:
    """One node. `start` and then `stop` or `kill`, each once: a node that starts again is another NodeThread on the same disk."""

    def __init__(
        self,
        config: ServerConfig,
        disk: Disk,
        *,
        clock: TestClock | None = None,
        wrap: Wrap = lambda dispatcher: dispatcher,
        links: NodeLinks | None = None,
        name: str | None = None,
    ) -> None:
        """The directories of the disk are formatted. `clock` may be shared with other nodes. `wrap` puts
        something around the dispatcher of each socket server. `links`: those to other nodes. `name` is the thread's."""
        self.config = config
        self.disk = disk
        self.clock = clock or TestClock()
        self.error: BaseException | None = None
        """Why the node ended, if nobody has ended it."""
        self.server: KafkaRaftServer
        """Only the node's thread may use it (`call`)."""
        self.services: NodeServices
        self.time: NodeTime
        self._wrap = wrap
        self._links = links
        self._ready: Future[None] = Future()
        self._token: trio.lowlevel.TrioToken
        self._has_loop = threading.Event()
        """Set when the thread has its loop, or has ended without one."""
        self._scope = trio.CancelScope()
        self._asked = trio.Event()
        self._ended = threading.Event()
        self._is_told = False
        self._thread = threading.Thread(
            target=self._run, name=name or f"kafkacompat node {config.node_id}", daemon=True
        )

    # From any thread.

    def begin(self) -> None:
        """Start, without waiting: the nodes of a quorum wait for each other."""
        self._thread.start()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        self.begin()
        self.wait_ready(timeout_s)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the node serves clients. Raises what keeps it from that, TimeoutError."""
        try:
            self._ready.result(timeout_s)
        except TimeoutError:
            if self._ready.done():
                raise
            raise TimeoutError(f"node {self.config.node_id} does not serve after {timeout_s:g} s") from None

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._ended.is_set()

    @property
    def endpoints(self) -> tuple[EndPoint, ...]:
        """The client listeners, with their ports."""
        return () if self.server.broker is None else self.server.broker.bound

    def call(self, function: Callable[[], T]) -> T:
        """The value of a function that the node's thread calls between two steps. Raises its exception, NodeEnded."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        return self._answer(run, future)

    def carry_out(self, steps: Callable[[], Coroutine[Any, None, T]]) -> T:
        """The value of a coroutine over deferred values, which the node's loop carries out. Raises its exception, NodeEnded."""
        future: Future[T] = Future()

        def run() -> None:
            def done(task: Any) -> None:
                try:
                    future.set_result(task.result())
                except BaseException as error:
                    future.set_exception(error)

            self.services.tasks.run("a test's operation", steps()).on_done(done)

        return self._answer(run, future)

    def exchange(self, disk: Disk) -> None:
        """Let another node, on another disk, take the place of this one. The sockets stay, and so do the connections of clients
        that wait for no answer."""
        self.begin_exchange(disk).result(START_TIMEOUT_S)

    def begin_exchange(self, disk: Disk) -> Future[None]:
        """The same without waiting: the nodes of a quorum wait for each other."""
        return self._begin(partial(self._exchange, disk))

    def begin_retirement(self) -> Future[None]:
        """End the node, without waiting. Its place is empty until the exchange: requests wait. All nodes of a quorum end before one
        of the next follows, which would otherwise take over what the last ones know."""
        return self._begin(self._retire)

    def _begin(self, steps: Callable[[], Awaitable[None]]) -> Future[None]:
        future: Future[None] = Future()

        async def carry_out() -> None:
            try:
                await steps()
            except BaseException as error:
                future.set_exception(error)
                raise
            future.set_result(None)

        try:
            self._token.run_sync_soon(self._nursery.start_soon, carry_out)
        except trio.RunFinishedError:
            raise NodeEnded from self.error
        return future

    def _answer(self, run: Callable[[], None], future: Future[T]) -> T:
        try:
            self._token.run_sync_soon(run)
        except trio.RunFinishedError:
            raise NodeEnded from self.error
        while True:
            with suppress(TimeoutError):
                return future.result(0.2)
            if self._ended.is_set() and not future.done():
                raise NodeEnded from self.error

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop as a signal stops the command: in order, with a clean shutdown. Raises TimeoutError."""
        self._in_loop(self._asked.set)
        self._join(timeout_s)

    def kill(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End at once, as after kill -9: the disk has what was written. Raises TimeoutError."""
        self.begin_kill()
        self._join(timeout_s)

    def begin_kill(self) -> None:
        """The same without waiting."""
        self._in_loop(self._scope.cancel)

    def _in_loop(self, function: Callable[[], object]) -> None:
        if self._thread.ident is None:
            return  # it did not begin
        self._has_loop.wait()
        with suppress(trio.RunFinishedError, AttributeError):  # it has ended, or had no loop
            self._token.run_sync_soon(function)

    def _join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise TimeoutError(f"node {self.config.node_id} did not end within {timeout_s} s")

    # In the node's thread.

    def _run(self) -> None:
        try:
            trio.run(self._serve, restrict_keyboard_interrupt_to_checkpoints=True)
        except BaseException as error:
            self.error = self.error or error
        finally:
            self._ended.set()
            self._has_loop.set()
            if not self._ready.done():
                self._ready.set_exception(self.error or NodeEnded("the node was stopped before it served"))

    async def _serve(self) -> None:
        config = self.config
        self._token = trio.lowlevel.current_trio_token()
        self._has_loop.set()
        refuse_what_is_not_served(config)
        self._tls = listeners_with_tls(config)
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.time = time = NodeTime(self.clock, f"node {config.node_id}", addresses_of(config))
                await nursery.start(time.run)
                network = self._network(nursery, worker_pools(nursery), time.socket_timers)
                self._servers = KeptServers(network, self._wrap, time.transit)
                if await self._next_life() is not None:
                    self._ready.set_result(None)
                    await self._asked.wait()
                await carry_out(self.server.stop())
                nursery.cancel_scope.cancel()

    def _network(self, nursery: trio.Nursery, workers: WorkerPools, timers: Timers) -> Network:
        network = TrioNetwork(
            cast("trio.Nursery", Arrivals(nursery)),
            self.config,
            self.clock.work,
            timers,
            workers.replies,
            self._tls,
            *security_between_nodes(self.config),
            socket_clock=SystemClock(),
        )
        counted = self.time.transit.network(network)
        return counted if self._links is None else self._links.around(counted, timers)

    async def _next_life(self) -> trio.CancelScope | None:
        """Start a node. Returns None if the thread was asked to end before it served."""
        starting = trio.CancelScope()
        self._nursery.start_soon(self._cancel_when_asked, starting)
        with starting:
            self._life = await self._nursery.start(self._live)
            await carry_out(self.server.build(format_if_empty=False))
            if self.server.controller is not None:
                know_copies(self.server.controller.liveness)
            await carry_out(self.server.start())
        return None if starting.cancelled_caught else self._life

    async def _live(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Carry out a node's timers and jobs until the scope is cancelled."""
        self._life_ended = trio.Event()
        async with trio.open_nursery() as nursery:
            time = self.time
            time.begin_life()
            workers, close = self._workers(nursery)
            workers = time.counted(workers)
            self.services = NodeServices(
                config=self.config,
                clock=self.clock,
                timers=time.timers,
                work_clock=self.clock.work,
                work_timers=time.work_timers,
                tasks=Tasks(time.work_timers),
                random=SystemRandom(),
                disk=self.disk,
                workers=workers,
                network=TestNetwork(self._network(nursery, workers, time.work_timers), self._servers),
                monotonic_s=self.clock.monotonic_s,
                keep=lambda: None,
                halt=self._halt,
            )
            self.server = KafkaRaftServer(self.services)
            await nursery.start(time.live)
            task_status.started(nursery.cancel_scope)
            try:
                await trio.sleep_forever()
            finally:
                close()
        self._life_ended.set()

    def _workers(self, nursery: trio.Nursery) -> tuple[WorkerPools, Callable[[], None]]:
        """The workers of a node, and what ends them with it."""
        if self.disk.is_shared:
            return worker_pools(cast("trio.Nursery", Arrivals(nursery))), lambda: None
        return loop_pools(cast("trio.Nursery", Arrivals(nursery)), self._token)

    async def _retire(self) -> None:
        if not self._life.cancel_called:
            await self._finish_jobs()
            self._servers.node_is_gone(self.config)
            self._life.cancel()
            await self._life_ended.wait()

    async def _exchange(self, disk: Disk) -> None:
        await self._retire()
        self.disk = disk
        await self._next_life()

    async def _finish_jobs(self) -> None:
        """Wait until no thread uses the disk, for a while."""
        for _ in range(JOBS_LOOKS):
            if not self.time.has_jobs():
                return
            await trio.sleep(JOBS_LOOK_S)

    async def _cancel_when_asked(self, starting: trio.CancelScope) -> None:
        await self._asked.wait()
        starting.cancel()

    def _halt(self, error: BaseException) -> None:
        self.error = error
        raise Halted from error
