"""The options of `kafkacompat consume` for a member of a share group."""

from __future__ import annotations

import argparse

from kafkacompat.failure import CommandFailed

SHARE_FIELDS = ("topic", "deliveries")
"""Fields of a line, beside those of any record."""
RETRY_PAUSE_S = 1.0


def add_share_options(parser: argparse.ArgumentParser) -> None:
    """Add them. Each has the default None, so that `require_share` sees which were given."""
    means = parser.add_mutually_exclusive_group()
    means.add_argument(
        "--exec",
        metavar="COMMAND",
        help="with --share: run this program for each record, with the value on its standard input. Status 0 accepts "
        "the record, 65 rejects it, 126 and 127 release it and end this command, and any other status or a signal "
        "releases it for another attempt",
    )
    means.add_argument(
        "--by-line",
        action="store_true",
        default=None,
        help="with --share: after each record read a line of standard input: accept, release, reject, or renew for "
        "more time. The end of the input ends the command",
    )
    parser.add_argument(
        "--retries",
        type=natural,
        metavar="N",
        help="with --exec: reject a record that failed after N earlier deliveries. Signals and status 75 do not count "
        "as failures (default: the group's share.delivery.count.limit ends the attempts)",
    )
    parser.add_argument(
        "--retry-pause",
        type=seconds,
        metavar="SECONDS",
        help=f"with --exec: hold a record that failed for this time, then release it (default {RETRY_PAUSE_S:g})",
    )
    parser.add_argument(
        "--exec-timeout",
        type=seconds,
        metavar="SECONDS",
        help="with --exec: end a program that runs longer, with SIGTERM (default: none; the record's lock is renewed "
        "as long as the program runs)",
    )
    parser.add_argument(
        "--prefetch",
        type=positive,
        metavar="N",
        help="with --share: hold up to N records at a time (default 500, and 1 with --exec and --by-line)",
    )


def require_share(arguments: argparse.Namespace) -> None:
    """Raise CommandFailed for anything that only a member of a share group can do."""
    for name in ("exec", "by_line", "retries", "retry_pause", "exec_timeout", "prefetch"):
        if getattr(arguments, name) is not None:
            raise CommandFailed(f"--{name.replace('_', '-')} needs --share")
    if len(arguments.topic) > 1:
        raise CommandFailed("several topics need --share")


def check_share(arguments: argparse.Namespace) -> None:
    """Raise CommandFailed for options that do not go together with --share."""
    if arguments.partition or arguments.offset is not None or arguments.since is not None:
        raise CommandFailed(
            "the share group decides which records it delivers; --share excludes --partition, --offset and --since"
        )
    if arguments.isolation_level != "read_uncommitted":
        raise CommandFailed(
            "the setting share.isolation.level of the share group decides; leave out --isolation-level"
        )
    if arguments.exec is None:
        for name in ("retries", "retry_pause", "exec_timeout"):
            if getattr(arguments, name) is not None:
                raise CommandFailed(f"--{name.replace('_', '-')} needs --exec")
    if arguments.exec is not None and arguments.print != "value":
        raise CommandFailed("with --exec nothing is printed; leave out --print")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return int(text)


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a number from 0 on, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"a number of seconds, not {text!r}")
    return value
