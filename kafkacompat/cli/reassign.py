"""`kafkacompat reassign`: move partitions to other brokers by a balanced plan or a file. Watch or cancel the moves.

This module knows options and texts. plan.py makes plans, moves.py carries them out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from kafkacompat.cli import moves
from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.cli.elect import PREFERRED, elect
from kafkacompat.cli.output import failing_clearly, megabytes, print_table
from kafkacompat.cli.plan import (
    Assignment,
    Plan,
    balanced_plan,
    changes_of,
    copies_of,
    plan_from_json,
    plan_to_json,
)
from kafkacompat.cli.view import brokers_of
from kafkacompat.client.blocking import Cluster
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress

ROWS_SHOWN_MAX = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without --plan, a plan is made that spreads replicas and leaders evenly over --brokers, over racks where all of them "
        "have one, and moves as little as that takes. It is shown, carried out, and watched to its end; then preferred "
        "leaders are elected. Exit status: 0 when everything is where it should be, 1 when not, 2 for a wrong call, 130 when "
        "interrupted: the moves go on then."
    )
    add_bootstrap(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--cancel", action="store_true", help="cancel ongoing reassignments: all, or those of --topics"
    )
    what.add_argument(
        "--watch",
        action="store_true",
        help="wait until ongoing reassignments complete, then remove throttles",
    )
    what.add_argument("--list", action="store_true", help="show ongoing reassignments and change nothing")
    what.add_argument(
        "--dry-run", action="store_true", help="show the plan, also as JSON, and change nothing"
    )
    parser.add_argument("--topics", type=names, metavar="A,B,...", help="which topics (default: all)")
    parser.add_argument(
        "--brokers", type=numbers, metavar="1,2,...", help="target brokers (default: every live broker)"
    )
    parser.add_argument(
        "--replication-factor",
        type=positive,
        metavar="N",
        help="the new number of replicas (default: unchanged)",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="use this plan, in the JSON format of kafka-reassign-partitions",
    )
    parser.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES_PER_S",
        help="limit per broker for the traffic of these moves; with --watch: a new limit",
    )
    parser.add_argument(
        "--rollback",
        metavar="FILE",
        help="first write a plan that undoes the moves to this file",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="start the moves and exit; a throttle stays in place"
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.plan and (arguments.brokers or arguments.topics or arguments.replication_factor):
        raise CommandFailed("--plan cannot be combined with --topics, --brokers or --replication-factor")
    if arguments.list:
        return show_ongoing(arguments)
    if arguments.cancel:
        return cancel(arguments)
    if arguments.watch:
        return watch(arguments)
    return reassign(arguments)


def reassign(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments), moves.ANSWER_TIMEOUT_S) as cluster:
        if moves.ongoing_of(cluster.any()) and not arguments.dry_run:
            raise CommandFailed(
                "a reassignment is in progress; use --watch to wait for it or --cancel to cancel it"
            )
        current: Assignment
        if arguments.plan:
            plan = plan_from_json(read(arguments.plan))
            current = moves.assignment_of(cluster.any(), sorted({topic for topic, _ in plan}))
        else:
            current, plan = make_plan(cluster, arguments)
        changes = changes_of(current, plan)
        sizes = moves.bytes_to_copy(cluster, current, changes)
    show(current, changes, sum(sizes.values()))
    if arguments.dry_run:
        print(plan_to_json(plan))
        return 0
    if not changes:
        return 0
    if arguments.rollback:
        write(arguments.rollback, plan_to_json({where: current[where] for where in changes}) + "\n")
    if arguments.no_wait:
        with Cluster(address_of(arguments), moves.ANSWER_TIMEOUT_S) as cluster:
            if arguments.throttle is not None:
                moves.throttle(cluster, current, changes, arguments.throttle)
            moves.begin(cluster.any(), changes)
        print("the moves have started; `kafkacompat reassign --watch` waits for them and removes throttles")
        return 0
    moves.execute(address_of(arguments), current, changes, arguments.throttle)
    finish(address_of(arguments), changes)
    return 0


def make_plan(cluster: Cluster, arguments: argparse.Namespace) -> tuple[Assignment, Plan]:
    known = brokers_of(cluster.any())[1]
    wanted = arguments.brokers or [each.node_id for each in known.values() if not each.is_fenced]
    for each in wanted:
        if each not in known:
            raise CommandFailed(f"there is no broker {each}; there are {', '.join(map(str, sorted(known)))}")
        if known[each].is_fenced:
            raise CommandFailed(f"broker {each} is fenced")
    current = moves.assignment_of(cluster.any(), arguments.topics)
    racks = {each.node_id: each.rack for each in known.values()}
    return current, balanced_plan(current, wanted, racks, arguments.replication_factor)


def show(current: Assignment, changes: Plan, size_bytes: int) -> None:
    if not changes:
        print("nothing to move")
        return
    rows = [
        (f"{topic}-{number}", ids(current[topic, number]), ids(replicas))
        for (topic, number), replicas in sorted(changes.items())
    ]
    print_table(("partition", "replicas", "new replicas"), rows[:ROWS_SHOWN_MAX])
    if len(rows) > ROWS_SHOWN_MAX:
        print(f"... and {len(rows) - ROWS_SHOWN_MAX} more")
    copies = sum(map(len, copies_of(current, changes).values()))
    print(f"{len(changes)} partitions change, {copies} replicas are copied, {megabytes(size_bytes)}")


def finish(bootstrap: ClusterAddress, changes: Plan) -> None:
    elected, _ = moves.patiently(bootstrap, lambda cluster: elect(cluster.any(), PREFERRED, sorted(changes)))
    print(f"{len(changes)} partitions moved, {len(elected)} of them have a new leader")


def show_ongoing(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments), moves.ANSWER_TIMEOUT_S) as cluster:
        found = of_topics(moves.ongoing_of(cluster.any()), arguments.topics)
    if not found:
        print("no reassignment is in progress")
    else:
        print_table(
            ("partition", "replicas", "adding", "removing"),
            [
                (f"{topic}-{number}", ids(each.replicas), ids(each.adding), ids(each.removing))
                for (topic, number), each in sorted(found.items())
            ],
        )
    return 0


def cancel(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments), moves.ANSWER_TIMEOUT_S) as cluster:
        found = of_topics(moves.ongoing_of(cluster.any()), arguments.topics)
        if arguments.plan:
            named = plan_from_json(read(arguments.plan))
            found = {where: each for where, each in found.items() if where in named}
        if found:
            moves.cancel(cluster.any(), found)
    for topic, number in sorted(found):
        print(f"the move of {topic}-{number} was cancelled")
    if not found:
        print("no reassignment is in progress")
    clear_throttles(address_of(arguments))
    return 0


def watch(arguments: argparse.Namespace) -> int:
    with Cluster(address_of(arguments), moves.ANSWER_TIMEOUT_S) as cluster:
        found = of_topics(moves.ongoing_of(cluster.any()), arguments.topics)
        plan = {
            where: tuple(node for node in each.replicas if node not in each.removing)
            for where, each in found.items()
        }
        old = {
            where: tuple(node for node in each.replicas if node not in each.adding)
            for where, each in found.items()
        }
        wanted = moves.bytes_to_copy(cluster, old, plan)
        if arguments.throttle is not None:
            moves.throttle(cluster, old, plan, arguments.throttle)
    if found:
        moves.attend(address_of(arguments), plan, wanted, ())
        finish(address_of(arguments), plan)
    else:
        print("no reassignment is in progress")
    clear_throttles(address_of(arguments))
    return 0


def clear_throttles(bootstrap: ClusterAddress) -> None:
    """Remove the throttles of all brokers and topics, unless another reassignment is in progress."""

    def clear(cluster: Cluster) -> tuple[list[str], list[int]]:
        if moves.ongoing_of(cluster.any()):
            return [], []
        topics = moves.throttled_topics(cluster.any())
        if not topics:
            return [], []
        return topics, moves.remove_throttles(cluster, brokers_of(cluster.any())[1], topics)

    topics, keeping = moves.patiently(bootstrap, clear)
    if topics:
        print(f"removed the throttle of {', '.join(topics)}")
    moves.warn_of_throttles(keeping)


def of_topics(
    found: dict[tuple[str, int], moves.Ongoing], topics: list[str] | None
) -> dict[tuple[str, int], moves.Ongoing]:
    return {where: each for where, each in found.items() if topics is None or where[0] in topics}


def read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read the plan {path}: {error}") from error


def write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write the plan {path}: {error.strerror}") from error


def ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[int]:
    return [int(part) for part in names(text)]


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value
