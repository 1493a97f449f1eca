"""kafka-topics: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence

from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import ErrorCodes, error_name
from kafkacompat.container.tools.options import Options, address_of, pairs_of
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int, uuid_to_text
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_partitions_response import CreatePartitionsResponse
from kafkacompat.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.delete_topics_response import DeleteTopicsResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kafkacompat.wire.messages.describe_topic_partitions_request import Cursor as RequestCursor
from kafkacompat.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kafkacompat.wire.messages.describe_topic_partitions_response import DescribeTopicPartitionsResponse
from kafkacompat.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponseTopic as Described,
)
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

TIMEOUT_MS = 30_000
OF_TOPIC, DEFAULT = 1, 5
"""Sources of a setting (DescribeConfigs)."""
ACTIONS = ("list", "describe", "create", "alter", "delete")
ONLY = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "topics-with-overrides",
)
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def options() -> Options:
    parser = Options("kafka-topics", "Create, delete, describe, or change a topic.")
    parser.add_server("command-config")
    parser.add_flags(*ACTIONS, "if-exists", "if-not-exists", "exclude-internal", *ONLY)
    parser.add_argument("--topic", help="a name; except for --create also a regular expression")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument("--replica-assignment", metavar="ID:ID,ID:ID,...")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    return parser


def run(arguments: argparse.Namespace) -> int:
    chosen = [each for each in ACTIONS if getattr(arguments, each)]
    if len(chosen) != 1:
        raise CommandFailed(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if chosen[0] in ("create", "alter", "delete") and arguments.topic is None:
        raise CommandFailed('Missing required argument "[topic]"')
    do = {"list": list_topics, "describe": describe, "create": create, "alter": alter, "delete": delete}
    with Cluster(address_of(arguments)) as cluster:
        try:
            do[chosen[0]](cluster, arguments)
        except TopicProblem as problem:
            print(f"Error while executing topic command : {problem}")
            return 1
    return 0


class TopicProblem(Exception):
    """What Kafka's tool prints on standard output."""


def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for topic in _chosen(cluster, arguments):
        print(topic.name)


def _chosen(cluster: Cluster, arguments: argparse.Namespace) -> list[MetadataResponseTopic]:
    """The topics that --topic matches as a whole, or all, by name."""
    found = sorted(cluster.metadata(None).topics, key=lambda each: each.name or "")
    if arguments.topic is not None:
        try:
            matches = re.compile(arguments.topic.replace(",", "|").strip("\"'"))
        except re.error as error:
            raise CommandFailed(f"--topic is no regular expression: {error}") from None
        found = [each for each in found if matches.fullmatch(each.name or "")]
    return [each for each in found if not (arguments.exclude_internal and each.is_internal)]


def _existing(cluster: Cluster, arguments: argparse.Namespace) -> list[MetadataResponseTopic]:
    found = _chosen(cluster, arguments)
    if not found and arguments.topic is not None and not arguments.if_exists:
        raise TopicProblem(f"Topic '{arguments.topic}' does not exist as expected")
    return found


def create(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if "_" in arguments.topic or "." in arguments.topic:
        print(COLLISION)
    replicas = _assignment(arguments.replica_assignment)
    unset = -1
    topic = CreatableTopic(
        name=arguments.topic,
        num_partitions=unset if replicas or arguments.partitions is None else arguments.partitions,
        replication_factor=unset
        if replicas or arguments.replication_factor is None
        else arguments.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in enumerate(replicas)
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value)
            for name, value in pairs_of(arguments.config, "config").items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = cluster.any().call(request, CreateTopicsResponse).topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
        return
    _check(result.error_code, result.error_message)
    print(f"Created topic {arguments.topic}.")


def _assignment(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[parse_int(each) for each in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        raise CommandFailed(f"--replica-assignment takes ID:ID,ID:ID,... not {text!r}") from None


def alter(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if arguments.partitions is None:
        raise CommandFailed('Missing required argument "[partitions]"')
    asked = [
        CreatePartitionsTopic(name=each.name or "", count=arguments.partitions, assignments=None)
        for each in _existing(cluster, arguments)
    ]
    if asked:
        request = CreatePartitionsRequest(topics=asked, timeout_ms=TIMEOUT_MS)
        for result in cluster.any().call(request, CreatePartitionsResponse).results:
            _check(result.error_code, result.error_message)


def delete(cluster: Cluster, arguments: argparse.Namespace) -> None:
    asked = [DeleteTopicState(name=each.name) for each in _existing(cluster, arguments)]
    if asked:
        request = DeleteTopicsRequest(topics=asked, timeout_ms=TIMEOUT_MS)
        for result in cluster.any().call(request, DeleteTopicsResponse).responses:
            _check(result.error_code, result.error_message)


def describe(cluster: Cluster, arguments: argparse.Namespace) -> None:
    names = [each.name or "" for each in _existing(cluster, arguments)]
    only = next((each for each in ONLY if getattr(arguments, each.replace("-", "_"))), None)
    settings = _settings(cluster, names)
    for topic in described(cluster, names):
        of_topic = settings[topic.name or ""]
        if only in (None, "topics-with-overrides"):
            own = any(each.config_source == OF_TOPIC for each in of_topic)
            if only is not None and not own:
                continue
            print(_headline(topic, of_topic))
        if only != "topics-with-overrides":
            least = next(int(each.value or 1) for each in _min_isr(of_topic))
            for line in _partitions(topic, only, least):
                print(line)


def described(cluster: Cluster, names: Sequence[str]) -> Iterator[Described]:
    """Page through DescribeTopicPartitions. A topic on two pages is put together."""
    cursor: RequestCursor | None = None
    held: Described | None = None
    while names:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=each) for each in names], cursor=cursor
        )
        answer = cluster.any().call(request, DescribeTopicPartitionsResponse)
        for topic in answer.topics:
            _check(topic.error_code, None)
            if held is not None and held.name == topic.name:
                held.partitions.extend(topic.partitions)
                continue
            if held is not None:
                yield held
            held = topic
        following = answer.next_cursor
        if following is None:
            break
        names = [each for each in names if each >= following.topic_name]
        cursor = RequestCursor(topic_name=following.topic_name, partition_index=following.partition_index)
    if held is not None:
        yield held


def _settings(cluster: Cluster, names: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
    asked = [
        DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=each, configuration_keys=None
        )
        for each in names
    ]
    results = (
        cluster.any().call(DescribeConfigsRequest(resources=asked), DescribeConfigsResponse).results
        if asked
        else []
    )
    return {each.resource_name: each.configs for each in results}


def _min_isr(
    settings: Iterable[DescribeConfigsResourceResult],
) -> Iterator[DescribeConfigsResourceResult]:
    return (each for each in settings if each.name == "min.insync.replicas")


def _headline(topic: Described, settings: Iterable[DescribeConfigsResourceResult]) -> str:
    replicas = len(topic.partitions[0].replica_nodes) if topic.partitions else 0
    told = ",".join(f"{each.name}={each.value}" for each in settings if each.config_source != DEFAULT)
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(bytes(topic.topic_id))}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replicas}\tConfigs: {told}"
    )


def _partitions(topic: Described, only: str | None, least: int) -> Iterator[str]:
    for each in sorted(topic.partitions, key=lambda each: each.partition_index):
        in_sync, replicas = len(each.isr_nodes), len(each.replica_nodes)
        chosen = {
            None: True,
            "under-replicated-partitions": in_sync < replicas,
            "unavailable-partitions": each.leader_id < 0,
            "under-min-isr-partitions": in_sync < least,
            "at-min-isr-partitions": in_sync == least,
        }
        if chosen[only]:
            leader = "none" if each.leader_id < 0 else each.leader_id
            yield (
                f"\tTopic: {topic.name}\tPartition: {each.partition_index}\tLeader: {leader}"
                f"\tReplicas: {_ids(each.replica_nodes)}\tIsr: {_ids(each.isr_nodes)}"
                f"\tElr: {_ids(each.eligible_leader_replicas or ())}\tLastKnownElr: {_ids(each.last_known_elr or ())}"
            )


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise TopicProblem(message or (ErrorCode(code).name if code in ErrorCodes else error_name(code)))
