"""`kafkacompat elect`: elect the preferred leaders of partitions, or any live replica if no replica is in sync.

It is an ordinary client. The controller decides which replica may lead. KIP-460.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable

from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.cli.output import failing_clearly
from kafkacompat.client.blocking import Cluster, Remote
from kafkacompat.client.brokers import check
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkacompat.wire.messages.elect_leaders_response import ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1
TIMEOUT_MS = 30_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "partition",
        nargs="*",
        metavar="TOPIC[:PARTITION]",
        help="only these partitions (default: all); required with --unclean",
    )
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="where no in-sync replica is left, elect another one: acknowledged records are lost",
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.unclean and not arguments.partition:
        raise CommandFailed("--unclean loses records, so it requires the partitions")
    with Cluster(address_of(arguments)) as cluster:
        chosen = named(cluster, arguments.partition) if arguments.partition else None
        kind = UNCLEAN if arguments.unclean else PREFERRED
        elected, failures = elect(cluster.any(), kind, chosen)
    for topic, number in elected:
        print(f"{topic}-{number} has a new leader")
    if not elected and not failures:
        print("no partition needed another leader")
    for (topic, number), (code, message) in failures.items():
        check(code, f"{topic}-{number}", message)
    return 0


def named(cluster: Cluster, texts: list[str]) -> list[tuple[str, int]]:
    chosen = []
    for text in texts:
        topic, colon, number = text.partition(":")
        try:
            only = parse_int(number) if colon else None
        except ValueError:
            raise CommandFailed(f"a partition is TOPIC:NUMBER, not {text!r}") from None
        (found,) = cluster.metadata([topic]).topics
        check(found.error_code, f"topic {topic}")
        numbers = [only] if only is not None else sorted(each.partition_index for each in found.partitions)
        chosen += [(topic, each) for each in numbers]
    return chosen


def elect(
    remote: Remote, kind: int, partitions: Iterable[tuple[str, int]] | None
) -> tuple[list[tuple[str, int]], dict[tuple[str, int], tuple[int, str | None]]]:
    """Elect leaders of the partitions, of all for None.

    Return the partitions with a new leader, and the error code and message of each other partition.
    """
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions or ():
        topics[topic].append(number)
    asked = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()]
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=None if partitions is None else asked, timeout_ms=TIMEOUT_MS
    )
    answer = remote.call(request, ElectLeadersResponse)
    check(answer.error_code, "election")
    elected, failures = [], {}
    for result in answer.replica_election_results:
        for each in result.partition_result:
            where = (result.topic, each.partition_id)
            if each.error_code == ErrorCode.NONE:
                elected.append(where)
            elif each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                failures[where] = (each.error_code, each.error_message)
    return sorted(elected), failures
