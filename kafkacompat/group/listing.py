"""Describes groups of any kind, and ListGroups over all shards of this node, in steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.coordinator.core import OperationRefused, or_refused
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.deferred import Deferred
from kafkacompat.group.describe import list_groups, lowered
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_groups_response import ListedGroup

if TYPE_CHECKING:
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest

GROUP_COST = 20
"""Cost in microseconds of finding and answering for one group."""

T = TypeVar("T")


def describe_all(
    names: Sequence[str],
    shard_of: Callable[[str], Shard],
    describe: Callable[[GroupMetadataManager, str], Generator[int, None, T]],
    refused_as: Callable[[str, OperationRefused], T],
) -> Generator[int, None, list[Deferred[T]]]:
    """One answer per name, in steps that report their cost. `shard_of` raises OperationRefused."""
    answers: list[Deferred[T]] = []
    for group_id in names:
        refused = partial(refused_as, group_id)
        try:
            shard = shard_of(group_id)
            shard.require_active()
            described = yield from describe(machine_of(shard), group_id)
            answer = shard.read(partial(_same, described))
        except OperationRefused as refusal:
            answer = Deferred.of(refused(refusal))
        answers.append(or_refused(answer, refused))
        yield GROUP_COST
    return answers


def list_all(
    request: ListGroupsRequest, shards: Callable[[], Iterable[Shard]]
) -> Generator[int, None, list[Deferred[list[ListedGroup]]]]:
    """One answer per shard. Raises OperationRefused while a shard is loading."""
    states = yield from lowered(request.states_filter)
    types = yield from lowered(request.types_filter)
    answers: list[Deferred[list[ListedGroup]]] = []
    for shard in list(shards()):
        if shard.state is ShardState.LOADING:
            raise OperationRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if shard.state is ShardState.ACTIVE and machine_of(shard).groups:
            listed = yield from list_groups(machine_of(shard), states, types)
            if shard.state is ShardState.ACTIVE:  # otherwise another node leads them by now
                answers.append(shard.read(partial(_same, listed)))
    return answers


def _same(value: T) -> T:
    return value
