"""`kafkacompat reassign`: partitions to other brokers, by a balanced plan of its own or by a file, to the end or cancelled.

It knows options and words; plans are made in plan.py and carried out in moves.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from kafkacompat.cli import moves
from kafkacompat.cli.client import Cluster, add_bootstrap
from kafkacompat.cli.elect import PREFERRED, elect
from kafkacompat.cli.failure import CommandFailed
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
        "--cancel", action="store_true", help="take back what is under way, all of it or --topics"
    )
    what.add_argument(
        "--watch", action="store_true", help="watch what is under way to its end, then remove throttles"
    )
    what.add_argument("--list", action="store_true", help="show what is under way, and do nothing")
    what.add_argument("--dry-run", action="store_true", help="show the plan, also as JSON, and do nothing")
    parser.add_argument("--topics", type=names, metavar="A,B,...", help="which topics (default: all)")
    parser.add_argument(
        "--brokers", type=numbers, metavar="1,2,...", help="where to (default: every broker that is alive)"
    )
    parser.add_argument(
        "--replication-factor",
        type=positive,
        metavar="N",
        help="make it so many replicas (default: as many as now)",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="the plan in the JSON form of kafka-reassign-partitions, instead of one made here",
    )
    parser.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES_PER_S",
        help="limit of what each broker sends and receives for these moves; with --watch: another limit from now on",
    )
    parser.add_argument(
        "--rollback",
        metavar="FILE",
        help="write the plan that takes it all back to this file before anything moves",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="begin the moves and end; a throttle stays then"
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.plan and (arguments.brokers or arguments.topics or arguments.replication_factor):
        raise CommandFailed(
            "--plan says everything; it goes with none of --topics, --brokers, --replication-factor"
        )
    if arguments.list:
        return show_ongoing(arguments)
    if arguments.cancel:
        return cancel(arguments)
    if arguments.watch:
        return watch(arguments)
    return reassign(arguments)


def reassign(arguments: argparse.Namespace) -> int:
    with Cluster(arguments.bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
        if moves.ongoing_of(cluster.any()) and not arguments.dry_run:
            raise CommandFailed("a reassignment is under way; --watch attends to it, --cancel takes it back")
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
        Path(arguments.rollback).write_text(
            plan_to_json({where: current[where] for where in changes}) + "\n", "utf-8"
        )
    if arguments.no_wait:
        with Cluster(arguments.bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
            if arguments.throttle is not None:
                moves.throttle(cluster, current, changes, arguments.throttle)
            moves.begin(cluster.any(), changes)
        print("the moves have begun; `kafkacompat reassign --watch` attends to them")
        return 0
    moves.execute(arguments.bootstrap, current, changes, arguments.throttle)
    finish(arguments.bootstrap, changes)
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


def finish(bootstrap: str, changes: Plan) -> None:
    elected, _ = moves.patiently(bootstrap, lambda cluster: elect(cluster.any(), PREFERRED, sorted(changes)))
    print(f"{len(changes)} partitions are where they should be, {len(elected)} of them have a new leader")


def show_ongoing(arguments: argparse.Namespace) -> int:
    with Cluster(arguments.bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
        found = of_topics(moves.ongoing_of(cluster.any()), arguments.topics)
    if not found:
        print("nothing is under way")
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
    with Cluster(arguments.bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
        found = of_topics(moves.ongoing_of(cluster.any()), arguments.topics)
        if arguments.plan:
            named = plan_from_json(read(arguments.plan))
            found = {where: each for where, each in found.items() if where in named}
        if found:
            moves.cancel(cluster.any(), found)
    for topic, number in sorted(found):
        print(f"{topic}-{number} stays where it was")
    if not found:
        print("nothing is under way")
    clear_throttles(arguments.bootstrap)
    return 0


def watch(arguments: argparse.Namespace) -> int:
    with Cluster(arguments.bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
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
        moves.attend(arguments.bootstrap, plan, wanted, ())
        finish(arguments.bootstrap, plan)
    else:
        print("nothing is under way")
    clear_throttles(arguments.bootstrap)
    return 0


def clear_throttles(bootstrap: str) -> None:
    """Of every broker and topic, unless something else is still under way."""

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
