"""`kafkacompat doctor`: check a cluster, and the machine of one of its nodes, and say what to do."""

from __future__ import annotations

import argparse
import json
import sys

from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.cli.diagnosis import REFUSED, Finding, Level, diagnose
from kafkacompat.cli.examination import examine_cluster, examine_machine
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.settings import load_settings
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.failure import CommandFailed

AWAY = "start a broker, or name one that runs with --bootstrap; on a secured listener --command-config is needed too"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--config",
        metavar="SERVER_PROPERTIES",
        help="also check the disks and limits of this machine for the node with these settings",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per check")


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    """Exit status 1 if a check fails. Warnings do not count."""
    local = None if arguments.config is None else examine_machine(load_settings(arguments.config, []))
    found: list[Finding] = []
    address = address_of(arguments)
    try:
        cluster = examine_cluster(address)
    except CommandFailed as failure:
        cluster = None
        action = AWAY if isinstance(failure, BrokerAway) else REFUSED
        found.append(Finding("brokers", Level.FAIL, str(failure), action))
    found += diagnose(cluster, local)
    if arguments.json:
        for each in found:
            row = {"check": each.check, "result": each.level.value, "text": each.text, "action": each.action}
            print(json.dumps(row))
    else:
        show(found)
    return int(any(each.level is Level.FAIL for each in found))


def show(found: list[Finding]) -> None:
    """Print a table, and under it a line for each thing to do."""
    print_table(
        ("result", "check", "what was found"), [(each.level.value, each.check, each.text) for each in found]
    )
    actions = list(dict.fromkeys(each.action for each in found if each.action))
    if actions:
        print("\nwhat to do:")
    for action in actions:
        print(f"- {action}")
    sys.stdout.flush()
