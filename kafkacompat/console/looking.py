"""Reads the cluster's state repeatedly at a bounded rate, also while the broker is away. No views and no HTTP."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from kafkacompat.addresses import split_host_and_port
from kafkacompat.client.trio_connection import reason_of
from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.core.lag_history import lags_of
from kafkacompat.console.core.snapshot import GroupEpochs, MirrorSeen, ReplicaSize
from kafkacompat.console.epochs import epochs_of
from kafkacompat.console.failure import BrokerAway
from kafkacompat.console.mirrors import mirrors_of
from kafkacompat.console.reader import ResultReader
from kafkacompat.console.share_groups import CoordinatedGroups, share_groups_of
from kafkacompat.console.share_numbers import NumbersTold, share_numbers_of
from kafkacompat.console.sizes import sizes_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.http_fetch import HttpAddress
from kafkacompat.security.sasl_client import ClientSecurity

LOOK_INTERVAL_S = 1.0
AWAY_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 5.0
LOOKS_PER_SIZES = 5
LOOKS_PER_MIRRORS = 10
"""A node looks through the settings of all topics for them."""
NUMBERS_INTERVAL_S = 5.0
"""A scrape of a node with many topics takes 0.2 s of its CPU."""

NO_THREAD = "the system gives the console no thread"

Clock = Callable[[], int]


def wall_clock_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def addresses(state: ConsoleState) -> list[tuple[str, int]]:
    """Return the addresses at which a broker may listen: the configured ones, and those that the last look found."""
    found = []
    for text in state.connection.bootstrap.split(","):
        place = split_host_and_port(text)
        if place is not None:
            found.append(place)
    nodes = state.snapshot.nodes if state.snapshot is not None else ()
    return found + [(node.host, node.port) for node in nodes]


async def require_listener(places: list[tuple[str, int]]) -> None:
    """Raise BrokerAway, with the reason of the first place, unless one of the places accepts a connection.

    The client library would use its whole timeout for a broker that is gone. The operating system refuses at once.
    """
    reason = "no address of a broker is known"
    for number, (host, port) in enumerate(dict.fromkeys(places)):
        try:
            with trio.fail_after(PROBE_TIMEOUT_S):
                await (await trio.open_tcp_stream(host, port)).aclose()
            return
        except (OSError, trio.TooSlowError, UnicodeError) as error:
            if number == 0:
                reason = "no connection in time" if isinstance(error, trio.TooSlowError) else reason_of(error)
    raise BrokerAway(reason)


async def kept_up(task: Callable[[], Awaitable[None]], tell: Callable[[str], object]) -> None:
    """Carry out a task, and begin it again if the system gave it no thread. That passes, and must not end the console."""
    while True:
        try:
            await task()
            return
        except* RuntimeError as failures:
            if failures.split(_is_no_thread)[1] is not None:
                raise
            tell(NO_THREAD)
        await trio.sleep(AWAY_INTERVAL_S)


def _is_no_thread(failure: BaseException) -> bool:
    return isinstance(failure, RuntimeError) and "start new thread" in str(failure)


async def keep_looking(
    state: ConsoleState,
    client: ClusterClient,
    reader: ResultReader,
    clock: Clock,
    security: ClientSecurity,
) -> None:
    """Update the state and the reader until cancelled. Sizes are read on every LOOKS_PER_SIZES-th look."""
    limiter = trio.CapacityLimiter(1)
    sizes: tuple[ReplicaSize, ...] | None = None
    error = ""
    epochs: Mapping[str, GroupEpochs] = {}
    shared: Mapping[int, CoordinatedGroups] = {}
    mirrors: tuple[MirrorSeen, ...] = ()
    looks = 0
    while True:
        try:
            await require_listener(addresses(state))
            snapshot = await trio.to_thread.run_sync(
                client.look, clock(), abandon_on_cancel=True, limiter=limiter
            )
        except BrokerAway as away:
            state.away(clock(), str(away))
            looks = 0
            await trio.sleep(AWAY_INTERVAL_S)
            continue
        reader.follow(snapshot)
        state.looked(snapshot)
        state.sized(sizes, error)
        # Until the coordinators answer, the epochs are those of the previous look.
        state.described(epochs)
        state.shared(shared)
        state.mirrored(mirrors)
        shared = await share_groups_of(snapshot.nodes, security, shared)
        state.shared(shared)
        if snapshot.groups:
            epochs = await epochs_of(snapshot, security)
            state.described(epochs)
        if looks % LOOKS_PER_SIZES == 0:
            sizes, error = await sizes_of(snapshot.nodes, security)
            state.sized(sizes, error)
        if looks % LOOKS_PER_MIRRORS == 0:
            mirrors = await mirrors_of(snapshot, security, mirrors)
            state.mirrored(mirrors)
        if state.snapshot is not None and state.lags.is_due(snapshot.taken_ms):
            lags = await trio.to_thread.run_sync(lags_of, state.snapshot)
            state.lags.add(snapshot.taken_ms, lags)
        looks += 1
        await trio.sleep(LOOK_INTERVAL_S)


async def keep_counting(state: ConsoleState, addresses: Sequence[HttpAddress]) -> None:
    """Ask the nodes' metrics for what is in flight with share groups, until cancelled. No look waits for them."""
    if not addresses:
        return
    state.counted(NumbersTold())
    while True:
        state.counted(await share_numbers_of(addresses))
        await trio.sleep(NUMBERS_INTERVAL_S)
