"""A buffer is used again as soon as nothing sees it any more, and never before."""

from __future__ import annotations

import pytest

from kafkacompat.remote.reused_buffers import KEPT_BYTES_MAX, LEAST_BYTES, STEP_BYTES, ReusedBuffers

MIB = 1 << 20


def test_a_buffer_without_views_is_used_again() -> None:
    buffers = ReusedBuffers()
    view = buffers.take(MIB)
    memory = id(view.obj)
    del view
    assert id(buffers.take(MIB + 1000).obj) == memory
    assert buffers.kept_bytes == MIB + STEP_BYTES


@pytest.mark.parametrize("part", [lambda view: view[5:6], lambda view: view.toreadonly()[1:][:7]])
def test_a_part_of_a_view_keeps_the_whole_buffer(part: object) -> None:
    buffers = ReusedBuffers()
    view = buffers.take(MIB)
    view[:] = b"k" * MIB
    kept = part(view)  # type: ignore[operator]
    del view
    other = buffers.take(MIB)
    assert other.obj is not kept.obj
    other[:] = b"o" * MIB
    assert set(bytes(kept)) == {ord("k")}
    memory = id(kept.obj)
    del kept
    assert id(buffers.take(MIB).obj) == memory


def test_each_size_gets_what_it_asks_for() -> None:
    buffers = ReusedBuffers()
    for size in (0, 1, LEAST_BYTES - 1, LEAST_BYTES, STEP_BYTES, STEP_BYTES + 1, 3 * MIB, 20 * MIB):
        assert len(buffers.take(size)) == size
        assert len(buffers.take(size)) == size


def test_a_smaller_piece_takes_what_is_free() -> None:
    buffers = ReusedBuffers()
    view = buffers.take(4 * MIB)
    memory = id(view.obj)
    del view
    view = buffers.take(MIB)
    assert (id(view.obj), len(view)) == (memory, MIB)
    assert buffers.take(MIB).obj is not view.obj


def test_what_is_kept_is_bounded() -> None:
    buffers = ReusedBuffers()
    used = [buffers.take(MIB) for _ in range(30)]
    assert KEPT_BYTES_MAX - 2 * MIB < buffers.kept_bytes <= KEPT_BYTES_MAX
    assert len({id(each.obj) for each in used}) == 30
    used.clear()
    kept_bytes = buffers.kept_bytes
    again = [buffers.take(MIB) for _ in range(kept_bytes // MIB)]
    assert buffers.kept_bytes == kept_bytes
    del again
    buffers.take(2 * KEPT_BYTES_MAX)
    assert buffers.kept_bytes == 0
