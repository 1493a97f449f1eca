"""An operation without records answers from the state, and waits until everything it has read is committed. Over real
logs."""

from __future__ import annotations

from typing import Any

from kafkacompat.coordinator._tests.clients import commit, fetch
from kafkacompat.coordinator._tests.real_log import RealWorld
from kafkacompat.deferred import Deferred
from kafkacompat.group._tests.test_offsets import OFFSET_DELETE
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


def test_what_was_deleted_already_is_answered_when_that_is_committed() -> None:
    world = RealWorld(followed=True)
    commit(world, 7)
    world.follow()

    def delete() -> Any:
        topic = OffsetDeleteRequestTopic(
            name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        return world.call(OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=[topic]), 0)

    first, again = delete(), delete()
    assert isinstance(first, Deferred)
    assert isinstance(again, Deferred), "it has no record of its own, and shows one that is not committed"
    assert not again.done
    world.follow()
    for answer in (first, again):
        assert answer.result().error_code == E.NONE
    assert fetch(world).committed_offset == -1
