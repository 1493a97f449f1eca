"""kafka-topics: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import ErrorCodes, error_name
from kafkacompat.container.tools.options import Options, address_of, topic_pattern
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int, uuid_to_text
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
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
    DescribeTopicPartitionsResponsePartition as DescribedPartition,
)
from kafkacompat.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponseTopic as Described,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

TIMEOUT_MS = 30_000
DEFAULT = 5
"""The source of a setting that nobody has set (DescribeConfigs)."""
REPLICATION_FACTOR_MAX = 32_767
ACTIONS = ("list", "describe", "create", "alter", "delete")
ONLY = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "topics-with-overrides",
)
SERVED_BY = {
    "config": ("create",),
    "partitions": ("alter", "create"),
    "replication-factor": ("create",),
    "replica-assignment": ("alter", "create"),
    **dict.fromkeys(ONLY, ("describe",)),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}
"""Which actions heed an option. With the others it is refused: who gives it expects that it has an effect."""
FACTOR_TEXT = "The replication factor must be between 1 and 32767 inclusive"
COUNT_TEXT = "The partitions must be greater than 0"
CONFIG_TEXT = (
    'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
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
    check_options(arguments, chosen[0])
    do = {"list": list_topics, "describe": describe, "create": create, "alter": alter, "delete": delete}
    with Cluster(address_of(arguments)) as cluster:
        try:
            do[chosen[0]](cluster, arguments)
        except TopicProblem as problem:
            print(f"Error while executing topic command : {problem}")
            return 1
    return 0


def check_options(arguments: argparse.Namespace, action: str) -> None:
    """Raise CommandFailed for options that do not go together."""

    def is_given(option: str) -> bool:
        return getattr(arguments, option.replace("-", "_")) not in (None, False, [])

    if action == "alter" and is_given("config"):
        raise CommandFailed(
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]" '
            "(To alter topic configurations, the kafka-configs tool can be used.)"
        )
    if action == "alter" and arguments.partitions is None:
        raise CommandFailed('Missing required argument "[partitions]"')
    excluded = [(each, action) for each, actions in SERVED_BY.items() if action not in actions]
    if action == "create":
        excluded += [("replica-assignment", each) for each in ("partitions", "replication-factor")]
    excluded += [(each, "topics-with-overrides") for each in ONLY if each != "topics-with-overrides"]
    for option, other in excluded:
        if is_given(option) and is_given(other):
            raise CommandFailed(f'Option "[{option}]" can\'t be used with option "[{other}]"')


class TopicProblem(Exception):
    """What Kafka's tool prints on standard output."""


def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for topic in _chosen(cluster, arguments):
        print(topic.name)


def _chosen(cluster: Cluster, arguments: argparse.Namespace) -> list[MetadataResponseTopic]:
    """The topics that --topic matches as a whole, or all, by name."""
    found = sorted(cluster.metadata(None).topics, key=lambda each: each.name or "")
    if arguments.topic is not None:
        matches = topic_pattern(arguments.topic)
        found = [each for each in found if matches.fullmatch(each.name or "")]
    return [each for each in found if not (arguments.exclude_internal and each.is_internal)]


def _existing(cluster: Cluster, arguments: argparse.Namespace) -> list[MetadataResponseTopic]:
    found = _chosen(cluster, arguments)
    if not found and arguments.topic is not None and not arguments.if_exists:
        raise TopicProblem(f"Topic '{arguments.topic}' does not exist as expected")
    return found


def create(cluster: Cluster, arguments: argparse.Namespace) -> None:
    configs = configs_of(arguments.config)
    if "_" in arguments.topic or "." in arguments.topic:
        print(COLLISION)
    replicas = _assignment(arguments.replica_assignment)
    factor = arguments.replication_factor
    if factor is not None and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise TopicProblem(FACTOR_TEXT)
    if arguments.partitions is not None and arguments.partitions < 1:
        raise TopicProblem(COUNT_TEXT)
    unset = -1
    topic = CreatableTopic(
        name=arguments.topic,
        num_partitions=unset if arguments.partitions is None else arguments.partitions,
        replication_factor=unset if factor is None else factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in enumerate(replicas)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = cluster.any().call(request, CreateTopicsResponse).topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
        return
    _check(result.error_code, result.error_message)
    print(f"Created topic {arguments.topic}.")


def configs_of(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, with blanks around them. Neither may be empty, and a value has no equals sign."""
    found = {}
    for text in texts:
        name, *rest = (each.strip() for each in text.split("="))
        if len(rest) != 1 or not rest[0]:
            raise TopicProblem(CONFIG_TEXT)
        found[name] = rest[0]
    return found


def _assignment(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[parse_int(each) for each in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        raise CommandFailed(f"--replica-assignment takes ID:ID,ID:ID,... not {text!r}") from None


def alter(cluster: Cluster, arguments: argparse.Namespace) -> None:
    replicas = _assignment(arguments.replica_assignment)
    asked = [
        CreatePartitionsTopic(
            name=each.name or "",
            count=arguments.partitions,
            # It begins with the partitions that are there already.
            assignments=[
                CreatePartitionsAssignment(broker_ids=ids) for ids in replicas[len(each.partitions) :]
            ]
            if replicas
            else None,
        )
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
    only = {each for each in ONLY if getattr(arguments, each.replace("-", "_"))}
    settings = _settings(cluster, names)
    moves = ongoing_moves(cluster) if names else {}
    for topic in described(cluster, names):
        of_topic = settings[topic.name or ""]
        if only <= {"topics-with-overrides"}:
            if only and all(each.config_source == DEFAULT for each in of_topic):
                continue
            print(headline(topic, of_topic, moves))
        if "topics-with-overrides" not in only:
            least = next(int(each.value or 1) for each in _min_isr(of_topic))
            for line in partition_lines(topic, only, least, moves):
                print(line)


Moves = Mapping[tuple[str, int], OngoingPartitionReassignment]
"""The reassignment of a partition that is being moved, by topic and number."""


def ongoing_moves(cluster: Cluster) -> Moves:
    """Nothing if the brokers do not tell, or if the caller may not know."""
    remote = cluster.any()
    if not remote.serves(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0):
        return {}
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
    answer = remote.call(request, ListPartitionReassignmentsResponse)
    if answer.error_code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        return {}
    _check(answer.error_code, answer.error_message)
    return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}


def _replication_factor(partition: DescribedPartition, move: OngoingPartitionReassignment | None) -> int:
    """Replicas that are being added do not count."""
    if move is None or not set(partition.replica_nodes).intersection(
        (*move.adding_replicas, *move.removing_replicas)
    ):
        return len(partition.replica_nodes)
    return len(move.replicas) - len(move.adding_replicas)


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


def headline(topic: Described, settings: Iterable[DescribeConfigsResourceResult], moves: Moves) -> str:
    first = min(topic.partitions, key=lambda each: each.partition_index)
    factor = _replication_factor(first, moves.get((topic.name or "", first.partition_index)))
    told = ",".join(f"{each.name}={each.value}" for each in settings if each.config_source != DEFAULT)
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(bytes(topic.topic_id))}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {told}"
    )


def partition_lines(topic: Described, only: Collection[str], least: int, moves: Moves) -> Iterator[str]:
    """`only`: of which kinds, all without any. `least`: min.insync.replicas of the topic."""
    for each in sorted(topic.partitions, key=lambda each: each.partition_index):
        move = moves.get((topic.name or "", each.partition_index))
        in_sync, has_leader = len(each.isr_nodes), each.leader_id >= 0
        kinds = {
            "under-replicated-partitions": in_sync < _replication_factor(each, move),
            "unavailable-partitions": not has_leader,
            "under-min-isr-partitions": not has_leader or in_sync < least,
            "at-min-isr-partitions": in_sync == least,
        }
        if not only or any(kinds[kind] for kind in only):
            moving = (
                f"\tAdding Replicas: {_ids(move.adding_replicas)}\tRemoving Replicas: {_ids(move.removing_replicas)}"
                if move is not None
                else ""
            )
            yield (
                f"\tTopic: {topic.name}\tPartition: {each.partition_index}"
                f"\tLeader: {each.leader_id if has_leader else 'none'}"
                f"\tReplicas: {_ids(each.replica_nodes)}\tIsr: {_ids(each.isr_nodes)}{moving}"
                f"\tElr: {_ids(each.eligible_leader_replicas or ())}\tLastKnownElr: {_ids(each.last_known_elr or ())}"
            )


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise TopicProblem(message or (ErrorCode(code).name if code in ErrorCodes else error_name(code)))
