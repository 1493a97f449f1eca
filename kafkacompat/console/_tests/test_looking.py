"""The addresses that are probed, a broker that is gone is noticed without delay, and cancelled looks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

import pytest
import trio
import trio.testing
from confluent_kafka import KafkaError, KafkaException

from kafkacompat.console import reader as reading
from kafkacompat.console._tests.making import partition, snapshot, topic
from kafkacompat.console.core.snapshot import GroupSeen, NodeSeen, Snapshot
from kafkacompat.console.failure import BrokerAway
from kafkacompat.console.looking import addresses, keep_looking, kept_up, require_listener
from kafkacompat.console.reader import ResultReader
from kafkacompat.console.sizes import sizes_of
from kafkacompat.console.state import ConsoleState
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.security.sasl_client import NO_SECURITY


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that nobody is given meanwhile, and where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


def test_a_broker_is_looked_for_where_we_were_told_and_where_it_said() -> None:
    state = ConsoleState(ClusterAddress("a:1, [::1]:2,nonsense"), 0, "run")
    assert addresses(state) == [("a", 1), ("::1", 2)]
    state.looked(snapshot(topic("t", partition(0)), nodes=(1, 2)))
    assert addresses(state)[2:] == [("127.0.0.1", 9001), ("127.0.0.1", 9002)]


async def test_one_listener_of_several_is_enough(unused_port: int) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, trio.aclose_forcefully, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        await require_listener([("127.0.0.1", unused_port), ("127.0.0.1", port)])
        nursery.cancel_scope.cancel()


async def test_a_port_where_nobody_listens_is_said_in_words(unused_port: int) -> None:
    with pytest.raises(BrokerAway, match=r"^connection refused$"):
        await require_listener([("127.0.0.1", unused_port)])
    with pytest.raises(BrokerAway, match="no address of a broker is known"):
        await require_listener([])


ODD_PLACES = [("a..b", 1), ("x" * 70, 1), ("\u00fc" * 64, 1), ("\udcff", 1), ("127.0.0.1", -1), (".x", 1)]


@pytest.mark.parametrize(("host", "port"), ODD_PLACES)
async def test_an_address_that_cannot_be_is_away_and_no_error_of_ours(host: str, port: int) -> None:
    """A node advertises what it is configured to. The next look asks at that address."""
    with pytest.raises(BrokerAway) as raised:
        await require_listener([(host, port)])
    assert str(raised.value)
    sizes, error = await sizes_of([NodeSeen(1, host, port)], NO_SECURITY)
    assert sizes is None
    assert error.removeprefix("node 1: ") not in ("", error)


class ScriptedClient:
    """Looks as scripted. The last one repeats."""

    def __init__(self, *looks: Snapshot | BrokerAway) -> None:
        self.looks = list(looks)

    def look(self, now_ms: int) -> Snapshot:
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, BrokerAway):
            raise found
        return found


class Followed:
    """A reader that records what it should follow."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def follow(self, seen: Snapshot) -> None:
        self.snapshots.append(seen)


async def test_looking_goes_on_after_a_broker_was_away(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def listening(places: object) -> None:
        return

    async def no_sizes(nodes: object, security: object) -> tuple[None, str]:
        return None, "asked for a login"

    monkeypatch.setattr("kafkacompat.console.looking.require_listener", listening)
    monkeypatch.setattr("kafkacompat.console.looking.sizes_of", no_sizes)
    group = GroupSeen("g", "classic", "empty", 0, 1, {("t", 0): 4})
    seen = snapshot(topic("t", partition(0)), at_ms=70, groups=(group,))
    state, reader = ConsoleState(ClusterAddress("h:1"), 0, "run"), Followed()
    client = ScriptedClient(BrokerAway("timed out"), seen)
    states: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_looking, state, client, reader, lambda: 50, NO_SECURITY)
        while len(reader.snapshots) < 2:
            states.append(state.connection.state)
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert "unreachable" in states
    assert state.connection.state == "reachable"
    assert state.connection.since_ms == 70
    assert state.snapshot is not None
    assert (state.snapshot.sizes, state.snapshot.sizes_error) == (None, "asked for a login")
    assert state.lags.of("g") == [(70, 6)], "one point, however many looks"


def no_thread() -> RuntimeError:
    return RuntimeError("can't start new thread")


@pytest.mark.parametrize("failure", [no_thread(), ExceptionGroup("of a nursery", [no_thread(), no_thread()])])
async def test_looking_goes_on_when_there_is_a_thread_again(
    failure: Exception, autojump_clock: trio.testing.MockClock
) -> None:
    told: list[str] = []
    begun = 0

    async def look() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise failure

    await kept_up(look, told.append)
    assert begun == 3
    assert told == ["the system gives the console no thread"] * 2


async def test_another_failure_of_looking_is_not_hidden() -> None:
    async def look() -> None:
        raise ExceptionGroup("of a nursery", [no_thread(), RuntimeError("a mistake of ours")])

    told: list[str] = []
    with pytest.raises(ExceptionGroup):
        await kept_up(look, told.append)
    assert told == []


async def test_results_are_read_on_when_the_library_gets_its_threads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new consumer is made when a topic was deleted and created again."""
    asked = 0

    def consumer(settings: object, logger: object) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Failed to create thread"))
        return "a consumer"

    monkeypatch.setattr(reading, "Consumer", consumer)
    monkeypatch.setattr(reading, "POLL_S", 0.0)
    reader = ResultReader(ClusterAddress("h:1"))
    assert await trio.to_thread.run_sync(reader._new_consumer) == "a consumer"
