"""What a test does to a cluster: nodes stand still, leaders move, replicas fall behind, members and producers are fenced.

Each function returns when it is so: when the nodes that run know it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.records import (
    consumer_epoch_record,
    consumer_target_epoch_record,
    consumer_target_record,
)
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition, partition_for_key
from kafkacompat.server.node_state import NodeState
from kafkacompat.testing.faults import Error, Fault, Rule, Selector
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.operations import Refused, check
from kafkacompat.testing.waiting import until
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkacompat.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

if TYPE_CHECKING:
    from kafkacompat.exchanges.reasons import PartitionState
    from kafkacompat.testing.faults import Faults
    from kafkacompat.testing.node import NodeThread
    from kafkacompat.testing.values import Group

TIMEOUT_S = 30.0
LOOK_S = 0.01
PREFERRED = 0
LEAVES = -1
GROUP_KEYS, TRANSACTION_KEYS = 0, 1
PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
)
"""Refusals after which a request is sent again."""


class Paused:
    """Nodes that stand still: their threads wait here."""

    def __init__(self) -> None:
        self._resumed: dict[int, threading.Event] = {}

    def pause(self, node_id: int, node: NodeThread) -> None:
        if node_id in self._resumed:
            return
        if not node.is_running:
            raise NodeEnded(f"node {node_id} does not run")
        entered, resumed = threading.Event(), threading.Event()
        self._resumed[node_id] = resumed

        def stand() -> None:
            node.time.stands_still = True
            entered.set()
            resumed.wait()
            node.time.stands_still = False
            node.time.wake_timers()

        def call() -> None:
            with suppress(NodeEnded):
                node.call(stand)

        threading.Thread(target=call, daemon=True).start()
        if not entered.wait(TIMEOUT_S):
            self.resume(node_id)
            raise TimeoutError(f"node {node_id} does not stand still after {TIMEOUT_S:g} s")

    def resume(self, node_id: int) -> None:
        resumed = self._resumed.pop(node_id, None)
        if resumed is not None:
            resumed.set()

    def resume_all(self) -> None:
        for node_id in list(self._resumed):
            self.resume(node_id)

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._resumed


class Cluster(Protocol):
    """What is used of a Kafka."""

    nodes: dict[int, NodeThread]
    paused: Paused

    @property
    def faults(self) -> Faults: ...

    def ask(self, node_id: int, message: Any) -> Any: ...

    def leads(self, node_id: int, topic: str, partition: int) -> bool: ...

    def groups(self) -> dict[str, Group]: ...


def _awake(kafka: Cluster) -> list[NodeThread]:
    """The nodes that can be asked."""
    return [node for node_id, node in kafka.nodes.items() if node.is_running and node_id not in kafka.paused]


def _partitions(kafka: Cluster, topic: str, index: int) -> dict[int, PartitionState]:
    """What each node knows of a partition."""
    known = {
        node.config.node_id: node.call(
            lambda node=node: NodeState(node.server, node.config.node_id).partition(topic, index)  # type: ignore[misc]
        )
        for node in _awake(kafka)
    }
    return {node_id: state for node_id, state in known.items() if state is not None}


def _partition(kafka: Cluster, topic: str, index: int) -> PartitionState:
    known = _partitions(kafka, topic, index)
    if not known:
        raise LookupError(f"there is no partition {topic}-{index}")
    return max(known.values(), key=lambda each: each.leader_epoch)


def _asked(kafka: Cluster, message: Any, code_of: Callable[[Any], int]) -> Any:
    """The answer of the first node that does not send elsewhere. Refusals that pass are waited for. Raises Refused."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        refused = ErrorCode.NONE
        for node in _awake(kafka):
            answer = kafka.ask(node.config.node_id, message)
            code = ErrorCode(code_of(answer))
            if code is not ErrorCode.NOT_COORDINATOR and code not in PASSING:
                check(code, type(message).__name__)
                return answer
            refused = code
        if time.monotonic() > end_s:
            raise Refused(refused, f"{type(message).__name__}: {refused.name}")
        time.sleep(LOOK_S)


def move_leader(kafka: Cluster, topic: str, index: int, node_id: int) -> None:
    """Make a node the leader of a partition. It becomes a replica, in place of the last one, if it is none. Raises Refused."""
    state = _partition(kafka, topic, index)
    others = [each for each in state.replicas if each != node_id]
    wanted = [node_id, *others[: len(state.replicas) - 1]]
    if list(state.replicas) != wanted:
        partition = ReassignablePartition(partition_index=index, replicas=wanted)
        _asked(
            kafka,
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=[partition])]
            ),
            lambda answer: answer.error_code or answer.responses[0].partitions[0].error_code,
        )

    def is_ready() -> bool:
        now = _partition(kafka, topic, index)
        return list(now.replicas) == wanted and node_id in now.isr

    until(is_ready, TIMEOUT_S, lambda: f"node {node_id} does not follow {topic}-{index}")
    if _partition(kafka, topic, index).leader != node_id:
        _asked(
            kafka,
            ElectLeadersRequest(
                election_type=PREFERRED,
                topic_partitions=[TopicPartitions(topic=topic, partitions=[index])],
                timeout_ms=int(TIMEOUT_S * 1000),
            ),
            lambda answer: _elected(answer),
        )

    def leads() -> bool:
        known = _partitions(kafka, topic, index)
        return all(each.leader == node_id for each in known.values()) and kafka.leads(node_id, topic, index)

    until(leads, TIMEOUT_S, lambda: f"node {node_id} does not lead {topic}-{index}")


def _elected(answer: Any) -> int:
    codes = [
        each.error_code for result in answer.replica_election_results for each in result.partition_result
    ]
    found = next((code for code in codes if code != ErrorCode.ELECTION_NOT_NEEDED), ErrorCode.NONE)
    return int(answer.error_code or found)


def move_coordinator(kafka: Cluster, key: str, key_type: int, node_id: int) -> None:
    """Make a node the coordinator of a group or of a transactional id. Raises Refused."""
    topic = OFFSETS_TOPIC if key_type == GROUP_KEYS else TRANSACTION_TOPIC
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    _asked(kafka, request, lambda answer: answer.coordinators[0].error_code)  # the topic exists then
    known = [
        node.call(lambda node=node: NodeState(node.server, 0).topics().get(topic, 0))  # type: ignore[misc]
        for node in _awake(kafka)
    ]
    move_leader(kafka, topic, partition_for_key(key, max(known)), node_id)  # some nodes learn of it later


def shrink_isr(kafka: Cluster, topic: str, index: int, kept: Collection[int]) -> Fault:
    """Take all other replicas out of the ISR, and keep them from fetching until the fault is removed."""
    state = _partition(kafka, topic, index)
    if state.leader not in kept or not set(kept) <= set(state.isr):
        raise ValueError(f"{topic}-{index} is led by node {state.leader}, and in sync are {list(state.isr)}")
    removed = set(state.replicas) - set(kept)

    def is_removed(request: Any) -> bool:
        replica = request.replica_state
        return (
            request.replica_id if replica is None or replica.replica_id < 0 else replica.replica_id
        ) in removed

    selector = Selector(api="Fetch", topic=topic, partition=index, node=state.leader)
    effect = Error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    fault = kafka.faults.add(Rule(effect, selector, times=None, when=is_removed, optional=True))
    leader = kafka.nodes[state.leader]

    def propose() -> None:
        broker = leader.server.broker
        assert broker is not None
        core = broker.partitions.core(TopicPartition(topic, index))
        if core is not None and core.pending is None and set(core.isr) - set(kept):
            isr = tuple(each for each in core.isr if each in kept)
            broker.replication.propose(core, core._propose(isr, core.isr))

    def is_so() -> bool:
        leader.call(propose)
        return all(set(each.isr) == set(kept) for each in _partitions(kafka, topic, index).values())

    until(is_so, TIMEOUT_S, lambda: f"the ISR of {topic}-{index} does not shrink")
    return fault


def fence_producer(kafka: Cluster, transactional_id: str, timeout_ms: int = 60_000) -> None:
    """Begin a new epoch of a transactional id, as another producer of that id does. Raises Refused."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    _asked(kafka, request, lambda answer: answer.error_code)


def expire_session(kafka: Cluster, group: str, member_id: str | None) -> None:
    """Remove a member from its group, or all members, as when their sessions end. They do not learn of it before they ask.
    Raises LookupError, Refused."""
    found = kafka.groups().get(group)
    members = () if found is None else found.members
    chosen = [each for each in members if member_id in (None, each.member_id)]
    if found is None or not chosen:
        raise LookupError(f"group {group!r} has no member{'' if member_id is None else f' {member_id!r}'}")
    for member in chosen:
        request, code_of = _leaving(found.type.lower(), group, member)
        _asked(kafka, request, code_of)


def _leaving(kind: str, group: str, member: Any) -> tuple[Any, Callable[[Any], int]]:
    if kind == "classic":
        identity = MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id)
        request = LeaveGroupRequest(group_id=group, members=[identity])
        return request, lambda answer: answer.error_code or answer.members[0].error_code
    heartbeats: Mapping[str, Any] = {
        "consumer": ConsumerGroupHeartbeatRequest,
        "share": ShareGroupHeartbeatRequest,
        "streams": StreamsGroupHeartbeatRequest,
    }
    request = heartbeats[kind](group_id=group, member_id=member.member_id, member_epoch=LEAVES)
    return request, lambda answer: int(answer.error_code)


def assign(kafka: Cluster, group: str, assignment: Mapping[str, Mapping[str, Collection[int]]]) -> None:
    """Give a consumer group a target assignment (KIP-848): partitions by topic, by member id. It holds until the group has
    reason for another one. Raises ValueError, LookupError."""
    given = [
        (topic, index)
        for topics in assignment.values()
        for topic, indexes in topics.items()
        for index in indexes
    ]
    twice = {each for each in given if given.count(each) > 1}
    if twice:
        raise ValueError(f"{sorted(twice)[0]} is assigned to two members")
    for node in _awake(kafka):
        if node.carry_out(lambda node=node: _assigned(node, group, assignment)):  # type: ignore[misc]
            return
    raise LookupError(f"no node has the consumer group {group!r}")


async def _assigned(
    node: NodeThread, group_id: str, assignment: Mapping[str, Mapping[str, Collection[int]]]
) -> bool:
    state = NodeState(node.server, node.config.node_id)
    shard = state.group_shard(group_id)
    group = None if shard is None else shard.machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return False
    unknown = assignment.keys() - group.members.keys()
    if unknown:
        raise ValueError(f"group {group_id!r} has no member {sorted(unknown)[0]!r}")
    epoch = group.group_epoch + 1
    targets = {
        member: {
            state.topic_id(topic): frozenset(indexes) for topic, indexes in assignment.get(member, {}).items()
        }
        for member in group.members
    }
    now_ms = node.services.clock.now_ms()
    records = (
        consumer_epoch_record(group_id, epoch, group.metadata_hash),
        *(consumer_target_record(group_id, member, target) for member, target in targets.items()),
        consumer_target_epoch_record(group_id, epoch, now_ms),
    )
    await shard.write(lambda _: CoordinatorResult(records, None))
    return True
