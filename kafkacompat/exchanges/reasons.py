"""Why a node has refused a request, in a sentence that names the state from which the refusal came.

`reason` is a function of the error, of what the request says, and of the state at the moment of the answer. Where no reason
is known it says what the node has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.causes import Causes
from kafkacompat.exchanges.levels import GROUP, PARTITION, TOPIC, TOPIC_ID, TRANSACTION, Names
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.errors import ErrorCode, error_text


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition, as a node knows it."""

    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    first_offset: int | None = None
    """None: the node has no replica."""
    end_offset: int | None = None
    min_insync_replicas: int = 1
    max_message_bytes: int | None = None


class ProducerState(NamedTuple):
    """What a partition remembers of a producer."""

    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class GroupState:
    state: str
    epoch: int
    """The generation of a group of the classic protocol."""
    member_epochs: Mapping[str, int]
    """By member id. -1 where members have none of their own."""
    joined: int | None = None
    """Members that wait for the others. None: not told."""


class TransactionState(NamedTuple):
    state: str
    producer_id: int
    epoch: int


class State(Protocol):
    """What a node knows. None: it knows nothing of the kind."""

    @property
    def node(self) -> int: ...

    @property
    def causes(self) -> Causes: ...

    def topics(self) -> Mapping[str, int]:
        """The number of partitions of each topic."""
        ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def partition(self, topic: str, index: int) -> PartitionState | None: ...

    def producer(self, topic: str, index: int, producer_id: int) -> ProducerState | None: ...

    def group(self, group: str) -> GroupState | None: ...

    def group_coordinator(self, group: str) -> str | None:
        """As in "node 2, which leads __consumer_offsets-3"."""
        ...

    def transaction(self, transactional_id: str) -> TransactionState | None: ...

    def transaction_coordinator(self, transactional_id: str) -> str | None: ...

    def controller(self) -> int:
        """-1: unknown."""
        ...


class Batch(NamedTuple):
    """What the header of a produced batch says."""

    producer_id: int
    epoch: int
    first_sequence: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Refusal:
    code: ErrorCode
    api: str
    names: Names
    """Of what was refused, and of the whole request."""
    principal: str = "User:ANONYMOUS"
    request: Any = None
    element: Any = None
    """What the request says of it."""
    batch: Batch | None = None
    message: str | None = None
    """The text in the answer."""

    @property
    def partition_name(self) -> str:
        return f"{self.names.get(TOPIC, 'the topic')}-{self.names.get(PARTITION, '?')}"


Reason = Callable[[Refusal, State], str | None]
COMPARED_MAX = 200
"""Topics with whose names an unknown one is compared, at up to 50 us each. Of more, none is suggested."""


def reason(refusal: Refusal, state: State) -> str:
    """A sentence without a full stop."""
    found = _REASONS.get(refusal.code)
    said = None if found is None else found(refusal, state)
    if said is None:
        said = refusal.message or error_text(refusal.code)
    return f"{refusal.code.name}: {said.rstrip('.')}"


def _partition(refusal: Refusal, state: State) -> PartitionState | None:
    if TOPIC not in refusal.names or PARTITION not in refusal.names:
        return None
    return state.partition(refusal.names[TOPIC], refusal.names[PARTITION])


def _nodes(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _since(cause: str | None) -> str:
    return "" if cause is None else f"; {cause}"


def _led_by(refusal: Refusal, state: State) -> str | None:
    partition = _partition(refusal, state)
    if partition is None:
        return None
    name = refusal.partition_name
    since = f"since epoch {partition.leader_epoch}{_began(refusal, partition, state)}"
    if partition.leader < 0:
        return (
            f"{name} has no leader {since}: of its replicas {_nodes(partition.replicas)}, "
            f"those in sync were {_nodes(partition.isr)}"
        )
    if partition.leader != state.node:
        place = "follows it" if state.node in partition.replicas else "has no replica of it"
        return f"{name} is led by node {partition.leader} {since}; node {state.node} {place}"
    return f"node {state.node} leads {name} {since}, and does not serve it yet, or no more"


def _began(refusal: Refusal, partition: PartitionState, state: State) -> str:
    """A clause behind the leader epoch."""
    cause = state.causes.of_epoch(refusal.names[TOPIC], refusal.names[PARTITION], partition.leader_epoch)
    return "" if cause is None else f", which began after {cause}"


def _other_epoch(refusal: Refusal, state: State) -> str | None:
    partition = _partition(refusal, state)
    asked = getattr(refusal.element, "current_leader_epoch", None)
    if partition is None or asked is None:
        return _led_by(refusal, state)
    return (
        f"the request says leader epoch {asked}, and {refusal.partition_name} is in epoch {partition.leader_epoch}, "
        f"led by node {partition.leader}{_began(refusal, partition, state)}"
    )


def _unknown_topic(refusal: Refusal, state: State) -> str | None:
    topics, name = state.topics(), refusal.names.get(TOPIC)
    if name is None:
        return None
    if name not in topics:
        close: list[str] = []
        if len(topics) <= COMPARED_MAX:
            close = get_close_matches(name, [each for each in topics if not each.startswith("__")], 1)
        hint = f"; there is {close[0]!r}" if close else ""
        return f"node {state.node} knows no topic {name!r}{hint}"
    index = refusal.names.get(PARTITION)
    if index is not None and index >= topics[name]:
        return f"{name} has {topics[name]} partitions, and {index} is none of them"
    return (
        f"{name} is there now: it was not yet when it was asked for, or {refusal.principal} may not describe it, or node "
        f"{state.node} does not serve it yet"
    )


def _unknown_topic_id(refusal: Refusal, state: State) -> str | None:
    topic_id = refusal.names.get(TOPIC_ID)
    return (
        None if topic_id is None else f"node {state.node} knows no topic with the id {uuid_to_text(topic_id)}"
    )


def _out_of_range(refusal: Refusal, state: State) -> str | None:
    partition = _partition(refusal, state)
    if partition is None or partition.first_offset is None:
        return None
    asked = getattr(refusal.element, "fetch_offset", getattr(refusal.element, "offset", None))
    if asked is None:
        return None
    return (
        f"{refusal.partition_name} has the offsets {partition.first_offset} to {partition.end_offset}, "
        f"and {asked} is outside of them"
    )


def _few_replicas(refusal: Refusal, state: State) -> str | None:
    partition = _partition(refusal, state)
    if partition is None:
        return None
    cause = state.causes.of_isr(refusal.names[TOPIC], refusal.names[PARTITION], partition.isr)
    return (
        f"{refusal.partition_name} has {len(partition.isr)} replicas in sync (nodes {_nodes(partition.isr)}), "
        f"and min.insync.replicas is {partition.min_insync_replicas}" + _since(cause)
    )


def _fenced_producer(refusal: Refusal, state: State) -> str | None:
    batch, names = refusal.batch, refusal.names
    if batch is not None and TOPIC in names and PARTITION in names:
        known = state.producer(names[TOPIC], names[PARTITION], batch.producer_id)
        if known is not None:
            return (
                f"producer {batch.producer_id} writes with epoch {batch.epoch}, and {refusal.partition_name} has "
                f"seen its epoch {known.epoch}"
            )
    transaction = state.transaction(names[TRANSACTION]) if TRANSACTION in names else None
    if transaction is None:
        return None
    epoch = getattr(refusal.request, "producer_epoch", None)
    asked = "" if epoch is None else f", and the request says epoch {epoch}"
    return (
        f"transactional id {names[TRANSACTION]!r} belongs to producer {transaction.producer_id} "
        f"with epoch {transaction.epoch}{asked}{_since(state.causes.of_name(TRANSACTION, names[TRANSACTION]))}"
    )


def _out_of_order(refusal: Refusal, state: State) -> str | None:
    batch, names = refusal.batch, refusal.names
    if batch is None or TOPIC not in names or PARTITION not in names:
        return None
    known = state.producer(names[TOPIC], names[PARTITION], batch.producer_id)
    last = "knows nothing of it" if known is None else f"had sequence {known.last_sequence} last"
    begins = f"the batch of producer {batch.producer_id} begins with sequence {batch.first_sequence}"
    return f"{begins}, and {refusal.partition_name} {last}"


def _group(refusal: Refusal, state: State) -> tuple[str | None, GroupState | None]:
    name = refusal.names.get(GROUP)
    return name, None if name is None else state.group(name)


def _asked_epoch(request: Any) -> int | None:
    for name in ("generation_id", "generation_id_or_member_epoch", "member_epoch"):
        value = getattr(request, name, None)
        if isinstance(value, int):
            return value
    return None


def _other_generation(refusal: Refusal, state: State) -> str | None:
    name, group = _group(refusal, state)
    if group is None:
        return None
    member = getattr(refusal.request, "member_id", "")
    epoch = group.member_epochs.get(member, -1)
    if epoch >= 0:
        return f"member {member!r} of group {name!r} is in epoch {epoch}, and the request says {_asked_epoch(refusal.request)}"
    return f"group {name!r} is in generation {group.epoch} ({group.state}), and the request says {_asked_epoch(refusal.request)}"


def _unknown_member(refusal: Refusal, state: State) -> str | None:
    name, group = _group(refusal, state)
    if name is None:
        return None
    if group is None:
        return f"node {state.node} has no group {name!r}"
    member = getattr(refusal.request, "member_id", "")
    members = ", ".join(sorted(group.member_epochs)) or "nobody"
    cause = state.causes.of_name(GROUP, name)
    return f"group {name!r} ({group.state}) has no member {member!r}; its members are {members}" + _since(
        cause
    )


def _rebalances(refusal: Refusal, state: State) -> str | None:
    name, group = _group(refusal, state)
    if group is None:
        return None
    joined = (
        "" if group.joined is None else f"; {group.joined} of {len(group.member_epochs)} members have joined"
    )
    return f"group {name!r} is {group.state} after generation {group.epoch}{joined}"


def _transaction(refusal: Refusal, state: State) -> str | None:
    if TRANSACTION not in refusal.names:
        return None
    name = refusal.names[TRANSACTION]
    transaction = state.transaction(name)
    if transaction is None:
        return f"node {state.node} knows no transactional id {name!r}"
    return f"the transaction of {name!r} is in state {transaction.state}"


def _unauthorized(what: str, kind: str | None) -> Reason:
    def told(refusal: Refusal, state: State) -> str | None:
        if refusal.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED or kind is None:
            return f"{refusal.principal} may not ask {refusal.api} of the cluster"
        name = refusal.names.get(kind)
        return None if name is None else f"{refusal.principal} may not ask {refusal.api} of {what} {name!r}"

    return told


def _too_large(refusal: Refusal, state: State) -> str | None:
    partition = _partition(refusal, state)
    if partition is None or refusal.batch is None or partition.max_message_bytes is None:
        return None
    return (
        f"the batch has {refusal.batch.size_bytes} bytes, and max.message.bytes of {refusal.names[TOPIC]} is "
        f"{partition.max_message_bytes}"
    )


def _elsewhere(refusal: Refusal, state: State) -> str | None:
    names = refusal.names
    if TRANSACTION in names and GROUP not in names:
        where, what = (
            state.transaction_coordinator(names[TRANSACTION]),
            f"transactional id {names[TRANSACTION]!r}",
        )
    elif GROUP in names:
        where, what = state.group_coordinator(names[GROUP]), f"group {names[GROUP]!r}"
    else:
        return None
    return None if where is None else f"the coordinator of {what} is {where}"


def _not_controller(refusal: Refusal, state: State) -> str | None:
    controller = state.controller()
    if controller < 0:
        return f"node {state.node} knows no active controller"
    return f"the active controller is node {controller}, and not node {state.node}"


def _exists(refusal: Refusal, state: State) -> str | None:
    name = refusal.names.get(TOPIC)
    if name is None or name not in state.topics():
        return None
    return f"there is a topic {name!r} already, with {state.topics()[name]} partitions"


def _no_group(refusal: Refusal, state: State) -> str | None:
    name, group = _group(refusal, state)
    return f"node {state.node} has no group {name!r}" if name is not None and group is None else None


def _has_members(refusal: Refusal, state: State) -> str | None:
    name, group = _group(refusal, state)
    if group is None:
        return None
    members = ", ".join(sorted(group.member_epochs)) or "nobody"
    return f"group {name!r} is {group.state}, and its members are {members}"


def _other_producer(refusal: Refusal, state: State) -> str | None:
    transaction = state.transaction(refusal.names[TRANSACTION]) if TRANSACTION in refusal.names else None
    asked = getattr(refusal.request, "producer_id", None)
    if transaction is None or asked is None:
        return None
    return (
        f"transactional id {refusal.names[TRANSACTION]!r} belongs to producer {transaction.producer_id}, "
        f"and the request says {asked}"
    )


def _unknown_producer(refusal: Refusal, state: State) -> str | None:
    if refusal.batch is None:
        return None
    return f"{refusal.partition_name} knows nothing of producer {refusal.batch.producer_id}"


def _needs_a_member_id(refusal: Refusal, state: State) -> str | None:
    name = refusal.names.get(GROUP)
    return (
        None
        if name is None
        else f"the first request of a member to group {name!r} gets it an id, with which it joins"
    )


_REASONS: Mapping[ErrorCode, Reason] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _led_by,
    ErrorCode.LEADER_NOT_AVAILABLE: _led_by,
    ErrorCode.FENCED_LEADER_EPOCH: _other_epoch,
    ErrorCode.UNKNOWN_LEADER_EPOCH: _other_epoch,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _unknown_topic,
    ErrorCode.UNKNOWN_TOPIC_ID: _unknown_topic_id,
    ErrorCode.OFFSET_OUT_OF_RANGE: _out_of_range,
    ErrorCode.NOT_ENOUGH_REPLICAS: _few_replicas,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _few_replicas,
    ErrorCode.INVALID_PRODUCER_EPOCH: _fenced_producer,
    ErrorCode.PRODUCER_FENCED: _fenced_producer,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _out_of_order,
    ErrorCode.ILLEGAL_GENERATION: _other_generation,
    ErrorCode.FENCED_MEMBER_EPOCH: _other_generation,
    ErrorCode.STALE_MEMBER_EPOCH: _other_generation,
    ErrorCode.UNKNOWN_MEMBER_ID: _unknown_member,
    ErrorCode.REBALANCE_IN_PROGRESS: _rebalances,
    ErrorCode.INVALID_TXN_STATE: _transaction,
    ErrorCode.CONCURRENT_TRANSACTIONS: _transaction,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _unauthorized("topic", TOPIC),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _unauthorized("group", GROUP),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _unauthorized("transactional id", TRANSACTION),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _unauthorized("the cluster", None),
    ErrorCode.MESSAGE_TOO_LARGE: _too_large,
    ErrorCode.TOPIC_ALREADY_EXISTS: _exists,
    ErrorCode.GROUP_ID_NOT_FOUND: _no_group,
    ErrorCode.NON_EMPTY_GROUP: _has_members,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _other_producer,
    ErrorCode.UNKNOWN_PRODUCER_ID: _unknown_producer,
    ErrorCode.MEMBER_ID_REQUIRED: _needs_a_member_id,
    ErrorCode.NOT_COORDINATOR: _elsewhere,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _elsewhere,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _elsewhere,
    ErrorCode.NOT_CONTROLLER: _not_controller,
}
