"""`kafkacompat pipeline run`: the words of the command line, and what they start."""

from __future__ import annotations

import argparse

from kafkacompat.pipeline.topics import DEFAULT_BOOTSTRAP, INPUTS, OUTPUTS, create_missing, plans

ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job and where it runs."""
    parser.add_argument("job", choices=[*INPUTS, ALL], metavar="JOB", help=f"one of {', '.join(INPUTS)}, all")
    parser.add_argument("--bootstrap", default=DEFAULT_BOOTSTRAP, metavar="HOST:PORT", help="the broker")


def run(arguments: argparse.Namespace) -> int:
    """Create the topics of the jobs."""
    jobs = list(INPUTS) if arguments.job == ALL else [arguments.job]
    names = [name for job in jobs for name in (*INPUTS[job], *OUTPUTS[job])]
    create_missing(arguments.bootstrap, plans(names))
    return 0
