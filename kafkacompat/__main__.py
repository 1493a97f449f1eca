"""The command `kafkacompat`: one module a subcommand, imported only when it is called.

Knows the names of the commands and nothing of what they do.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from kafkacompat import __version__

COMMANDS = {
    "start": "start a broker and controller",
    "cluster": "run and manage several nodes on this machine as a cluster",
    "node": "manage the nodes of a cluster on this machine",
    "format": "format data directories, as kafka-storage format does",
    "topics": "manage topics and their settings",
    "reassign": "move partitions between brokers, with a throttle and a progress bar",
    "quorum": "manage the metadata quorum and the brokers registered with it",
    "mirror": "let topics follow those of another cluster, with their offsets, and let them take over",
    "migrate": "plan the move of a running cluster from Apache Kafka or back, and check what stands in its way",
    "doctor": "check a cluster and the machine of a node, and say what to do",
    "features": "show and change the levels of a cluster's features",
    "elect": "elect preferred replicas as leaders, or any live one",
    "produce": "write lines of text to a topic",
    "consume": "print the records of a topic",
    "groups": "manage groups, their offsets and their settings",
    "pipeline": "run the data pipeline on Spark: jobs, generator, collector, demo",
    "console": "serve the web console: results, topics, groups, nodes, records",
    "testserver": "serve a Kafka for tests in any language, with a control API over HTTP on loopback",
    "watch": "show live the requests of nodes that allow it, and why they refuse some",
    "dump": "print the contents of a log segment, index or snapshot file",
    "completion": "print a script that lets a shell complete these commands",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 when it did what was asked, 1 when it could not, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="kafkacompat", description="A Kafka broker in Python.")
    parser.add_argument("--version", action="version", version=f"kafkacompat {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in arguments if not word.startswith("-")), None)
    # The parsers of all commands would take 3 ms. They are only for their list, in help and in errors.
    is_known = named in COMMANDS and arguments[0] == named
    for name, purpose in COMMANDS.items():
        if is_known and name != named:
            continue
        command = commands.add_parser(name, help=purpose, description=purpose.capitalize() + ".")
        if name == named:
            module = importlib.import_module(f"kafkacompat.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(arguments)
    result: int = parsed.run(parsed)
    return result


if __name__ == "__main__":
    sys.exit(main())
