"""Where a node's log goes and in which form: the options that `start`, `cluster` and `node` share.

This module knows options. node_log.py knows how entries are written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
DEFAULT_MAX_BYTES = 16 * 1024 * 1024
DEFAULT_BACKUPS = 10
MAX_BYTES_LOWEST = 4096
LOG_FORMAT_VARIABLE = "KAFKACOMPAT_LOG_FORMAT"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The destination of a node's log. path: None for standard error. At most backups + 1 files of about max_bytes
    each are kept."""

    path: str | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    backups: int = DEFAULT_BACKUPS
    format: str = TEXT

    def words(self, path: str) -> Sequence[str]:
        """Return the arguments that make `kafkacompat start` log to this file."""
        return (
            "--log-file",
            path,
            "--log-max-bytes",
            str(self.max_bytes),
            "--log-backups",
            str(self.backups),
            "--log-format",
            self.format,
        )


def add_log_file(parser: argparse.ArgumentParser) -> None:
    """Add all options, for a node of its own."""
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="write the log to this file instead of standard error; it is rotated to FILE.1, FILE.2, ...",
    )
    add_log_rotation(parser)


def add_log_rotation(parser: argparse.ArgumentParser) -> None:
    """Add the options for the nodes of a cluster, whose files have fixed places."""
    parser.add_argument(
        "--log-max-bytes",
        type=_max_bytes,
        default=DEFAULT_MAX_BYTES,
        metavar="BYTES",
        help=f"rotate a log file before it exceeds this size (default {DEFAULT_MAX_BYTES})",
    )
    parser.add_argument(
        "--log-backups",
        type=_backups,
        default=DEFAULT_BACKUPS,
        metavar="N",
        help=f"rotated log files to keep; older ones are deleted (default {DEFAULT_BACKUPS})",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=TEXT,
        help="text: one line per entry; json: one JSON object per line (default text)",
    )


def log_options(arguments: argparse.Namespace) -> LogOptions:
    return LogOptions(
        getattr(arguments, "log_file", None),
        arguments.log_max_bytes,
        arguments.log_backups,
        arguments.log_format,
    )


def log_format(wanted: str | None) -> str:
    """The format that a variable of the environment names. Raises CommandFailed for an unknown one."""
    if wanted and wanted not in FORMATS:
        raise CommandFailed(f"{LOG_FORMAT_VARIABLE} takes {', '.join(FORMATS)}, not {wanted!r}")
    return wanted or TEXT


def _max_bytes(text: str) -> int:
    return _at_least(MAX_BYTES_LOWEST, text)


def _backups(text: str) -> int:
    return _at_least(1, text)


def _at_least(lowest: int, text: str) -> int:
    if not text.isdecimal() or int(text) < lowest:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {lowest}, not {text!r}")
    return int(text)
