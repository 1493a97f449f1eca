"""`kafkacompat migrate`: what the next step of a move between Apache Kafka and kafkacompat is, and what stands in its way.

It changes nothing and keeps nothing: all that it says follows from what the cluster tells at that moment.
"""

from __future__ import annotations

import argparse

from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.diagnosis import Level
from kafkacompat.cli.doctor import show
from kafkacompat.cli.migration import State, check, in_the_way, plan
from kafkacompat.cli.migration_survey import survey
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.reassign import numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A move takes over a running cluster of Apache Kafka in KRaft mode node by node, or gives it back. The steps are: join, "
        "vote, move (the partitions), resign (the votes of the nodes that leave), stop, unregister. docs/how-to/move-from-kafka.md "
        "shows all of them. Exit status: 0 when nothing stands in the way, 1 when something does, 2 for a wrong call."
    )
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    planning = actions.add_parser("plan", help="the steps of the move, which are done, and the next commands")
    checking = actions.add_parser("check", help="what stands in the way of each step")
    add_bootstrap_to(actions)
    for each in (planning, checking):
        each.add_argument(
            "--to",
            type=numbers,
            metavar="1,2,...",
            help="the nodes that stay, brokers and controllers, whether they run yet or not (default: every broker of "
            "kafkacompat)",
        )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    facts = survey(address_of(arguments))
    found = check(facts, arguments.to)
    if arguments.action == "check":
        show(found)
        return int(any(each.level is Level.FAIL for each in found))
    steps = plan(facts, arguments.to)
    print_table(("step", "state", "what"), [(each.name, each.state.value, each.text) for each in steps])
    following = next((each for each in steps if each.state is State.NEXT), None)
    worth_telling = [each for each in found if each.level is not Level.OK]
    if worth_telling:
        print()
        show(worth_telling)
    if following is None:
        print("\nthe move is complete")
        return 0
    obstacles = in_the_way(found, following)
    print(f"\n{'after that' if obstacles else 'next'}:")
    for command in following.commands:
        print(f"$ {command}")
    return int(bool(obstacles))
