"""One shard of the share coordinator: all share-partitions of one partition of `__share_group_state`.

It has their states and replays records. Operations, which decide on records, are in the other modules. Follows Kafka's
ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from kafkacompat.api.share_services import SharePartitionKey
from kafkacompat.coordinator.core import CoordinatorResult, Reply
from kafkacompat.ids import NO_OFFSET, Uuid
from kafkacompat.share.state.batches import combining
from kafkacompat.share.state.offsets import ShareCoordinatorOffsetsManager
from kafkacompat.share.state.records import ShareRecord, decode_in_steps, decode_record, encode_record
from kafkacompat.share.state.states import (
    ShareGroupOffset,
    ShareState,
    ShareUpdate,
    changed,
    first_of,
    merged,
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What the operations know of the node. `partition_count` is that of a topic, None if it does not exist."""

    partition_count: Callable[[Uuid], int | None]
    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000


class ShareCoordinatorShard:
    __slots__ = ("env", "offsets", "states")

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.offsets: ShareCoordinatorOffsetsManager[SharePartitionKey] = ShareCoordinatorOffsetsManager()

    # --- coordinator.core.Machine

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        return decode_record(key, value)

    def replay(self, record: ShareRecord, offset: int, producer_id: int) -> None:
        value = record.value
        if isinstance(value, ShareUpdate):
            state = self.states.get(record.key)
            self._take_update(
                record.key, value, first_of(value) if state is None else merged(state.offset, value)
            )
        else:
            self._take_snapshot(record.key, value, offset)

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        record = yield from decode_in_steps(key, value)
        if record is None:
            return False
        update = record.value
        state = self.states.get(record.key)
        if state is None or not isinstance(update, ShareUpdate):
            self.replay(record, offset, producer_id)
            return True
        start_offset = state.offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset
        batches = yield from combining(state.offset.batches, update.batches.items, start_offset)
        self._take_update(record.key, update, changed(state.offset, update, batches))
        return True

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> None:
        """No transaction writes to this topic. As in Kafka a marker in it is ignored."""

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[ShareRecord, None] | None]:
        return iter(())

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        return iter(())

    def take_apart(self) -> Iterator[int]:
        while self.states:
            self.states.popitem()
            yield 1

    # --- replay

    def _take_snapshot(self, key: SharePartitionKey, value: ShareGroupOffset | None, offset: int) -> None:
        if value is None:
            self.states.pop(key, None)
        else:
            state = self.states.get(key)
            if state is None:
                state = self.states[key] = ShareState(value)
            else:
                state.offset = value
                if state.updates >= self.env.updates_per_snapshot:
                    state.updates = 0
            state.leader_epoch = max(state.leader_epoch, value.leader_epoch)
            state.state_epoch = max(state.state_epoch, value.state_epoch)
        self.offsets.update_state(key, offset, value is None)

    def _take_update(self, key: SharePartitionKey, update: ShareUpdate, offset: ShareGroupOffset) -> None:
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = ShareState(offset)
        state.offset = offset
        state.updates += 1
        state.leader_epoch = max(state.leader_epoch, update.leader_epoch)
