"""`kafkacompat start`: run a broker. It prints one line when it serves, or one line when it cannot start.

This module knows settings, the destination of log lines, and the server, not what a broker does.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkacompat.cli.log_format import JsonFormatter, TextFormatter
from kafkacompat.cli.log_options import JSON, LogOptions, add_log_file, log_options
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.service_manager import notify_ready
from kafkacompat.cli.settings import (
    add_brokers,
    add_override,
    load_settings,
    overrides_of,
    runs_several,
    warn_of_settings,
)
from kafkacompat.config import ServerConfig
from kafkacompat.failure import CommandFailed
from kafkacompat.server.process_wide import StopSignals, collect_seldom, while_importing

LOG_LEVEL_VARIABLE = "KAFKACOMPAT_LOG"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "properties",
        nargs="?",
        metavar="SERVER_PROPERTIES",
        help="Kafka's settings; without a file: node 1, both roles, 127.0.0.1:9092, ./kafkacompat-data",
    )
    add_override(parser)
    add_brokers(parser)
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help=f"log more than warnings; {LOG_LEVEL_VARIABLE}=DEBUG|INFO|WARNING|ERROR in the environment does so too",
    )
    add_log_file(parser)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    collect_seldom()
    signals = StopSignals()
    signals.listen()
    level = log_level(arguments.verbose, os.environ.get(LOG_LEVEL_VARIABLE))
    with node_logging(level, log_options(arguments)) as know:
        overrides = overrides_of(arguments)
        config = load_settings(arguments.properties, overrides)
        warn_of_settings(config, logger.warning)

        def serve_one(config: ServerConfig) -> int:
            know(config.node_id)
            return serve(config, signals, print_line, format_if_empty=not arguments.properties)

        if not runs_several(config):
            return serve_one(config)
        from kafkacompat.cli.supervisor import run_brokers

        return run_brokers(
            arguments.properties,
            overrides,
            signals,
            print_line,
            serve_one,
            format_if_empty=not arguments.properties,
        )


def serve(
    config: ServerConfig,
    signals: StopSignals,
    tell_ready: Callable[[str], None],
    *,
    format_if_empty: bool,
    tell_metrics: Callable[[int], None] | None = None,
) -> int:
    """Run the node until a signal stops it, and return the exit status. `tell_ready` gets the line when it serves, of
    which the service manager hears too, and `tell_metrics` the port of its metrics."""
    with while_importing():
        from kafkacompat.server.process import StartRefused, serve_until_stopped

    def on_ready(line: str) -> None:
        tell_ready(line)
        notify_ready(line)

    try:
        is_clean = serve_until_stopped(
            config,
            format_if_empty=format_if_empty,
            tell_ready=on_ready,
            signals=signals,
            tell_metrics=tell_metrics,
        )
    except StartRefused as error:
        raise CommandFailed(str(error)) from error
    return 0 if is_clean else 1


def log_level(verbose: bool, wanted: str | None) -> str:
    """Return the name of a `logging` level. Raises CommandFailed for an unknown one."""
    if not wanted:
        return "INFO" if verbose else "WARNING"
    level = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(wanted.upper(), wanted.upper())
    if level not in LOG_LEVELS:
        raise CommandFailed(f"{LOG_LEVEL_VARIABLE} takes {', '.join(LOG_LEVELS)}, not {wanted!r}")
    return level


def configure_logging(level: str, formatter: logging.Formatter | None = None) -> None:
    """Configure the log of the process: on standard error, as lines of text unless there is a formatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Warnings of Python's libraries are entries too, not lines of their own.
    logging.captureWarnings(True)


@contextmanager
def node_logging(level: str, options: LogOptions) -> Iterator[Callable[[int], None]]:
    """Configure the node's log for this block, and yield a function that takes the node's id once it is known.

    What ends the block is logged too, so that a file, or JSON lines on standard error, tell it. Raises CommandFailed if
    the file cannot be opened.
    """
    formatter = (
        JsonFormatter()
        if options.format == JSON
        else TextFormatter(is_brief=_is_for_a_glance(level, options))
    )

    def know(node_id: int) -> None:
        if isinstance(formatter, JsonFormatter):
            formatter.node_id = node_id

    with _destination(level, options, formatter):
        try:
            yield know
        except Exception as error:
            if options.path is None and options.format != JSON:
                raise
            known = isinstance(error, CommandFailed)
            text = "the node does not start: %s" if known else "the node ends by a mistake in the program: %r"
            logger.critical(text, error, exc_info=None if known else error)
            if options.path is None:
                # Whoever reads JSON lines gets no others.
                sys.exit(1)
            raise


def _is_for_a_glance(level: str, options: LogOptions) -> bool:
    """Whether warnings go to a terminal at which nobody has asked for more."""
    return options.path is None and sys.stderr.isatty() and level not in ("DEBUG", "INFO")


@contextmanager
def _destination(level: str, options: LogOptions, formatter: logging.Formatter) -> Iterator[None]:
    configure_logging(level, formatter)
    if options.path is None:
        yield
        return
    from kafkacompat.cli.node_log import NodeLog

    try:
        log = NodeLog(options.path, options.max_bytes, options.backups, formatter)
    except OSError as error:
        raise CommandFailed(f"--log-file {options.path}: {error.strerror}") from error
    logging.getLogger().handlers[:] = [log.handler]
    log.start()
    try:
        yield
    finally:
        log.close()


def print_line(line: str) -> None:
    """Print the line. If that fails, the node serves all the same: standard output may be a file on a full disk, or a
    pipe without a reader."""
    try:
        print(line, flush=True)
    except OSError as error:
        logger.warning("standard output cannot be written: %s", error)
        # Otherwise the interpreter would try to flush the buffer at exit and report an error.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
