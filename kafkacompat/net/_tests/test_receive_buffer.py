"""Frames come out of a buffer unchanged, within bounds, and no byte that was returned is ever changed."""

from __future__ import annotations

import random
import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.net import receive_buffer
from kafkacompat.net._tests.helpers import framed
from kafkacompat.net.receive_buffer import (
    DOUBLED_BYTES_MAX,
    ENVELOPE_BYTES_MAX,
    INITIAL_BYTES,
    RETAINED_BYTES_MAX,
    ReceiveBuffer,
)
from kafkacompat.wire.errors import WireError


@given(
    bodies=st.lists(st.binary(max_size=40_000), max_size=12),
    cuts=st.lists(st.integers(1, 70_000), min_size=1, max_size=40),
    asks_alone=st.booleans(),
    ends_at_frames=st.booleans(),
)
def test_the_buffer_gives_back_the_frames_it_was_fed(
    bodies: list[bytes], cuts: list[int], asks_alone: bool, ends_at_frames: bool
) -> None:
    """`asks_alone`: by the method for a frame that comes alone, whenever it may be called."""
    buffer = ReceiveBuffer(40_000)
    ends = list(accumulate(len(body) + 4 for body in bodies))
    stream = b"".join(map(framed, bodies))
    received: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        stop = next(end for end in ends if end > position) if ends_at_frames else len(stream)

        def receive_into(
            room: memoryview, left: bytes = stream[position:stop], most: int = cuts[turn % len(cuts)]
        ) -> int:
            assert room
            count = min(len(room), most, len(left))
            room[:count] = left[:count]
            return count

        before = received_bytes(received, buffer)
        if asks_alone and (not len(buffer) or buffer.is_begun):
            waiting = len(buffer)
            receive = buffer.receive_rest if buffer.is_begun else buffer.receive_frame
            with pytest.raises(BlockingIOError):
                receive(blocked)
            assert len(buffer) == waiting
            frame = receive(receive_into)
            if frame is not None:
                received.append(bytes(frame))
                assert not len(buffer)
        else:
            room = buffer.room(hold=False)
            assert room is not None
            buffer.end += receive_into(room)
        turn += 1
        position += received_bytes(received, buffer) - before
        while buffer.has_frame():
            frame = buffer.next_frame()
            assert frame is not None
            received.append(bytes(frame))
        assert buffer.next_frame() is None
    assert received == bodies
    assert len(buffer) == 0
    buffer.shrink()
    assert buffer.capacity == INITIAL_BYTES


def received_bytes(frames: list[bytes], buffer: ReceiveBuffer) -> int:
    return sum(map(len, frames)) + 4 * len(frames) + len(buffer)


def blocked(room: memoryview) -> int:
    raise BlockingIOError


def test_a_promised_size_takes_no_memory() -> None:
    buffer = ReceiveBuffer(100 * 1024 * 1024)
    room = buffer.room(hold=False)
    assert room is not None
    room[:4] = struct.pack(">i", 100 * 1024 * 1024)
    buffer.end += 4
    assert buffer.next_frame() is None
    buffer.room(hold=False)
    assert buffer.capacity == INITIAL_BYTES


def filled(buffer: ReceiveBuffer, size: int, at_once: int) -> list[int]:
    """Receive a frame of this size. Returns the capacities on the way."""
    capacities = []
    left = framed(bytes(size))
    while left:
        room = buffer.room(hold=False)
        assert room is not None
        capacities.append(buffer.capacity)
        count = min(len(room), at_once, len(left))
        room[:count], left = left[:count], left[count:]
        buffer.end += count
    return capacities


@pytest.mark.parametrize("size", [3 * DOUBLED_BYTES_MAX, 32 * DOUBLED_BYTES_MAX])
def test_a_large_frame_is_copied_only_while_it_is_small(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one step of the loop would copy and clear as much as half of the largest frame."""
    kept: list[int] = []
    cleared: list[int] = []
    replace = ReceiveBuffer._replace

    def counted(self: ReceiveBuffer, capacity: int, keep: int) -> None:
        replace(self, capacity, keep)
        kept.append(keep)
        if isinstance(self._buffer, bytearray):
            cleared.append(capacity)

    monkeypatch.setattr(ReceiveBuffer, "_replace", counted)
    buffer = ReceiveBuffer(size)
    capacities = filled(buffer, size, 128 * 1024)
    assert max(kept) <= DOUBLED_BYTES_MAX
    assert max(cleared) <= DOUBLED_BYTES_MAX
    assert capacities[-1] == max(4 + size, RETAINED_BYTES_MAX)
    frame = buffer.next_frame()
    assert frame is not None
    assert len(frame) == size
    assert not frame.readonly


def test_a_large_frame_keeps_its_bytes_while_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node's own connections: answers stay in use while the next ones are received."""
    monkeypatch.setattr(receive_buffer, "DOUBLED_BYTES_MAX", 64 * 1024)
    buffer = ReceiveBuffer(1 << 20)
    chance = random.Random(7)
    bodies = [chance.randbytes(size) for size in (5, 300_000, 70, 90_000, 65_536, 8, 200_000)]
    stream, returned = b"".join(map(framed, bodies)), []
    while stream:
        room = buffer.unviewed_room()
        count = min(len(room), chance.randrange(1, 50_000), len(stream))
        room[:count], stream = stream[:count], stream[count:]
        buffer.end += count
        while (frame := buffer.next_frame()) is not None:
            returned.append(frame)
    assert [bytes(frame) for frame in returned] == bodies


def test_a_frame_in_use_is_not_moved_or_overwritten() -> None:
    buffer = ReceiveBuffer(INITIAL_BYTES)
    room = buffer.room(hold=False)
    assert room is not None
    room[:12] = framed(b"parked!!")
    buffer.end += 12
    frame = buffer.next_frame()
    assert frame is not None
    while (room := buffer.room(hold=True)) is not None:
        room[:] = b"\0" * len(room)
        buffer.end += len(room)
    assert bytes(frame) == b"parked!!"
    assert buffer.capacity == INITIAL_BYTES


@given(size=st.integers(-(2**31), 2**31 - 1))
def test_sizes_out_of_bounds_are_the_peers_fault(size: int) -> None:
    buffer = ReceiveBuffer(1000)
    room = buffer.room(hold=False)
    assert room is not None
    room[:4] = struct.pack(">i", size)
    buffer.end += 4
    if 0 < size <= 1000:
        assert buffer.next_frame() is None
    elif size == 0:
        assert buffer.next_frame() == b""
    else:
        assert buffer.has_frame()
        with pytest.raises(WireError, match=r"not within 0\.\.1000"):
            buffer.next_frame()


@pytest.mark.parametrize("seed", range(20))
def test_a_frame_that_is_held_for_ever_stays_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    sent = [rng.randbytes(rng.choice([1, 3, 100, 4000, 70000])) for _ in range(80)]
    stream = b"".join(framed(payload) for payload in sent)
    buffer = ReceiveBuffer(100_000)
    seen: list[bytes] = []
    held: list[tuple[int, memoryview]] = []
    position = 0
    while position < len(stream):
        room = buffer.unviewed_room()
        count = min(len(room), rng.choice([1, 7, 5000, 100_000]), len(stream) - position)
        assert count
        room[:count] = stream[position : position + count]
        del room
        buffer.end += count
        position += count
        while (frame := buffer.next_frame()) is not None:
            seen.append(bytes(frame))
            if rng.random() < 0.1:
                held.append((len(seen) - 1, frame))
    assert seen == sent
    assert not len(buffer)
    assert held
    assert all(bytes(frame) == sent[index] for index, frame in held)


def test_a_buffer_that_nobody_views_is_used_again() -> None:
    buffer = ReceiveBuffer(INITIAL_BYTES)
    seen = set()
    for _ in range(3):
        room = buffer.unviewed_room()
        seen.add(id(room.obj))
        room[:5] = framed(b"a")
        del room
        buffer.end += 5
        frame = buffer.next_frame()
        assert frame is not None
        assert id(frame.obj) in seen
        del frame
    assert len(seen) == 1


def test_a_promised_size_takes_no_memory_beside_a_frame_in_use() -> None:
    buffer = ReceiveBuffer(1 << 30)
    head = framed(b"held") + struct.pack(">i", 1 << 30)
    room = buffer.unviewed_room()
    room[: len(head)] = head
    buffer.end += len(head)
    del room
    frame = buffer.next_frame()
    while buffer.has_space():
        room = buffer.unviewed_room()
        buffer.end += len(room)
    assert len(buffer.unviewed_room()) <= 2 * INITIAL_BYTES
    assert frame == b"held"


def test_a_frame_without_records_has_a_bound_of_its_own() -> None:
    """Known from its first two bytes, before the rest is received."""
    wrapped = 1000 + ENVELOPE_BYTES_MAX
    sizes = (0, 5000, True), (3, 5000, False), (58, 5000, True), (58, wrapped, True), (58, wrapped + 1, False)
    for kind, size, fits in sizes:
        buffer = ReceiveBuffer(1_000_000, 1000)
        for data in (struct.pack(">i", size), struct.pack(">h", kind)):
            room = buffer.room(False)
            assert room is not None
            room[: len(data)] = data
            buffer.end += len(data)
            if len(data) == 4:
                assert not buffer.has_frame()
                assert buffer.next_frame() is None
        assert buffer.has_frame() is not fits
        if fits:
            assert buffer.next_frame() is None
        else:
            with pytest.raises(WireError, match=r"socket\.request\.without\.records\.max\.bytes"):
                buffer.next_frame()
