"""Partitions on their way to other brokers: begun, throttled, watched, cancelled. KIP-455, KIP-73.

A plan comes in, and requests go to the cluster until every replica is where the plan wants it. The throttle is set and removed as
kafka-reassign-partitions does it: rates of the brokers, lists of replicas of the topics. It knows no process.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kafkacompat.cli.client import Cluster, Remote, check
from kafkacompat.cli.failure import CommandFailed
from kafkacompat.cli.output import MoveProgress
from kafkacompat.cli.plan import Assignment, Plan, TopicPartition, copies_of
from kafkacompat.cli.settings import warn
from kafkacompat.cli.view import brokers_of, partitions_of, settings_of_topics
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from kafkacompat.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from kafkacompat.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

TIMEOUT_MS = 30_000
ANSWER_TIMEOUT_S = 10.0
LOOK_INTERVAL_S = 0.2
SILENCE_MAX_S = 60.0
"""How long a watched move may be without anybody who tells of it: controllers and brokers fail over in the meantime."""
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition under way: all of its replicas for now, those that are new, those that will go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def assignment_of(remote: Remote, topics: list[str] | None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that partitions have or, of those under way, will have."""
    found = {(each.topic, each.number): each.replicas for each in partitions_of(remote, topics)}
    for where, move in ongoing_of(remote).items():
        if where in found:
            found[where] = tuple(each for each in move.replicas if each not in move.removing)
    return found


def ongoing_of(remote: Remote) -> dict[TopicPartition, Ongoing]:
    """Everything that is under way."""
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    answer = remote.call(request, ListPartitionReassignmentsResponse)
    check(answer.error_code, "reassignments", answer.error_message)
    return {
        (topic.name, each.partition_index): Ongoing(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def begin(remote: Remote, plan: Plan) -> None:
    """CommandFailed names the first partition that is refused; others may have begun."""
    _alter(remote, plan)


def cancel(remote: Remote, partitions: Iterable[TopicPartition]) -> None:
    """Back to the replicas from before. What is done already by now stays done."""
    _alter(remote, dict.fromkeys(partitions, None), ignored=(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,))


def _alter(
    remote: Remote,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    ignored: tuple[ErrorCode, ...] = (),
) -> None:
    topics: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, number), replicas in sorted(targets.items()):
        wanted = None if replicas is None else list(replicas)
        topics[topic].append(ReassignablePartition(partition_index=number, replicas=wanted))
    answer = remote.call(
        AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[ReassignableTopic(name=name, partitions=those) for name, those in topics.items()],
        ),
        AlterPartitionReassignmentsResponse,
    )
    check(answer.error_code, "reassignment", answer.error_message)
    for result in answer.responses:
        for each in result.partitions:
            if each.error_code not in ignored:
                check(each.error_code, f"{result.name}-{each.partition_index}", each.error_message)


# throttles


def throttle(cluster: Cluster, current: Assignment, plan: Plan, bytes_per_s: int) -> None:
    """Limit what these moves take; other replication goes on unlimited."""
    copies = copies_of(current, plan)
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    for (topic, number), new in sorted(copies.items()):
        leaders[topic] += [f"{number}:{each}" for each in current[topic, number]]
        followers[topic] += [f"{number}:{each}" for each in new]
    for topic in leaders:
        values = {LEADERS: ",".join(leaders[topic]), FOLLOWERS: ",".join(followers[topic])}
        _configure(cluster.any(), TOPIC_RESOURCE, topic, values)
    set_rates(cluster, brokers_in(current, plan), bytes_per_s)


def set_rates(cluster: Cluster, brokers: Iterable[int], bytes_per_s: int) -> None:
    """A broker that is down sends and receives nothing, so it is left out."""
    alive = cluster.node_ids()
    for each in sorted(set(brokers).intersection(alive)):
        _configure(cluster.node(each), BROKER_RESOURCE, str(each), dict.fromkeys(RATES, str(bytes_per_s)))


def remove_throttles(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> list[int]:
    """Whatever set them. The brokers that are down and keep theirs, since only they change their own settings."""
    for topic in sorted(topics):
        _configure(cluster.any(), TOPIC_RESOURCE, topic, dict.fromkeys((LEADERS, FOLLOWERS)))
    alive = cluster.node_ids()
    for each in sorted(set(brokers).intersection(alive)):
        _configure(cluster.node(each), BROKER_RESOURCE, str(each), dict.fromkeys(RATES))
    return sorted(set(brokers).difference(alive))


def throttled_topics(remote: Remote) -> list[str]:
    """Topics with replicas that a throttle is for."""
    topics = sorted({each.topic for each in partitions_of(remote)})
    return sorted(
        topic
        for topic, values in settings_of_topics(remote, topics, (LEADERS, FOLLOWERS)).items()
        if any(values.values())
    )


def brokers_in(current: Assignment, plan: Plan) -> set[int]:
    """Every broker that copies from or to."""
    return {each for where, new in copies_of(current, plan).items() for each in (*current[where], *new)}


def _configure(remote: Remote, kind: int, name: str, values: Mapping[str, str | None]) -> None:
    """None: the setting is removed."""
    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    answer = remote.call(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    check(answer.responses[0].error_code, f"the throttle of {name}", answer.responses[0].error_message)


# watching


def sizes_of(
    cluster: Cluster, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    """Bytes of these partitions on those of the brokers that answer."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    request = DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=those) for name, those in topics.items()]
    )
    sizes: Counter[tuple[int, TopicPartition]] = Counter()
    for broker in brokers:
        try:
            answer = cluster.node(broker).call(request, DescribeLogDirsResponse)
        except CommandFailed:
            continue
        for directory in answer.results:
            for topic_found in directory.topics:
                for each in topic_found.partitions:
                    if not each.is_future_key:
                        sizes[broker, (topic_found.name, each.partition_index)] += each.partition_size
    return dict(sizes)


def bytes_to_copy(cluster: Cluster, current: Assignment, plan: Plan) -> dict[tuple[int, TopicPartition], int]:
    """For each new copy, by broker and partition, how large it will be."""
    copies = copies_of(current, plan)
    holders = {each for where in copies for each in current[where]}
    sizes = sizes_of(cluster, sorted(holders), copies) if copies else {}
    return {
        (broker, where): max((sizes.get((each, where), 0) for each in current[where]), default=0)
        for where, new in copies.items()
        for broker in new
    }


def watch(bootstrap: str, plan: Plan, wanted: Mapping[tuple[int, TopicPartition], int]) -> None:
    """Until the plan is what is; progress is shown. `wanted`: bytes_to_copy of it. CommandFailed when it has become
    something else or nobody tells for SILENCE_MAX_S."""
    progress = MoveProgress(sum(wanted.values()), len(wanted))
    while True:
        under_way = patiently(bootstrap, lambda cluster: _progress(cluster, plan, wanted))
        if under_way is None:
            break
        progress.update(*under_way)
        time.sleep(LOOK_INTERVAL_S)
    progress.finish()
    topics = sorted({topic for topic, _ in plan})
    found = patiently(bootstrap, lambda cluster: assignment_of(cluster.any(), topics))
    for where, replicas in plan.items():
        if tuple(found.get(where, ())) != replicas:
            raise CommandFailed(
                f"{where[0]}-{where[1]} is on {_ids(found.get(where, ()))}, not on {_ids(replicas)}: somebody has cancelled "
                "or changed the plan"
            )


def _progress(
    cluster: Cluster, plan: Plan, wanted: Mapping[tuple[int, TopicPartition], int]
) -> tuple[int, int] | None:
    """Bytes and replicas that are there; None when nothing is under way any more."""
    ongoing = {where: move for where, move in ongoing_of(cluster.any()).items() if where in plan}
    if not ongoing:
        return None
    # A new replica is in sync when it has caught up; the partition is done when all are.
    in_sync = {
        (broker, (each.topic, each.number))
        for each in partitions_of(cluster.any(), sorted({topic for topic, _ in ongoing}))
        for broker in each.isr
    }
    missing = [copy for copy in wanted if copy[1] in ongoing and copy not in in_sync]
    sizes = sizes_of(cluster, sorted({broker for broker, _ in missing}), {where for _, where in missing})
    bytes_left = sum(max(wanted[copy] - sizes.get(copy, 0), 0) for copy in missing)
    return sum(wanted.values()) - bytes_left, len(wanted) - len(missing)


def wait_for_brokers(bootstrap: str, brokers: Iterable[int]) -> None:
    """CommandFailed for a broker that is not there or fenced."""
    with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
        known = brokers_of(cluster.any())[1]
    for each in sorted(brokers):
        if each not in known:
            raise CommandFailed(f"there is no broker {each}")
        if known[each].is_fenced:
            raise CommandFailed(f"broker {each} is fenced")


def patiently(bootstrap: str, question: Callable[[Cluster], T]) -> T:
    """The answer, asked for again while nodes fail over; CommandFailed after SILENCE_MAX_S."""
    deadline = time.monotonic() + SILENCE_MAX_S
    while True:
        try:
            with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
                return question(cluster)
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_INTERVAL_S)


def execute(bootstrap: str, current: Assignment, plan: Plan, bytes_per_s: int | None) -> None:
    """The whole of it: throttle, begin, watch, remove the throttle. An interrupt leaves the moves going on."""
    wait_for_brokers(bootstrap, {each for new in copies_of(current, plan).values() for each in new})
    with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
        wanted = bytes_to_copy(cluster, current, plan)
        if bytes_per_s is not None:
            throttle(cluster, current, plan, bytes_per_s)
        begin(cluster.any(), plan)
    attend(bootstrap, plan, wanted, brokers_in(current, plan) if bytes_per_s is not None else ())


def attend(
    bootstrap: str,
    plan: Plan,
    wanted: Mapping[tuple[int, TopicPartition], int],
    throttled: Iterable[int],
) -> None:
    """Watch to the end, then take the throttle from these brokers and the plan's topics."""
    throttled = list(throttled)
    try:
        watch(bootstrap, plan, wanted)
    except KeyboardInterrupt:
        print(
            "\nkafkacompat: the moves go on; `kafkacompat reassign --watch` shows them to their end and removes the throttle, "
            "`kafkacompat reassign --cancel` takes them back",
            file=sys.stderr,
        )
        raise
    if throttled:
        topics = {topic for topic, _ in plan}
        warn_of_throttles(patiently(bootstrap, lambda cluster: remove_throttles(cluster, throttled, topics)))


def warn_of_throttles(brokers: Iterable[int]) -> None:
    for each in brokers:
        warn(f"broker {each} is down and keeps its throttle, {' and '.join(RATES)}")


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas)) or "nothing"
