"""`kafkacompat start`: settings in, a serving broker out; one line when it serves, one when it cannot.

It knows settings, where a node's log lines go, and the server; what a broker does it does not know.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

from kafkacompat.cli.failure import CommandFailed
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import add_override, load_settings, warn_of_settings
from kafkacompat.server.signals import StopSignals

LOG_LEVEL_VARIABLE = "KAFKACOMPAT_LOG"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "properties",
        nargs="?",
        metavar="SERVER_PROPERTIES",
        help="Kafka's settings; without a file: node 1, both roles, 127.0.0.1:9092, ./kafkacompat-data",
    )
    add_override(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help=f"log more than warnings; {LOG_LEVEL_VARIABLE}=DEBUG|INFO|WARNING|ERROR in the environment does so too",
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    signals = StopSignals()
    signals.listen()
    configure_logging(log_level(arguments.verbose, os.environ.get(LOG_LEVEL_VARIABLE)))
    config = load_settings(arguments.properties, arguments.override)
    warn_of_settings(config)

    from kafkacompat.server.process import StartRefused, serve_until_stopped

    try:
        is_clean = serve_until_stopped(
            config, format_if_empty=not arguments.properties, announce=announce, signals=signals
        )
    except StartRefused as error:
        raise CommandFailed(str(error)) from error
    return 0 if is_clean else 1


def log_level(verbose: bool, wanted: str | None) -> str:
    """A name of `logging`; CommandFailed for another."""
    if not wanted:
        return "INFO" if verbose else "WARNING"
    level = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(wanted.upper(), wanted.upper())
    if level not in LOG_LEVELS:
        raise CommandFailed(f"{LOG_LEVEL_VARIABLE} takes {', '.join(LOG_LEVELS)}, not {wanted!r}")
    return level


def configure_logging(level: str) -> None:
    """The node's log: one line an entry on standard error, time in UTC, level, text, logger."""
    formatter = logging.Formatter("[%(asctime)s] %(levelname)s %(message)s (%(name)s)")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def announce(line: str) -> None:
    """A node that nobody can read of serves all the same: its standard output may be a file on a full disk, or a pipe whose reader
    went."""
    try:
        print(line, flush=True)
    except OSError as error:
        logging.getLogger(__name__).warning("standard output takes nothing: %s", error)
        # The end of the process would try again to write what is still buffered, and make an error of it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
