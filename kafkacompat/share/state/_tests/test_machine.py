"""A shard under any sequence of requests, reloads and prunings, compared with a model that works by offsets."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkacompat.share.service import SharePartitionKey, StateBatch, WriteState
from kafkacompat.share.state._tests.test_operations import TOPIC, Shard
from kafkacompat.share.state.share_coordinator_shard import (
    Initialization,
    ShareCoordinatorShard,
    cold_snapshots,
    delete_state,
    initialize_state,
    read_state,
    write_state,
)
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode as E

KEYS = st.builds(SharePartitionKey, st.sampled_from(["g", "h"]), st.just(TOPIC), st.integers(0, 1))
BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 9),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 3),
    ),
    max_size=4,
)


class Model:
    """A share-partition: what its leader wrote, by offset."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.states: dict[int, tuple[int, int]] = {}


class States(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(updates_per_snapshot=3)
        self.model: dict[SharePartitionKey, Model] = {}
        self.pruned = 0
        """Records before this one are no longer in the log."""

    @rule(key=KEYS, start=st.integers(-1, 20))
    def initialize(self, key: SharePartitionKey, start: int) -> None:
        self.shard.do(initialize_state, Initialization(0, start), key)
        self.model[key] = Model(start)

    @rule(key=KEYS, batches=BATCHES, start=st.integers(-1, 30))
    def write(self, key: SharePartitionKey, batches: list[StateBatch], start: int) -> None:
        _, answer = self.shard.do(write_state, WriteState(0, 9, start, 0, batches), key)
        model = self.model.get(key)
        if model is None:
            assert answer.code is E.INVALID_REQUEST
            return
        assert answer.code is E.NONE
        model.start_offset = max(model.start_offset, start)
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                model.states[offset] = max(model.states.get(offset, (count, state)), (count, state))
        model.states = {o: rank for o, rank in model.states.items() if o >= model.start_offset}

    @rule(key=KEYS, epoch=st.integers(-1, 4))
    def read(self, key: SharePartitionKey, epoch: int) -> None:
        self.shard.do(read_state, epoch, key)

    @rule(key=KEYS)
    def delete(self, key: SharePartitionKey) -> None:
        self.shard.do(delete_state, None, key)
        self.model.pop(key, None)

    @rule(ms=st.integers(1, 1_500))
    def pass_time(self, ms: int) -> None:
        self.shard.now_ms += ms
        for record in cold_snapshots(self.shard.machine, list(self.shard.machine.states), self.shard.now_ms):
            self.shard.take(record)

    @rule()
    def prune(self) -> None:
        offset = self.shard.machine.offsets.last_redundant_offset()
        if offset is not None:
            assert offset >= self.pruned
            self.pruned = offset

    def _reloaded(self) -> ShareCoordinatorShard:
        machine = ShareCoordinatorShard(self.shard.env)
        for offset, (key, value) in enumerate(self.shard.log):
            if offset < self.pruned:
                continue
            if value is not None and offset % 2:
                assert at_once(machine.load_large(key, value, offset, -1))
                continue
            record = machine.decode(key, value)
            assert record is not None
            machine.replay(record, offset, -1)
        return machine

    @rule()
    def reload(self) -> None:
        self.shard.machine = self._reloaded()

    @invariant()
    def a_reload_gives_the_same_states(self) -> None:
        machine, found = self.shard.machine, self._reloaded()
        assert {key: state.offset for key, state in found.states.items()} == {
            key: state.offset for key, state in machine.states.items()
        }
        if not self.pruned:
            for key, state in machine.states.items():
                again = found.states[key]
                assert (again.leader_epoch, again.state_epoch, again.updates) == (
                    state.leader_epoch,
                    state.state_epoch,
                    state.updates,
                )

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        states = self.shard.machine.states
        assert states.keys() == self.model.keys()
        for key, model in self.model.items():
            offset = states[key].offset
            assert offset.start_offset == model.start_offset
            told = {
                each: (count, state)
                for first, last, state, count in offset.batches.items
                for each in range(first, last + 1)
            }
            assert told == model.states


TestStates = States.TestCase
