"""`kafkacompat topics`: manage topics and their settings. It is an ordinary client of the broker."""

from __future__ import annotations

import argparse

from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.view import min_isr_of, partitions_of
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_partitions_response import CreatePartitionsResponse
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.delete_topics_response import DeleteTopicsResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

TIMEOUT_MS = 30_000
TOPIC_SOURCE = 1
SET, DELETE = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="names of all topics")
    describe = actions.add_parser("describe", help="partitions and settings of the named or of all topics")
    describe.add_argument("topic", nargs="*", help="its name; all topics without one")
    only = describe.add_mutually_exclusive_group()
    only.add_argument(
        "--under-replicated", action="store_true", help="only partitions with replicas that are not in sync"
    )
    only.add_argument(
        "--at-min-isr",
        action="store_true",
        help="only partitions with exactly min.insync.replicas in sync",
    )
    only.add_argument(
        "--under-min-isr",
        action="store_true",
        help="only partitions with fewer than min.insync.replicas in sync: acks=all is refused",
    )
    only.add_argument("--unavailable", action="store_true", help="only partitions without a leader")
    create = actions.add_parser("create", help="create a topic")
    create.add_argument("topic", help="its name")
    create.add_argument("--partitions", type=int, default=-1, help="default: the broker's num.partitions")
    create.add_argument(
        "--replication-factor", type=int, default=-1, help="default: the broker's default.replication.factor"
    )
    alter = actions.add_parser("alter", help="add partitions, set or unset settings")
    alter.add_argument("topic", help="its name")
    alter.add_argument("--partitions", type=int, help="the new number of partitions; it cannot decrease")
    for each in (create, alter):
        each.add_argument(
            "--config",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a setting of this topic, such as retention.ms=3600000; may be repeated",
        )
    alter.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="reset a setting to the broker's"
    )
    delete = actions.add_parser("delete", help="delete topics and their records")
    delete.add_argument("topic", nargs="+", help="its name; several may follow")
    add_bootstrap_to(actions)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments)) as cluster:
        {
            "list": list_topics,
            "describe": describe_topics,
            "create": create_topic,
            "alter": alter_topic,
            "delete": delete_topics,
        }[arguments.action](cluster, arguments)
    return 0


def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> None:
    for name in sorted(topic.name or "" for topic in cluster.metadata(None).topics):
        print(name)


def describe_topics(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if arguments.under_replicated or arguments.at_min_isr or arguments.under_min_isr or arguments.unavailable:
        describe_troubled(cluster, arguments)
        return
    topics = cluster.metadata(arguments.topic or None).topics
    for topic in sorted(topics, key=lambda topic: topic.name or ""):
        check(topic.error_code, f"topic {topic.name}")
        settings = overrides_of(cluster, topic.name or "")
        print(f"{topic.name}  {' '.join(f'{name}={value}' for name, value in settings.items())}".rstrip())
        print_table(
            ("partition", "leader", "replicas", "isr"),
            [
                (
                    partition.partition_index,
                    partition.leader_id,
                    ",".join(map(str, partition.replica_nodes)),
                    ",".join(map(str, partition.isr_nodes)),
                )
                for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
            ],
        )


def describe_troubled(cluster: Cluster, arguments: argparse.Namespace) -> None:
    """Print the partitions that an option selects, of all topics in one table. Print nothing if there are none."""
    found = partitions_of(cluster.any(), arguments.topic or None)
    if arguments.under_replicated:
        chosen = [each for each in found if each.is_under_replicated]
    elif arguments.unavailable:
        chosen = [each for each in found if each.leader < 0]
    else:
        least = min_isr_of(cluster.any(), sorted({each.topic for each in found}))
        # A topic with fewer replicas than min.insync.replicas only needs all its replicas, as on a leader.
        wanted = {each: min(least[each.topic], len(each.replicas)) for each in found}
        chosen = [
            each
            for each in found
            if (
                len(each.isr) == wanted[each]
                if arguments.at_min_isr
                else len(each.isr) < wanted[each] or each.leader < 0
            )
        ]
    if chosen:
        print_table(
            ("topic", "partition", "leader", "replicas", "isr"),
            [
                (
                    each.topic,
                    each.number,
                    each.leader,
                    ",".join(map(str, each.replicas)),
                    ",".join(map(str, each.isr)) or "-",
                )
                for each in chosen
            ],
        )


def overrides_of(cluster: Cluster, topic: str) -> dict[str, str | None]:
    """Return the settings that are set for the topic itself."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=None
    )
    answer = cluster.any().call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    result = answer.results[0]
    check(result.error_code, f"settings of {topic}", result.error_message)
    return {entry.name: entry.value for entry in result.configs if entry.config_source == TOPIC_SOURCE}


def create_topic(cluster: Cluster, arguments: argparse.Namespace) -> None:
    wanted = CreatableTopic(
        name=arguments.topic,
        num_partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in pairs(arguments.config)],
    )
    answer = cluster.any().call(
        CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CreateTopicsResponse
    )
    made = answer.topics[0]
    check(made.error_code, f"topic {made.name}", made.error_message)
    print(f"created {made.name} with {made.num_partitions} partitions")


def alter_topic(cluster: Cluster, arguments: argparse.Namespace) -> None:
    if not (arguments.config or arguments.unset or arguments.partitions is not None):
        raise CommandFailed("topics alter requires --partitions, --config or --unset")
    changes = [
        AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in pairs(arguments.config)
    ]
    changes += [AlterableConfig(name=name, config_operation=DELETE, value=None) for name in arguments.unset]
    if changes:
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=arguments.topic, configs=changes
        )
        altered = cluster.any().call(
            IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
        )
        check(altered.responses[0].error_code, f"topic {arguments.topic}", altered.responses[0].error_message)
    if arguments.partitions is not None:
        more = CreatePartitionsTopic(name=arguments.topic, count=arguments.partitions, assignments=None)
        grown = cluster.any().call(
            CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS), CreatePartitionsResponse
        )
        check(grown.results[0].error_code, f"topic {arguments.topic}", grown.results[0].error_message)
    print(f"altered {arguments.topic}")


def delete_topics(cluster: Cluster, arguments: argparse.Namespace) -> None:
    states = [DeleteTopicState(name=name) for name in arguments.topic]
    request = DeleteTopicsRequest(topics=states, topic_names=arguments.topic, timeout_ms=TIMEOUT_MS)
    answers = cluster.any().call(request, DeleteTopicsResponse).responses
    for gone in sorted(answers, key=lambda gone: gone.name or ""):
        if gone.error_code == ErrorCode.NONE:
            print(f"deleted {gone.name}")
    for gone in answers:
        check(gone.error_code, f"topic {gone.name}", gone.error_message)


def pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Split KEY=VALUE texts. Raises CommandFailed for one without a key or '='."""
    split = [text.partition("=") for text in texts]
    for (name, separator, _), text in zip(split, texts, strict=True):
        if not name or not separator:
            raise CommandFailed(f"--config takes KEY=VALUE, not {text!r}")
    return [(name, value) for name, _, value in split]
