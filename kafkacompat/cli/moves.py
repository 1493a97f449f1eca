"""Partition reassignments: start, throttle, watch, cancel. KIP-455, KIP-73.

The input is a plan. Requests go to the cluster until every replica is on its planned broker. The throttle is set and
removed as by kafka-reassign-partitions: rates of the brokers, and replica lists of the topics. This module knows no
processes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kafkacompat.cli.output import MoveProgress
from kafkacompat.cli.plan import Assignment, Plan, TopicPartition, copies_of
from kafkacompat.cli.settings import warn
from kafkacompat.cli.view import brokers_of, partitions_of, settings_of_topics
from kafkacompat.client.blocking import Cluster, Remote
from kafkacompat.client.brokers import check
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.config_resources import ConfigResourceType
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
"""How long a watched reassignment may go without any answer. Controllers and brokers may fail over in that time."""
METADATA_BEHIND_MAX_S = 10.0
"""How long a broker's metadata may show other replicas than the controller."""
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition that is being reassigned: all current replicas, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def assignment_of(remote: Remote, topics: list[str] | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of partitions. For partitions that are being reassigned, return the target replicas."""
    found = {(each.topic, each.number): each.replicas for each in partitions_of(remote, topics)}
    for where, move in ongoing_of(remote).items():
        if where in found:
            found[where] = tuple(each for each in move.replicas if each not in move.removing)
    return found


def ongoing_of(remote: Remote) -> dict[TopicPartition, Ongoing]:
    """Return all reassignments in progress."""
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
    """Start the reassignments. CommandFailed names the first partition that is refused. Others may have started."""
    _alter(remote, plan)


def cancel(remote: Remote, partitions: Iterable[TopicPartition]) -> None:
    """Restore the replicas from before the reassignment. Reassignments that are complete stay as they are."""
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


# Throttles.


def throttle(cluster: Cluster, current: Assignment, plan: Plan, bytes_per_s: int) -> None:
    """Limit the rate of these moves. Other replication stays unlimited."""
    copies = copies_of(current, plan)
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    for (topic, number), new in sorted(copies.items()):
        leaders[topic] += [f"{number}:{each}" for each in current[topic, number]]
        followers[topic] += [f"{number}:{each}" for each in new]
    for topic in leaders:
        values = {LEADERS: ",".join(leaders[topic]), FOLLOWERS: ",".join(followers[topic])}
        configure(cluster.any(), ConfigResourceType.TOPIC, topic, values)
    set_rates(cluster, brokers_in(current, plan), bytes_per_s)


def set_rates(cluster: Cluster, brokers: Iterable[int], bytes_per_s: int) -> None:
    """Set the rates. A broker that is down copies nothing, so it is skipped."""
    alive = cluster.node_ids()
    for each in sorted(set(brokers).intersection(alive)):
        configure(
            cluster.node(each), ConfigResourceType.BROKER, str(each), dict.fromkeys(RATES, str(bytes_per_s))
        )


def remove_throttles(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> list[int]:
    """Remove all throttles, whoever set them. Return the brokers that are down: only a broker itself changes its settings."""
    for topic in sorted(topics):
        configure(cluster.any(), ConfigResourceType.TOPIC, topic, dict.fromkeys((LEADERS, FOLLOWERS)))
    alive = cluster.node_ids()
    for each in sorted(set(brokers).intersection(alive)):
        configure(cluster.node(each), ConfigResourceType.BROKER, str(each), dict.fromkeys(RATES))
    return sorted(set(brokers).difference(alive))


def throttled_topics(remote: Remote) -> list[str]:
    """Return the topics with throttled replicas."""
    topics = sorted({each.topic for each in partitions_of(remote)})
    return sorted(
        topic
        for topic, values in settings_of_topics(remote, topics, (LEADERS, FOLLOWERS)).items()
        if any(values.values())
    )


def brokers_in(current: Assignment, plan: Plan) -> set[int]:
    """Return all brokers that the moves copy from or to."""
    return {each for where, new in copies_of(current, plan).items() for each in (*current[where], *new)}


def configure(remote: Remote, kind: int, name: str, values: Mapping[str, str | None]) -> None:
    """Set the values. A value of None removes the setting."""
    changes = [
        AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    answer = remote.call(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    check(answer.responses[0].error_code, f"the settings of {name}", answer.responses[0].error_message)


# Watching.


def sizes_of(
    cluster: Cluster, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> dict[tuple[int, TopicPartition], int]:
    """Return the size in bytes of these partitions on those of the brokers that answer."""
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
    """Return the expected size in bytes of each new replica, by broker and partition."""
    copies = copies_of(current, plan)
    holders = {each for where in copies for each in current[where]}
    sizes = sizes_of(cluster, sorted(holders), copies) if copies else {}
    return {
        (broker, where): max((sizes.get((each, where), 0) for each in current[where]), default=0)
        for where, new in copies.items()
        for broker in new
    }


def watch(bootstrap: ClusterAddress, plan: Plan, wanted: Mapping[tuple[int, TopicPartition], int]) -> None:
    """Show the progress until the plan is complete. `wanted` is the plan's bytes_to_copy.

    Raises CommandFailed if the target replicas change, or after SILENCE_MAX_S without an answer.
    """
    progress = MoveProgress(sum(wanted.values()), len(wanted))
    while True:
        under_way = patiently(bootstrap, lambda cluster: _progress(cluster, plan, wanted))
        if under_way is None:
            break
        progress.update(*under_way)
        time.sleep(LOOK_INTERVAL_S)
    progress.finish()
    _assert_moved(bootstrap, plan)


def _assert_moved(bootstrap: ClusterAddress, plan: Plan) -> None:
    """The controller has told that no move is left. The metadata of the broker that is asked may be behind."""
    topics = sorted({topic for topic, _ in plan})
    deadline = time.monotonic() + METADATA_BEHIND_MAX_S
    while True:
        found = patiently(bootstrap, lambda cluster: assignment_of(cluster.any(), topics))
        wrong = [where for where, replicas in plan.items() if tuple(found.get(where, ())) != replicas]
        if not wrong:
            return
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_INTERVAL_S)
    topic, number = where = wrong[0]
    raise CommandFailed(
        f"{topic}-{number} is on {_ids(found.get(where, ()))}, not on {_ids(plan[where])}: somebody has cancelled or "
        "changed the plan"
    )


def _progress(
    cluster: Cluster, plan: Plan, wanted: Mapping[tuple[int, TopicPartition], int]
) -> tuple[int, int] | None:
    """Return the copied bytes and replicas, or None if no reassignment is in progress."""
    ongoing = {where: move for where, move in ongoing_of(cluster.any()).items() if where in plan}
    if not ongoing:
        return None
    # A new replica is in the ISR when it has caught up. The partition is complete when all new replicas are.
    in_sync = {
        (broker, (each.topic, each.number))
        for each in partitions_of(cluster.any(), sorted({topic for topic, _ in ongoing}))
        for broker in each.isr
    }
    missing = [copy for copy in wanted if copy[1] in ongoing and copy not in in_sync]
    sizes = sizes_of(cluster, sorted({broker for broker, _ in missing}), {where for _, where in missing})
    bytes_left = sum(max(wanted[copy] - sizes.get(copy, 0), 0) for copy in missing)
    return sum(wanted.values()) - bytes_left, len(wanted) - len(missing)


def wait_for_brokers(bootstrap: ClusterAddress, brokers: Iterable[int]) -> None:
    """Raise CommandFailed if a broker is missing or fenced."""
    with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
        known = brokers_of(cluster.any())[1]
    for each in sorted(brokers):
        if each not in known:
            raise CommandFailed(f"there is no broker {each}")
        if known[each].is_fenced:
            raise CommandFailed(f"broker {each} is fenced")


def patiently(bootstrap: ClusterAddress, question: Callable[[Cluster], T]) -> T:
    """Return the answer, asking again while nodes fail over. Raises CommandFailed after SILENCE_MAX_S."""
    deadline = time.monotonic() + SILENCE_MAX_S
    while True:
        try:
            with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
                return question(cluster)
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_INTERVAL_S)


def execute(bootstrap: ClusterAddress, current: Assignment, plan: Plan, bytes_per_s: int | None) -> None:
    """Throttle, start, watch, and remove the throttle. After an interrupt the reassignments continue."""
    wait_for_brokers(bootstrap, {each for new in copies_of(current, plan).values() for each in new})
    with Cluster(bootstrap, ANSWER_TIMEOUT_S) as cluster:
        wanted = bytes_to_copy(cluster, current, plan)
        if bytes_per_s is not None:
            throttle(cluster, current, plan, bytes_per_s)
        begin(cluster.any(), plan)
    attend(bootstrap, plan, wanted, brokers_in(current, plan) if bytes_per_s is not None else ())


def attend(
    bootstrap: ClusterAddress,
    plan: Plan,
    wanted: Mapping[tuple[int, TopicPartition], int],
    throttled: Iterable[int],
) -> None:
    """Watch to the end, then remove the throttle from these brokers and the plan's topics."""
    throttled = list(throttled)
    try:
        watch(bootstrap, plan, wanted)
    except KeyboardInterrupt:
        print(
            "\nkafkacompat: the reassignments continue; `kafkacompat reassign --watch` waits for them and removes the throttle, "
            "`kafkacompat reassign --cancel` cancels them",
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
