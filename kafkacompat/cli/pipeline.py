"""`kafkacompat pipeline`: the data pipeline on Spark. Each action is a module that is imported only when it is called.

This module knows only the names of the actions. The pipeline is a client of the broker, in a separate package.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from kafkacompat.pipeline.failure import PipelineFailed

ACTIONS = {
    "run": (
        "kafkacompat.pipeline.run_command",
        "run the jobs that turn events into tables and result topics",
    ),
    "declarative": (
        "kafkacompat.pipeline.declarative_command",
        "run a Spark Declarative Pipeline, with its lag in consumer groups",
    ),
    "demo": ("kafkacompat.pipeline.demo_command", "start a broker, traffic, all jobs and the web console"),
    "maintain": (
        "kafkacompat.pipeline.maintain_command",
        "merge small files of the tables, and remove rows of old dates",
    ),
    "backfill": (
        "kafkacompat.pipeline.backfill_command",
        "compute dates of the tables again from the topics, with what was late",
    ),
    "replay": ("kafkacompat.pipeline.replay_command", "write rejected records again to their topics"),
    "generate": ("kafkacompat.pipeline.generate_command", "write realistic events to the topics"),
    "try": ("kafkacompat.pipeline.try_command", "show how the lines of a log file are read in a format"),
    "collect": ("kafkacompat.pipeline.collect_command", "ship the lines of log files to logs.raw"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and all arguments after it."""
    width = max(map(len, ACTIONS))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "actions:\n" + "\n".join(
        f"  {name:{width}}  {purpose}" for name, (_, purpose) in ACTIONS.items()
    )
    parser.add_argument("action", choices=list(ACTIONS), metavar="ACTION", help="one of those below")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="ACTION --help tells")


def run(arguments: argparse.Namespace) -> int:
    """Parse the remaining arguments with the action's module and run it. A failure is one line and status 1."""
    module_name, purpose = ACTIONS[arguments.action]
    module = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(
        prog=f"kafkacompat pipeline {arguments.action}", description=purpose.capitalize() + "."
    )
    module.add_arguments(parser)
    parsed = parser.parse_args(arguments.rest)
    try:
        status: int = module.run(parsed)
    except PipelineFailed as failure:
        print(f"kafkacompat: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    return status
