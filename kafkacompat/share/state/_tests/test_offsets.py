"""Which records of a shard are needed no more, compared with Kafka's way to find out: a look at all share-partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.share.state.share_coordinator_shard import ShareCoordinatorOffsetsManager


class ByLooking:
    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.last = (1 << 63) - 1

    def update_state(self, key: str, offset: int, is_delete: bool) -> None:
        self.last = min(self.last, offset)
        self.offsets[key] = offset
        self.last = min(self.offsets.values())
        if is_delete:
            del self.offsets[key]

    def last_redundant_offset(self) -> int | None:
        return None if self.last <= 0 or self.last == (1 << 63) - 1 else self.last


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.booleans())), st.integers(0, 2))
def test_equal_to_a_look_at_all(changes: list[tuple[str, int, bool]], start: int) -> None:
    found: ShareCoordinatorOffsetsManager[str] = ShareCoordinatorOffsetsManager()
    model = ByLooking()
    offset = start
    assert found.last_redundant_offset() is None
    for key, step, is_delete in changes:
        found.update_state(key, offset, is_delete)
        model.update_state(key, offset, is_delete)
        offset += step
        assert found.last_redundant_offset() == model.last_redundant_offset()
        assert len(found) == len(model.offsets)


def test_a_share_partition_that_is_not_snapshotted_keeps_everything_after_it() -> None:
    found: ShareCoordinatorOffsetsManager[str] = ShareCoordinatorOffsetsManager()
    for offset, key in enumerate(["a", "b", "b", "c", "b"], 10):
        found.update_state(key, offset, False)
    assert found.last_redundant_offset() == 10
    found.update_state("a", 15, False)
    assert found.last_redundant_offset() == 13
