"""Who gets the descriptors of a process: the node, then logs, then connections."""

from __future__ import annotations

import pytest
import trio

from kafkacompat.log.disk import RealDisk, open_files
from kafkacompat.net._tests.helpers import LOOPBACK, ScriptedDispatcher, dial, framed, receive_frame, until
from kafkacompat.net.descriptors import LOGS_MIN, NODE_MIN, SMALL_LIMIT, Descriptors, limit_of_the_process
from kafkacompat.net.runtime import SystemClock
from kafkacompat.net.server import Server
from kafkacompat.net.settings import NetworkSettings


class CountedDescriptors:
    """Counts that a test sets."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.files = self.logs = self.connections = 0
        self.descriptors = Descriptors(lambda: self.files, lambda: self.limit)
        self.descriptors.count_logs(lambda: self.logs)
        self.descriptors.connections.append(lambda: self.connections)

    def clients_max(self) -> int:
        self.connections = 0
        told = self.descriptors.connections_left()
        while self.descriptors.may_accept(is_of_a_node=False):
            self.connections += 1
        assert told == self.connections, "a scrape is told how many connections there is room for"
        assert self.descriptors.connections_left() == 0
        return self.connections


@pytest.mark.parametrize("limit", [16, 64, 200, 256, SMALL_LIMIT - 1, SMALL_LIMIT, 1024, 4096, 65_536])
def test_connections_leave_something_for_the_node_and_for_new_logs(limit: int) -> None:
    counted = CountedDescriptors(limit)
    clients = counted.clients_max()
    node, logs = counted.descriptors.reserves()
    assert 0 < clients <= limit - node - logs
    assert counted.descriptors.logs_left() == logs
    assert node >= min(NODE_MIN, limit // 8)
    assert logs >= min(LOGS_MIN, limit // 4)
    assert counted.descriptors.files_max() == logs, "the files of logs never take what is kept for the node"


def test_connections_get_what_logs_do_not_need() -> None:
    counted = CountedDescriptors(1024)
    free = counted.clients_max()
    counted.logs = 300
    assert counted.clients_max() == free - 300, "each log may need a descriptor, also before its file is open"
    counted.files = 350
    assert counted.clients_max() == free - 350, "older segments have files of their own"
    counted.files, counted.logs = 2_000, 0
    assert counted.clients_max() == 0
    assert counted.descriptors.logs_left() == 0


def test_thousands_of_logs_that_nobody_uses_leave_connections_their_half() -> None:
    counted = CountedDescriptors(1024)
    free = counted.clients_max()
    counted.logs = 5_000
    assert counted.clients_max() == free // 2
    assert counted.descriptors.logs_left() == 0, "more are not created"


def test_other_nodes_may_connect_when_clients_may_not() -> None:
    counted = CountedDescriptors(1024)
    clients = counted.clients_max()
    assert counted.descriptors.may_accept(is_of_a_node=True)
    while counted.descriptors.may_accept(is_of_a_node=True):
        counted.connections += 1
    assert clients < counted.connections <= 1024 - NODE_MIN // 2, "they are bounded too"


def test_a_limit_that_is_changed_counts_at_once() -> None:
    counted = CountedDescriptors(4096)
    many = counted.clients_max()
    counted.limit = 512
    assert counted.clients_max() < many


def test_the_limit_is_that_of_the_process() -> None:
    assert Descriptors().limit == limit_of_the_process() > 0


def test_open_files_are_counted(tmp_path: object) -> None:
    before = open_files()
    files = [RealDisk().open(f"{tmp_path}/{number}", create=True) for number in range(3)]
    assert open_files() == before + 3
    files[0].close()
    files[0].close()
    assert open_files() == before + 2
    del files
    assert open_files() == before


async def test_clients_wait_until_there_are_descriptors_again(caplog: pytest.LogCaptureFixture) -> None:
    counted = CountedDescriptors(64)
    counted.files = 64 - sum(counted.descriptors.reserves()) - 2
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            server = Server(
                ScriptedDispatcher(),
                NetworkSettings(),
                SystemClock(),
                None,  # type: ignore[arg-type]
                descriptors=counted.descriptors,
            )
            await server.bind([LOOPBACK])
            await nursery.start(server.run)
            streams = [await dial(server) for _ in range(3)]
            await until(lambda: server.connection_count == 2)
            await until(lambda: "accepts no connections" in caplog.text)
            assert server.connection_count == 2
            await streams[2].send_all(framed(b"hello"))
            await streams[0].aclose()
            assert await receive_frame(streams[2]) == b"hello", "who waited in the backlog is served then"
            waiting = await dial(server)
            await waiting.send_all(framed(b"hello"))
            counted.files -= 1
            assert await receive_frame(waiting) == b"hello", "and when a file is closed"
            nursery.cancel_scope.cancel()
    assert caplog.text.count("accepts no connections") == 1
