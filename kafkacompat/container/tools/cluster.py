"""kafka-broker-api-versions, kafka-cluster, kafka-get-offsets, kafka-storage and kafka-server-start."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Mapping

from kafkacompat.cli import format as format_command
from kafkacompat.cli import start
from kafkacompat.cli.reader import EARLIEST, LATEST, Reader
from kafkacompat.cli.view import Broker, brokers_of
from kafkacompat.client.blocking import API_TIMEOUT_S, Backoff, Cluster, Connection
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.container.tools.options import Options, address_of, topic_pattern
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

TIMEOUT_S = 30.0
SPECIAL_TIMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}


def api_versions_options() -> Options:
    parser = Options("kafka-broker-api-versions", "Print which versions of each API the brokers serve.")
    parser.add_server("command-config")
    return parser


def run_api_versions(arguments: argparse.Namespace) -> int:
    address = address_of(arguments)
    with Cluster(address) as cluster:
        _, brokers = brokers_of(cluster.any())
    for node_id in sorted(brokers):
        broker = brokers[node_id]
        if broker.is_fenced:
            continue
        rack = broker.rack if broker.rack is not None else "null"
        where = f"{broker.host}:{broker.port} (id: {node_id} rack: {rack} isFenced: false)"
        try:
            answer = versions_of(broker, address)
        except BrokerAway as away:
            # A dead broker is not fenced until its session expires. The others are well.
            print(f"{where} -> ERROR: {away}")
            continue
        print(f"{where} -> (")
        lines = {
            int(api.key): f"{api.name}({int(api.key)}): UNSUPPORTED" for api in APIS.values() if api.on_broker
        }
        lines |= {each.api_key: told(each) for each in answer.api_keys}
        print(",\n".join(f"\t{line}" for _, line in sorted(lines.items())))
        print(")")
    return 0


def versions_of(broker: Broker, address: ClusterAddress) -> ApiVersionsResponse:
    connection = Connection(broker.host, broker.port, TIMEOUT_S, address.security())
    try:
        return connection.call(
            ApiVersionsRequest(client_software_name="kafkacompat", client_software_version="1"),
            ApiVersionsResponse,
        )
    finally:
        connection.close()


def told(served: ApiVersion) -> str:
    """One API as Kafka's tool prints it, with the highest version that both know."""
    key, lowest, highest = served.api_key, served.min_version, served.max_version
    versions = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    if key not in APIS:
        return f"UNKNOWN({key}): {versions}"
    api = APIS[key]
    if api.latest < lowest:
        use = "unusable: node too new"
    elif highest < api.oldest:
        use = "unusable: node too old"
    else:
        use = f"usable: {min(highest, api.latest)}"
    return f"{api.name}({key}): {versions} [{use}]"


def cluster_options() -> Options:
    parser = Options("kafka-cluster", "Print the id of a cluster.")
    parser.add_argument("action", choices=("cluster-id",))
    parser.add_server("config", "command-config")
    return parser


def run_cluster(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments)) as cluster:
        print(f"Cluster ID: {brokers_of(cluster.any())[0]}")
    return 0


def get_offsets_options() -> Options:
    parser = Options("kafka-get-offsets", "Print the offsets of a topic's partitions.")
    parser.add_server("command-config")
    parser.add_argument("--topic", help="a name or a regular expression (default: all topics)")
    parser.add_argument("--partitions", help="numbers, separated by commas")
    parser.add_argument("--time", default="latest", help=f"{', '.join(SPECIAL_TIMES)}, or ms since 1970")
    return parser


def run_get_offsets(arguments: argparse.Namespace) -> int:
    time = SPECIAL_TIMES.get(arguments.time)
    try:
        time = parse_int(arguments.time, 63) if time is None else time
    except ValueError:
        raise CommandFailed(
            f"Malformed time argument {arguments.time}; it is {', '.join(SPECIAL_TIMES)}, or a number of ms"
        ) from None
    only = None
    if arguments.partitions:
        try:
            only = {parse_int(each) for each in arguments.partitions.split(",")}
        except ValueError:
            raise CommandFailed(
                f"--partitions takes numbers, separated by commas, not {arguments.partitions!r}"
            ) from None
    pattern = topic_pattern(".*" if arguments.topic is None else arguments.topic)
    found: dict[tuple[str, int], int] = {}
    with Cluster(address_of(arguments)) as cluster:
        leaders = leaders_of(cluster, pattern, only)
        if not leaders:
            raise CommandFailed("Could not match any topic-partitions with the specified filters")
        for (name, leader), numbers in leaders.items():
            try:
                if leader < 0:
                    raise CommandFailed("it has no leader")
                offsets = Reader(cluster, name, numbers).offsets(time)
                found.update({(name, number): offset for number, offset in offsets.items()})
            except CommandFailed as failure:
                # It hides none of the others.
                for number in numbers:
                    skipped = f"Skip getting offsets for topic-partition {name}-{number}"
                    print(f"{skipped} due to error: {failure}", file=sys.stderr)
    print("".join(offset_lines(found)), end="")
    return 0


def leaders_of(
    cluster: Cluster, pattern: re.Pattern[str], only: Collection[int] | None
) -> dict[tuple[str, int], list[int]]:
    """The partitions that are asked for, by topic and leader. Leaders that are being elected are waited for, once for all."""
    backoff = Backoff(API_TIMEOUT_S)
    while True:
        found: dict[tuple[str, int], list[int]] = {}
        for topic in cluster.metadata(None).topics:
            name = topic.name or ""
            for each in topic.partitions if pattern.fullmatch(name) else ():
                if only is None or each.partition_index in only:
                    found.setdefault((name, each.leader_id), []).append(each.partition_index)
        if backoff.is_over or all(leader >= 0 for _, leader in found):
            return found
        backoff.wait()


def offset_lines(offsets: Mapping[tuple[str, int], int]) -> list[str]:
    """One line for each partition that has an offset, in the order of topic-partition as text: 10 comes before 2."""
    in_order = sorted(offsets, key=lambda each: f"{each[0]}-{each[1]}")
    return [
        f"{name}:{number}:{offsets[name, number]}\n"
        for name, number in in_order
        if offsets[name, number] != -1
    ]


def storage_options() -> Options:
    """`format` has the options of `kafkacompat format`, which are those of kafka-storage."""
    parser = Options("kafka-storage", "Format data directories, or print a random id.")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=argparse.ArgumentParser)
    actions.add_parser("random-uuid")
    format_command.add_arguments(actions.add_parser("format"))
    return parser


def run_storage(arguments: argparse.Namespace) -> int:
    if arguments.action == "random-uuid":
        arguments = argparse.Namespace(random_id=True)
    elif (arguments.config or arguments.properties) is None or arguments.cluster_id is None:
        raise CommandFailed("format needs --config and --cluster-id")
    return format_command.run(arguments)


def server_options() -> Options:
    parser = Options("kafka-server-start", "Start a node with a settings file.")
    parser.add_argument("properties", metavar="SERVER_PROPERTIES")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    return parser


def run_server(arguments: argparse.Namespace) -> int:
    words = [arguments.properties, *(f"--override={each}" for each in arguments.override)]
    parser = argparse.ArgumentParser(prog="kafka-server-start.sh")
    start.add_arguments(parser)
    sys.stdout.flush()
    return start.run(parser.parse_args(words))
