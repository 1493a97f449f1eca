"""`kafkacompat mirror`: let a cluster of ours follow topics of another cluster, and let it take over.

It is an ordinary client of both clusters: a mirror is nothing but settings of its topics (see the package mirror). The words are
those of KIP-1279, as far as it is public.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkacompat.addresses import split_host_and_port
from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.groups import commit, committed_topics, end_offsets, listed_groups
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.topics import SET, TIMEOUT_MS, TOPIC_SOURCE, overrides_of
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.config import ConfigError, topic_keys
from kafkacompat.config.topic import (
    MIRROR_BOOTSTRAP_SERVERS,
    MIRROR_LEADER_EPOCH,
    MIRROR_NAME,
    MIRROR_STATE,
    MIRROR_TOPIC_ID,
    MIRRORING,
    PAUSED,
    STOPPED,
)
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import INTERNAL_TOPICS, uuid_to_text
from kafkacompat.mirror.group_offsets import commit_of, has_offsets
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import code_of
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.create_topics_response import CreateTopicsResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.wire.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequestPartition

CLEANUP = "cleanup.policy"
EPOCHS = 1 << 20
"""The leader epochs of a mirror begin at the next multiple above those of its source, which has so many elections left."""
EPOCH_MAX = (1 << 31) - EPOCHS
NOT_TAKEN_OVER = ("mirror.", "remote.", "local.retention.", "leader.replication.", "follower.replication.")
"""Settings of a topic that concern the brokers of its own cluster."""


@dataclass(frozen=True, slots=True)
class MirrorTopic:
    """A topic here, by its settings."""

    name: str
    mirror: str
    source: str
    state: str
    source_id: str
    """Of the topic there, as text."""
    first_epoch: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A mirror follows topics of another cluster byte for byte, with their offsets. Its topics are read-only until it is "
        "stopped, which is the fail-over: then they take records as every topic does. docs/how-to/mirror-a-cluster.md shows how."
    )
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser(
        "create", help="create topics that follow those of another cluster, as a mirror"
    )
    create.add_argument(
        "--replication-factor", type=int, default=-1, help="default: the broker's default.replication.factor"
    )
    fail_back = actions.add_parser(
        "fail-back",
        help="let topics of this cluster follow the one that has mirrored them and taken over, and give up what it does not have",
    )
    for each in (create, fail_back):
        each.add_argument(
            "--source",
            required=True,
            metavar="HOST:PORT",
            help="brokers of the other cluster, separated by commas",
        )
    actions.add_parser("list", help="all mirrors, their sources and their numbers of topics")
    describe = actions.add_parser(
        "describe", help="the state of each topic, how far it is behind its source, and why it stands still"
    )
    offsets = actions.add_parser(
        "offsets",
        help="copy the offsets that groups have committed at the source, now; brokers copy them every ten seconds",
    )
    pause = actions.add_parser("pause", help="do not follow for now; the topics stay read-only")
    resume = actions.add_parser("resume", help="follow again after a pause")
    stop = actions.add_parser("stop", help="fail over: do not follow any more, and take records")
    for each in (create, fail_back, describe, offsets, pause, resume, stop):
        begins = each in (create, fail_back)
        each.add_argument("mirror", metavar="NAME", help="name of the mirror")
        each.add_argument(
            "--topics",
            required=begins,
            metavar="TOPIC,...",
            help="topics of the source" if begins else "only these topics",
        )
    for each in (create, fail_back, describe, offsets):
        each.add_argument(
            "--source-config",
            metavar="FILE",
            help="a file of Kafka's client properties that says how this command connects to the source; the brokers connect by "
            "their own mirror.client.properties",
        )
    add_bootstrap_to(actions)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments)) as cluster:
        if arguments.action == "create":
            create_mirror(cluster, arguments)
        elif arguments.action == "fail-back":
            turn_back(cluster, arguments)
        elif arguments.action == "list":
            list_mirrors(cluster)
        elif arguments.action == "describe":
            describe_mirror(cluster, arguments)
        elif arguments.action == "offsets":
            copy_offsets(cluster, arguments)
        else:
            change_state(cluster, arguments)
    return 0


def source_of(servers: str, config: str | None) -> Cluster:
    """The other cluster. Raises CommandFailed, also if it does not answer."""
    for each in servers.split(","):
        if split_host_and_port(each) is None:
            raise CommandFailed(f"the source of a mirror is HOST:PORT[,HOST:PORT...], not {each!r}")
    try:
        return Cluster(ClusterAddress.of_file(servers, config, "--source-config"))
    except ConfigError as error:
        raise CommandFailed(str(error)) from None


def create_mirror(cluster: Cluster, arguments: argparse.Namespace) -> None:
    names = named_topics(arguments)
    wanted: list[CreatableTopic] = []
    left_out: dict[str, list[str]] = {}
    with source_of(arguments.source, arguments.source_config) as source:
        for topic in source.metadata(names).topics:
            name = topic.name or ""
            check(topic.error_code, f"topic {name} of the source")
            if topic.is_internal or name in INTERNAL_TOPICS:
                raise CommandFailed(f"topic {name} is internal, and belongs to its own cluster")
            settings = {key: value for key, value in overrides_of(source, name).items() if value is not None}
            kept = {key: value for key, value in settings.items() if is_taken_over(key)}
            left_out[name] = sorted(settings.keys() - kept.keys())
            kept |= settings_to_follow(arguments, topic)
            wanted.append(
                CreatableTopic(
                    name=name,
                    num_partitions=len(topic.partitions),
                    replication_factor=arguments.replication_factor,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in kept.items()],
                )
            )
    request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
    answers = cluster.any().call(request, CreateTopicsResponse).topics
    for made in answers:
        if not made.error_code:
            print(f"mirroring {made.name} with {made.num_partitions} partitions")
            if left_out[made.name]:
                print(f"  settings that stay at the source: {', '.join(left_out[made.name])}")
    for made in answers:
        check(made.error_code, f"topic {made.name}", made.error_message)


def named_topics(arguments: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(name for name in arguments.topics.split(",") if name))


def settings_to_follow(arguments: argparse.Namespace, topic: MetadataResponseTopic) -> dict[str, str]:
    """`topic`: at the source."""
    return {
        MIRROR_NAME: arguments.mirror,
        MIRROR_BOOTSTRAP_SERVERS: arguments.source,
        MIRROR_TOPIC_ID: uuid_to_text(topic.topic_id),
        MIRROR_STATE: MIRRORING,
        MIRROR_LEADER_EPOCH: str(first_epoch(topic)),
    }


def turn_back(cluster: Cluster, arguments: argparse.Namespace) -> None:
    """All topics are looked at before the first one is changed."""
    names = named_topics(arguments)
    changes: dict[str, dict[str, str]] = {}
    with source_of(arguments.source, arguments.source_config) as source:
        there = {topic.name: topic for topic in source.metadata(names).topics}
        for here in cluster.metadata(names).topics:
            name = here.name or ""
            check(here.error_code, f"topic {name}")
            check(there[name].error_code, f"topic {name} of the source")
            refuse_to_turn_back(
                here,
                there[name],
                values_of(cluster, name, MIRROR_STATE, CLEANUP),
                values_of(source, name, MIRROR_STATE, MIRROR_TOPIC_ID),
            )
            changes[name] = settings_to_follow(arguments, there[name])
    set_values(cluster, changes)
    for name in changes:
        print(f"{name} follows {arguments.source}")


def refuse_to_turn_back(
    here: MetadataResponseTopic,
    there: MetadataResponseTopic,
    own: Mapping[str, str],
    theirs: Mapping[str, str],
) -> None:
    """`own` and `theirs` are the settings here and there. Raises CommandFailed with the reason."""
    reason = ""
    if own.get(MIRROR_STATE, STOPPED) != STOPPED:
        reason = "is a mirror already, and has not taken over"
    elif theirs.get(MIRROR_TOPIC_ID) != uuid_to_text(here.topic_id):
        reason = "was not mirrored from this cluster to the source"
    elif theirs.get(MIRROR_STATE, STOPPED) != STOPPED:
        reason = f"has not taken over at the source: it is {theirs[MIRROR_STATE]} there"
    elif len(here.partitions) > len(there.partitions):
        reason = f"has {len(here.partitions)} partitions here and {len(there.partitions)} at the source"
    elif max(each.leader_epoch for each in here.partitions) >= first_epoch(there):
        # Of a turn back that was stopped. The source does not know these epochs, and cannot tell what is to be given up.
        reason = "has taken over later than the source; let that turn back, or delete this one, and create the mirror"
    elif "compact" in own.get(CLEANUP, ""):
        # What is given up may have replaced older records of its keys, which the source still has.
        reason = "is compacted, and may lack what the source has; delete it, and create the mirror"
    if reason:
        raise CommandFailed(f"topic {here.name} {reason}")


def values_of(cluster: Cluster, topic: str, *names: str) -> dict[str, str]:
    """The effective values of these settings, as far as the topic has them."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=list(names)
    )
    answer = cluster.any().call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    (result,) = answer.results
    check(result.error_code, f"settings of {topic}", result.error_message)
    return {each.name: each.value or "" for each in result.configs}


def is_taken_over(setting: str) -> bool:
    return setting in topic_keys() and not setting.startswith(NOT_TAKEN_OVER)


def first_epoch(topic: MetadataResponseTopic) -> int:
    """The first leader epoch of the mirror. Raises CommandFailed if too few are left."""
    highest = max(each.leader_epoch for each in topic.partitions)
    epoch = (highest // EPOCHS + 1) * EPOCHS
    if epoch > EPOCH_MAX:
        raise CommandFailed(f"topic {topic.name} has leader epoch {highest}, and a mirror needs higher ones")
    return epoch


def mirror_topics(cluster: Cluster) -> list[MirrorTopic]:
    """All topics that are or were mirrors, by name."""
    names = sorted(topic.name or "" for topic in cluster.metadata(None).topics)
    if not names:
        return []
    resources = [
        DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=name,
            configuration_keys=[
                MIRROR_NAME,
                MIRROR_BOOTSTRAP_SERVERS,
                MIRROR_STATE,
                MIRROR_TOPIC_ID,
                MIRROR_LEADER_EPOCH,
            ],
        )
        for name in names
    ]
    answer = cluster.any().call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    found = []
    for result in answer.results:
        check(result.error_code, f"settings of {result.resource_name}", result.error_message)
        values = {
            each.name: each.value or "" for each in result.configs if each.config_source == TOPIC_SOURCE
        }
        if values.get(MIRROR_NAME):
            found.append(
                MirrorTopic(
                    result.resource_name,
                    values[MIRROR_NAME],
                    values.get(MIRROR_BOOTSTRAP_SERVERS, ""),
                    values.get(MIRROR_STATE, STOPPED),
                    values.get(MIRROR_TOPIC_ID, ""),
                    int(values.get(MIRROR_LEADER_EPOCH, "0")),
                )
            )
    return found


def list_mirrors(cluster: Cluster) -> None:
    mirrors: dict[tuple[str, str], list[str]] = {}
    for topic in mirror_topics(cluster):
        mirrors.setdefault((topic.mirror, topic.source), []).append(topic.state)
    print_table(
        ("mirror", "source", "mirroring", PAUSED, STOPPED),
        [
            (name, source, *(states.count(each) for each in (MIRRORING, PAUSED, STOPPED)))
            for (name, source), states in sorted(mirrors.items())
        ],
    )


def topics_of(cluster: Cluster, arguments: argparse.Namespace) -> list[MirrorTopic]:
    """Those that the arguments choose. Raises CommandFailed if there are none."""
    found = [topic for topic in mirror_topics(cluster) if topic.mirror == arguments.mirror]
    if not found:
        raise CommandFailed(f"there is no mirror {arguments.mirror}")
    if arguments.topics is None:
        return found
    names = set(arguments.topics.split(","))
    missing = names - {topic.name for topic in found}
    if missing:
        raise CommandFailed(f"mirror {arguments.mirror} has no topic {', '.join(sorted(missing))}")
    return [topic for topic in found if topic.name in names]


def describe_mirror(cluster: Cluster, arguments: argparse.Namespace) -> None:
    """Without an answer of the source, print what is known here, then fail."""
    topics = topics_of(cluster, arguments)
    there: dict[str, MetadataResponseTopic] = {}
    ends: dict[str, dict[int, int]] = {}
    trouble: CommandFailed | None = None
    for source in sorted({topic.source for topic in topics if topic.state != STOPPED}):
        names = [topic.name for topic in topics if topic.source == source and topic.state != STOPPED]
        try:
            with source_of(source, arguments.source_config) as other:
                there |= {topic.name or "": topic for topic in other.metadata(names).topics}
                for name in names:
                    if not there[name].error_code:
                        ends[name] = end_offsets(other, name)
        except CommandFailed as error:
            trouble = error
    rows = []
    for topic in topics:
        (here,) = cluster.metadata([topic.name]).topics
        check(here.error_code, f"topic {topic.name}")
        offsets = end_offsets(cluster, topic.name)
        for partition in sorted(here.partitions, key=lambda each: each.partition_index):
            number = partition.partition_index
            offset, end = offsets.get(number), ends.get(topic.name, {}).get(number)
            lag = None if offset is None or end is None else max(0, end - offset)
            reason = why_it_stands(topic, partition, there.get(topic.name))
            told = ("-" if each is None else each for each in (offset, end, lag))
            rows.append((topic.name, number, topic.state, *told, partition.leader_id, reason or "-"))
    print_table(("topic", "partition", "state", "offset", "source", "lag", "leader", "stands still"), rows)
    if trouble is not None:
        raise trouble


def why_it_stands(
    topic: MirrorTopic, here: MetadataResponsePartition, there: MetadataResponseTopic | None
) -> str:
    """The reasons that both clusters tell. Others are in the log of the node that leads the partition here."""
    reason = ""
    if topic.state != MIRRORING:
        return reason
    if here.leader_id < 0:
        reason = "no leader here"
    elif there is None:
        reason = "the source does not answer this command"
    elif there.error_code:
        reason = f"the source answers {code_of(there.error_code).name}"
    elif uuid_to_text(there.topic_id) != topic.source_id:
        reason = "the topic was made again at the source"
    else:
        known = {each.partition_index: each for each in there.partitions}
        partition = known.get(here.partition_index)
        if partition is None:
            reason = "the source has no such partition"
        elif partition.leader_id < 0:
            reason = "no leader at the source"
        elif partition.leader_epoch >= topic.first_epoch:
            reason = f"the source's leader epoch {partition.leader_epoch} has reached {MIRROR_LEADER_EPOCH}"
    return reason


def copy_offsets(cluster: Cluster, arguments: argparse.Namespace) -> None:
    """Commit here what groups have committed at the source, as brokers do. Groups with members here keep their own offsets, and
    so do stopped topics. An offset whose records are not here yet is left out."""
    topics = [topic for topic in topics_of(cluster, arguments) if topic.state != STOPPED]
    if not topics:
        raise CommandFailed(f"mirror {arguments.mirror} is stopped: its groups go on here")
    ends = {topic.name: end_offsets(cluster, topic.name) for topic in topics}
    rows = []
    for servers in sorted({topic.source for topic in topics}):
        ids = {topic.name: topic.source_id for topic in topics if topic.source == servers}
        with source_of(servers, arguments.source_config) as source:
            found_there = {
                group: {topic.name: topic.partitions for topic in committed_topics(source, group)}
                for group in groups_of(source)
            }
            # After their offsets: those of another topic of that name are of other records.
            names = [
                topic.name or ""
                for topic in source.metadata(list(ids)).topics
                if not topic.error_code and uuid_to_text(topic.topic_id) == ids[topic.name or ""]
            ]
            for group, there in found_there.items():
                for name in names:
                    found = [commit_of(each) for each in there.get(name, ()) if each.committed_offset >= 0]
                    targets = [
                        each
                        for each in found
                        if each.committed_offset <= ends[name].get(each.partition_index, -1)
                    ]
                    if found:
                        left = len(found) - len(targets)
                        rows.append((group, name, *_copied(cluster, group, name, targets), left))
    print_table(("group", "topic", "copied", "refused", "not here yet"), rows)


def _copied(
    cluster: Cluster, group: str, topic: str, targets: list[OffsetCommitRequestPartition]
) -> tuple[int, str]:
    """The number of partitions whose offset is committed here, and why there are none."""
    if targets:
        try:
            commit(cluster, group, topic, targets)
        except CommandFailed as refusal:
            return 0, str(refusal)
    return len(targets), "-"


def groups_of(cluster: Cluster) -> list[str]:
    """Those of the kinds whose offsets brokers follow too."""
    return sorted({each.group_id for each in listed_groups(cluster) if has_offsets(each)})


def change_state(cluster: Cluster, arguments: argparse.Namespace) -> None:
    state = {"pause": PAUSED, "resume": MIRRORING, "stop": STOPPED}[arguments.action]
    topics = topics_of(cluster, arguments)
    if state != STOPPED:
        stopped = [topic.name for topic in topics if topic.state == STOPPED]
        if arguments.topics is not None and stopped:
            raise CommandFailed(
                f"stopped topics have taken over, and follow again only by fail-back: {', '.join(stopped)}"
            )
        topics = [topic for topic in topics if topic.state != STOPPED]
    set_values(cluster, {topic.name: {MIRROR_STATE: state} for topic in topics if topic.state != state})
    for topic in topics:
        print(f"{topic.name} is {state}")


def set_values(cluster: Cluster, changes: Mapping[str, Mapping[str, str]]) -> None:
    """By topic."""
    if not changes:
        return
    resources = [
        AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=topic,
            configs=[
                AlterableConfig(name=name, config_operation=SET, value=value)
                for name, value in values.items()
            ],
        )
        for topic, values in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    for result in cluster.any().call(request, IncrementalAlterConfigsResponse).responses:
        check(result.error_code, f"topic {result.resource_name}", result.error_message)
