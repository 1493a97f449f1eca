"""Sockets in one set: which owner is called, for how long, and that the loop gets its turn."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
import trio

from kafkacompat.net import poller as module
from kafkacompat.net.loop_wait import LoopWait
from kafkacompat.net.poller import READ, WRITE, EpollSet, Poller, SelectorSet, SocketSet
from kafkacompat.net.watchdog import LoopRest


class Echo:
    """Reads one byte per turn."""

    def __init__(self, sock: socket.socket, then: Callable[[bytes], None] = lambda data: None) -> None:
        self.sock, self.then = sock, then
        self.received = b""

    def readable(self) -> None:
        data = self.sock.recv(1)
        self.received += data
        self.then(data)

    def writable(self) -> None:
        raise AssertionError("not waited for")


@pytest.fixture(params=[EpollSet, SelectorSet])
def sockets(request: pytest.FixtureRequest) -> SocketSet:
    chosen: SocketSet = request.param()
    return chosen


def serve_all(poller: Poller) -> None:
    """On a busy machine the time of one call is over before everything is served."""
    while poller.serve():
        pass


def pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_socket_is_read_as_long_as_it_has_something_and_is_not_removed(
    sockets: SocketSet, in_place: bool
) -> None:
    poller = Poller(lambda until_s: None, lambda: None, sockets, LoopWait(LoopRest()) if in_place else None)
    near, far = pair()

    def stop_at_c(data: bytes) -> None:
        if data == b"c":
            poller.remove(near.fileno())

    echo = Echo(near, stop_at_c)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            far.send(b"a")
            poller.add(near.fileno(), echo, READ)
            while echo.received != b"a":
                await trio.sleep(0)
            far.send(b"bcd")
            while echo.received != b"abc":
                await trio.sleep(0)
            poller.add(near.fileno(), echo, READ)
            while echo.received != b"abcd":
                await trio.sleep(0)
            nursery.cancel_scope.cancel()
    poller.close()


def test_a_turn_may_remove_a_connection_that_is_ready_too(sockets: SocketSet) -> None:
    poller = Poller(lambda until_s: None, lambda: None, sockets)
    pairs = [pair(), pair()]
    echoes = [Echo(near) for near, _ in pairs]

    def remove_other(which: int) -> Callable[[bytes], None]:
        return lambda data: poller.remove(pairs[1 - which][0].fileno())

    for which, (near, far) in enumerate(pairs):
        echoes[which].then = remove_other(which)
        poller.add(near.fileno(), echoes[which], READ)
        far.send(b"x")
    serve_all(poller)
    assert sorted(echo.received for echo in echoes) == [b"", b"x"]
    poller.close()


def test_requests_that_follow_each_other_are_served_without_the_loop_until_its_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    trace: list[str] = []
    poller = Poller(lambda until_s: trace.append("each"), lambda: trace.append("all"))
    near, far = pair()

    def answer(data: bytes) -> None:
        nonlocal now
        assert poller.serving
        now += module.BUSY_S * 0.4
        far.send(b"x")

    poller.add(near.fileno(), Echo(near, answer), READ)
    far.send(b"x")
    assert poller.serve()
    assert trace == ["each", "each", "each", "all"]
    assert not poller.serving
    poller.close()


class Writer:
    """Counts its turns, and does in each what the test says."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def readable(self) -> None:
        self.turns.append("read")
        self.then()

    def writable(self) -> None:
        self.turns.append("write")
        self.then()


def fill(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            sock.send(b"x" * 65536)


def empty(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            sock.recv(65536)


def test_a_socket_is_called_for_what_it_waits_for(sockets: SocketSet) -> None:
    poller = Poller(lambda until_s: None, lambda: None, sockets)
    near, far = pair()
    fd = near.fileno()
    writer = Writer()
    poller.add(fd, writer, READ)
    serve_all(poller)
    assert writer.turns == []  # it has room, which is not waited for
    writer.then = lambda: poller.change(fd, READ)
    poller.change(fd, READ | WRITE)
    serve_all(poller)
    assert writer.turns == ["write"]
    fill(near)
    poller.change(fd, READ | WRITE)
    serve_all(poller)
    assert writer.turns == ["write"]
    empty(far)
    serve_all(poller)
    assert writer.turns == ["write", "write"]
    writer.then = lambda: poller.remove(fd)
    far.send(b"a")
    serve_all(poller)
    assert writer.turns == ["write", "write", "read"]
    serve_all(poller)
    assert len(writer.turns) == 3
    poller.close()


def test_a_failed_socket_ends_either_wait(sockets: SocketSet) -> None:
    for events in (READ, WRITE):
        poller = Poller(lambda until_s: None, lambda: None, sockets)
        near, far = pair()
        fill(near)
        writer = Writer()
        writer.then = lambda poller=poller, fd=near.fileno(): fd in poller._readers and poller.remove(fd)  # type: ignore[misc]
        poller.add(near.fileno(), writer, events)
        far.close()
        serve_all(poller)
        assert ("read" if events == READ else "write") in writer.turns
        assert not poller._readers
    sockets.close()


def test_a_socket_that_the_set_does_not_take_is_not_kept() -> None:
    class Full(EpollSet):
        def add(self, fd: int, events: int) -> None:
            raise OSError("no memory")

    poller = Poller(lambda until_s: None, lambda: None, Full())
    near, _ = pair()
    with pytest.raises(OSError):
        poller.add(near.fileno(), Writer(), READ)
    assert not poller._readers
    poller.close()


@pytest.mark.parametrize("in_place", [False, True])
async def test_other_tasks_get_their_turns_while_requests_never_end(
    monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.0001)
    poller = Poller(lambda until_s: None, lambda: None, wait=LoopWait(LoopRest()) if in_place else None)
    near, far = pair()

    def ask_again(data: bytes) -> None:
        far.send(b"x")

    poller.add(near.fileno(), Echo(near, ask_again), READ)
    far.send(b"x")
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            for _ in range(100):
                await trio.sleep(0)
            nursery.cancel_scope.cancel()
    poller.close()


def counted(
    monkeypatch: pytest.MonkeyPatch,
    comes: Callable[[], bool],
    comes_while_polled: Callable[[], bool] = lambda: False,
) -> tuple[Poller, socket.socket, list[int]]:
    """A poller with one socket, the socket's far end, and the number of polls before each request.

    A poll takes 10 us, a sleep its full time. `comes` tells whether a request has come by then, `comes_while_polled` whether one
    has come by the third poll.
    """
    now = 100.0
    questions = [0]
    near, far = pair()

    class Counting(EpollSet):
        def ready(self) -> list[tuple[int, int]]:
            nonlocal now
            now += 0.00001
            questions[-1] += 1
            if questions[-1] == 3 and comes_while_polled():
                far.send(b"x")
            return super().ready()

    def sleep(readers: list[int], *others: object) -> tuple[list[int], tuple[()], tuple[()]]:
        nonlocal now
        now += module.LINGER_S * 0.9
        if not comes():
            return [], (), ()
        far.send(b"x")
        return readers, (), ()

    monkeypatch.setattr(module, "monotonic", lambda: now)
    monkeypatch.setattr(module.select, "select", sleep)
    monkeypatch.setattr(module, "BUSY_S", 0.01)
    poller = Poller(lambda until_s: None, lambda: None, Counting())
    poller._last_end_s = now
    poller.add(near.fileno(), Echo(near, lambda data: questions.append(0)), READ)
    return poller, far, questions


def test_when_waiting_pays_the_next_request_is_asked_for_without_sleeping_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller, _, questions = counted(monkeypatch, lambda: True, lambda: True)
    assert poller.serve()
    slept, spun = questions[: module.REWARDED_MIN], questions[module.REWARDED_MIN : -1]
    assert slept == [2] * module.REWARDED_MIN  # one without result, and one after the sleep
    assert len(spun) > 50
    assert set(spun) == {3}
    poller.close()


def test_polling_that_brings_nothing_is_left_until_as_many_sleeps_have_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests come soon, but none as soon as polling ends."""
    poller, _, questions = counted(monkeypatch, lambda: True)
    assert poller.serve()
    spun_until = 2 + module.SPIN_S / 0.00001
    spun = [at for at, polls in enumerate(questions) if polls >= spun_until]
    assert len(spun) >= 3
    assert {later - at for at, later in pairwise(spun)} == {module.REWARDED_MIN}
    assert max(polls for at, polls in enumerate(questions) if at not in spun) == 2
    poller.close()


@pytest.mark.parametrize(("in_vain", "pays"), [(20, True), (4, False)])
def test_polling_goes_on_where_it_is_seldom_in_vain(
    monkeypatch: pytest.MonkeyPatch, in_vain: int, pays: bool
) -> None:
    """Of so many requests one comes late."""
    requests = itertools.count(1)
    poller, _, questions = counted(monkeypatch, lambda: True, lambda: next(requests) % in_vain > 0)
    assert poller.serve()
    slept = questions.count(2) / len(questions)
    assert slept < 0.2 if pays else slept > 0.5
    poller.close()


def test_where_every_other_wait_is_in_vain_nothing_is_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A produce, the waiting fetch's next request soon after, then a long pause."""
    brings = [False]

    def comes() -> bool:
        brings.append(not brings[-1])
        return brings[-1]

    poller, far, questions = counted(monkeypatch, comes)
    for _ in range(10):
        far.send(b"x")
        assert not poller.serve()
    assert len(questions) == 21
    assert max(questions) <= 3
    poller.close()


def test_requests_that_come_in_groups_are_waited_for_after_the_pause_between_the_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as `follow` come in a group after its first one."""
    follow = [3]
    waits: list[bool] = []

    def comes() -> bool:
        waits.append(follow[0] > 0)
        follow[0] -= 1
        return waits[-1]

    poller, far, questions = counted(monkeypatch, comes)

    def group(after_the_first: int, last_end_s: float = 0.0) -> list[bool]:
        """Whether each wait brought a request."""
        follow[0] = after_the_first
        waits.clear()
        poller._last_end_s = last_end_s
        far.send(b"x")
        assert not poller.serve()
        return list(waits)

    assert group(3) == []
    assert group(3, poller._last_end_s) == [True, True, True, False]
    assert group(2) == [True, True, False]
    assert group(0) == [False]
    assert group(3) == []
    assert max(questions) <= 3, "none is asked for without sleeping"
    poller.close()


def test_of_many_that_are_ready_the_loop_does_not_wait_for_all_and_nobody_has_two_turns_before_the_last_has_one(
    monkeypatch: pytest.MonkeyPatch, sockets: SocketSet
) -> None:
    """Each has more work than one turn allows."""
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    order: list[int] = []
    untils: list[float] = []
    poller = Poller(untils.append, lambda: None, sockets)
    pairs = [pair() for _ in range(20)]

    def turn_of(number: int) -> Callable[[bytes], None]:
        def turn(data: bytes) -> None:
            nonlocal now
            now += module.BUSY_S * 0.3
            order.append(number)

        return turn

    for number, (near, far) in enumerate(pairs):
        poller.add(near.fileno(), Echo(near, turn_of(number)), READ)
        far.send(b"xxx")
    turns = []
    while poller.serve():
        turns.append(len(order) - sum(turns))
        assert now <= untils[-1] + module.BUSY_S * 0.3
        assert untils[-1] - module.BUSY_S <= now
    assert max(turns) == 4
    rounds = [order[at : at + 20] for at in range(0, 60, 20)]
    assert [sorted(each) for each in rounds] == [list(range(20))] * 3
    poller.close()


def test_one_that_has_gone_or_come_anew_before_its_turn_is_not_mistaken(
    monkeypatch: pytest.MonkeyPatch, sockets: SocketSet
) -> None:
    """One of the connections left over is closed, and another gets its descriptor number."""
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    poller = Poller(lambda until_s: None, lambda: None, sockets)
    pairs = [pair() for _ in range(3)]
    writers = [Writer() for _ in pairs]

    def late() -> None:
        nonlocal now
        now += 1

    for (near, far), writer in zip(pairs, writers, strict=True):
        poller.add(near.fileno(), writer, READ)
        writer.then = late
        far.send(b"x")
    assert poller.serve()
    (served,) = [number for number, writer in enumerate(writers) if writer.turns]
    gone, other = (number for number in range(3) if number != served)
    near, _ = pairs[gone]
    poller.remove(near.fileno())
    newcomer = Writer()
    poller.add(near.fileno(), newcomer, WRITE)
    for writer in (*writers, newcomer):
        writer.then = lambda: None
    assert poller._left
    pairs[other][0].recv(1)
    pairs[served][0].recv(1)
    near.recv(1)
    poller.change(near.fileno(), READ)
    poller.serve()
    assert writers[gone].turns == []
    assert newcomer.turns == ["read"], "told of what it does not wait for, at most"
    poller.close()


@pytest.mark.parametrize("ends", [False, True])
def test_nothing_is_waited_for_when_a_connection_has_ended(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that closed it may connect anew, and only the loop accepts connections."""
    waits: list[float] = []

    def wait(readable: list[int], *others: object) -> tuple[list[int], list[int], list[int]]:
        waits.append(1)
        return [], [], []

    monkeypatch.setattr(module.select, "select", wait)
    monkeypatch.setattr(module, "monotonic", lambda: 100.0)
    poller = Poller(lambda until_s: None, lambda: None)
    (near, far), (idle, _) = pair(), pair()
    poller.add(idle.fileno(), Echo(idle), READ)
    then = (lambda data: poller.remove(near.fileno())) if ends else (lambda data: None)
    poller.add(near.fileno(), Echo(near, then), READ)
    poller.serve()
    waits.clear()
    far.send(b"x")
    poller.serve()
    assert bool(waits) is not ends
    poller.close()


class Place(LoopWait):
    """The loop's place, whose loop and timers never have something to do until a test says so."""

    def __init__(self) -> None:
        super().__init__(LoopRest())
        self.idle_until_s = 1e6


class Requests(EpollSet):
    """A set with one client. Each gap is the time from an answer to the client's next request: negative if the request is there
    already. After the last one the loop has something to do."""

    LOOK_S = 0.000001

    def __init__(self, gaps: list[float], place: Place) -> None:
        super().__init__()
        self.gaps = iter(gaps)
        self.now = self.next_s = 100.0
        self.looks: list[str] = []
        self.place = place

    def readable(self) -> None:
        assert not self.place.rest.is_resting
        gap = next(self.gaps, None)
        if gap is None:
            self.place.loop_is_due = True
        else:
            self.next_s = self.now + gap
            self.looks.append("request")

    def writable(self) -> None:
        raise AssertionError("not waited for")

    def ready(self) -> list[tuple[int, int]]:
        self.looks.append("look")
        return self._shown()

    def wait(self, most_s: float) -> list[tuple[int, int]]:
        assert self.place.rest.is_resting
        self.looks.append("sleep")
        self.now = max(self.now, self.next_s)
        return self._shown()

    def _shown(self) -> list[tuple[int, int]]:
        self.now += self.LOOK_S
        return [(self.fileno(), READ)] if self.next_s <= self.now else []

    def served_in_place(
        self, monkeypatch: pytest.MonkeyPatch, after_each: Callable[[float], object] = lambda until_s: None
    ) -> str:
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        poller = Poller(after_each, lambda: None, self, self.place)
        poller._readers[self.fileno()] = self
        poller._serve_in_place(self.place)
        assert not poller.serving
        poller.close()
        return " ".join(self.looks)


def test_in_the_loops_place_a_request_that_finds_it_asleep_costs_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = Requests([0.005] * 20, Place()).served_in_place(monkeypatch)
    assert looks == "look " + "request sleep " * 19 + "request sleep"


def test_in_the_loops_place_requests_that_follow_each_other_closely_are_asked_for_without_sleeping_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gap = module.SPIN_S * 0.7
    looks = Requests([gap] * 30, Place()).served_in_place(monkeypatch).split("request ")[1:]
    slept, spun = looks[: module.REWARDED_MIN], looks[module.REWARDED_MIN :]
    assert slept == ["sleep "] * module.REWARDED_MIN
    assert not any("sleep" in each for each in spun)
    assert {each.count("look") for each in spun} <= {42, 43}


def test_in_the_loops_place_polling_in_vain_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests come soon, but none as soon as polling ends."""
    looks = Requests([module.SPIN_S * 2] * 50, Place()).served_in_place(monkeypatch).split("request ")[1:]
    spun = [at for at, each in enumerate(looks) if "look" in each]
    assert all(each.endswith("sleep ") for each in looks[:-1])
    assert len(spun) > 3
    assert {later - at for at, later in pairwise(spun)} == {module.REWARDED_MIN}


@pytest.mark.parametrize("together", [5, 50])
def test_in_the_loops_place_a_request_that_came_during_anothers_turn_was_not_slept_for(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """So those that come together are no reason to poll for the next group."""
    gaps = ([-1.0] * together + [0.005]) * 4
    looks = Requests(gaps, Place()).served_in_place(monkeypatch)
    assert looks == "look " + " ".join(["request sleep"] * len(gaps))


def test_in_the_loops_place_polling_is_not_rewarded_for_a_request_that_came_during_anothers_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = module.SPIN_S * 0.7, module.SPIN_S * 2
    gaps = [near] * module.REWARDED_MIN + [-1.0] * module.REWARDED_MIN + [far] * 2
    looks = Requests(gaps, Place()).served_in_place(monkeypatch).split("request ")[1:]
    assert looks[: module.REWARDED_MIN] == ["sleep "] * module.REWARDED_MIN
    assert looks[module.REWARDED_MIN : -2] == ["look "] * module.REWARDED_MIN
    assert looks[-2].startswith("look look ")
    assert looks[-1] == "sleep"


def test_in_the_loops_place_the_loop_does_not_wait_for_all_that_are_ready_and_the_rest_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has more work than one turn allows."""
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    order: list[int] = []
    place = Place()
    poller = Poller(lambda until_s: None, lambda: None, wait=place)
    pairs = [pair() for _ in range(20)]

    def turn_of(number: int) -> Callable[[bytes], None]:
        def turn(data: bytes) -> None:
            nonlocal now
            now += module.BUSY_S * 0.3
            order.append(number)
            place.loop_is_due = len(order) == 60

        return turn

    for number, (near, far) in enumerate(pairs):
        poller.add(near.fileno(), Echo(near, turn_of(number)), READ)
        far.send(b"xxx")
    turns = []
    while len(order) < 60:
        poller._serve_in_place(place)
        turns.append(len(order) - sum(turns))
    assert max(turns) == 8  # the last ones of a round, then a look at the set, which shows the loop too
    rounds = [order[at : at + 20] for at in range(0, 60, 20)]
    assert [sorted(each) for each in rounds] == [list(range(20))] * 3
    poller.close()


def test_in_the_loops_place_what_is_left_over_is_done_before_it_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as connections whose turn came back into the queue. The loop is not needed for it."""
    left = iter([True, True, False])
    requests = Requests([0.005] * 2, Place())
    looks = requests.served_in_place(monkeypatch, lambda until_s: next(left, False))
    assert looks == "look request look look sleep request sleep"


def test_in_the_loops_place_timers_fire_between_looks_and_end_it_if_the_loop_has_something_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fired: list[float] = []

    class Timed(Place):
        def idle_s(self, now_s: float) -> float:
            return -1.0

        def fire_due(self) -> bool:
            fired.append(requests.now)
            self.idle_until_s = 0.0
            return len(fired) < 4

    requests = Requests([0.005] * 9, Timed())
    assert requests.served_in_place(monkeypatch) == "look request look look"
    assert len(fired) == 4
