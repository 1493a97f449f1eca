"""`kafkacompat pipeline collect`: the command line, the signals, and the line with rate and lag."""

from __future__ import annotations

import argparse
import re
import resource
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

from kafkacompat.expressions import ExpressionRefused, compiled
from kafkacompat.pipeline.argument_types import positive
from kafkacompat.pipeline.collector.disk import MAX_FILES, MAX_HANDLES, Disk
from kafkacompat.pipeline.collector.journal import PREFIX as JOURNAL
from kafkacompat.pipeline.collector.journal import Journal
from kafkacompat.pipeline.collector.lines import Begins
from kafkacompat.pipeline.collector.running import Collector, Figures
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.collector.standard_input import StandardInput
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.options import add_bootstrap, address_of
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import (
    CUT_HEADER,
    DEFAULT_TIMEOUT_S,
    FIELDS_HEADER,
    FILE_HEADER,
    LOGS_RAW,
    POSITION_HEADER,
    SOURCE_HEADER,
    create_missing,
    plans,
)
from kafkacompat.pipeline.user_data import user_data
from kafkacompat.security.cluster_address import ClusterAddress

TELL_INTERVAL_S: Final = 5.0
TOPICS_AGAIN_TIMEOUT_S: Final = 3.0
"""Timeout for requests to the broker while files are followed. No file is read during such a request."""

STDIN: Final = "-"
FIELDS_MAX: Final = 16
FIELD_CHARACTERS_MAX: Final = 256
OWN_HEADERS: Final = (SOURCE_HEADER, FILE_HEADER, POSITION_HEADER, CUT_HEADER, FIELDS_HEADER)

OTHER_HANDLES: Final = 96
"""File descriptors reserved for the state, the connections to brokers and the interpreter."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE_OR_GLOB",
        help=f"logs; quote patterns such as 'access.log*'. {STDIN} alone is standard input, to its end. {JOURNAL} alone is the "
        f"journal of systemd, and {JOURNAL}_SYSTEMD_UNIT=nginx.service and the like its entries that match all of these",
    )
    add_bootstrap(parser)
    parser.add_argument(
        "--state",
        default=str(user_data() / "collector"),
        metavar="DIR",
        help="where this collector keeps its positions ($XDG_DATA_HOME/kafkacompat/collector)",
    )
    parser.add_argument(
        "--host",
        default=socket.gethostname(),
        help="prefix of the source of each line; default: this host's name",
    )
    parser.add_argument(
        "--topic", default=LOGS_RAW, help="the topic to which the lines are sent (%(default)s)"
    )
    parser.add_argument(
        "--field",
        action="append",
        type=_field,
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record, such as env=production; repeatable",
    )
    parser.add_argument(
        "--record-start",
        type=_rule,
        metavar="EXPRESSION",
        help="lines that this regular expression (RE2) does not match at their beginning belong to the line before, such as "
        r"'\d{4}-' for stack traces",
    )
    parser.add_argument("--until-end", action="store_true", help="ship what exists and exit")
    parser.add_argument(
        "--interval",
        type=positive,
        default=TELL_INTERVAL_S,
        metavar="SECONDS",
        help="interval of the lines about rate and lag",
    )


def _field(text: str) -> tuple[str, bytes]:
    name, mark, value = text.partition("=")
    if not mark or re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", name) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if name in OWN_HEADERS:
        raise argparse.ArgumentTypeError(f"{name} is a header of the collector's own")
    if len(value) > FIELD_CHARACTERS_MAX:
        raise argparse.ArgumentTypeError(f"{name} has more than {FIELD_CHARACTERS_MAX} characters")
    return name, value.encode("utf-8", "surrogateescape")


def _fields(arguments: argparse.Namespace) -> list[tuple[str, bytes]]:
    """Return the fields of every record. PipelineFailed for those that cannot be used together."""
    fields: list[tuple[str, bytes]] = arguments.field
    names = [name for name, _ in fields]
    for name in names:
        if names.count(name) > 1:
            raise PipelineFailed(f"--field has {name} twice")
    if len(fields) > FIELDS_MAX:
        raise PipelineFailed(f"--field was given {len(fields)} times, at most {FIELDS_MAX} are possible")
    return fields


def _rule(text: str) -> Begins:
    try:
        found: Begins = compiled(text).match
    except ExpressionRefused as refusal:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {refusal}") from None
    return found


def run(arguments: argparse.Namespace) -> int:
    """Ship lines until SIGINT or SIGTERM. Return 0 if it stopped cleanly."""
    require_extra("spark", "confluent_kafka")
    address = address_of(arguments)
    if STDIN in arguments.files:
        return _collect_standard_input(arguments, address)
    if any(name.startswith(JOURNAL) for name in arguments.files):
        return _collect_journal(arguments, address)
    fields = _fields(arguments)
    state = StateFile(arguments.state)
    try:
        stopping = _stopping()
        terminal = Terminal(lambda: stopping.append(signal.SIGPIPE))

        ensure_topics = _ensured(arguments.topic, address)
        away = None
        try:
            ensure_topics(DEFAULT_TIMEOUT_S)
        except PipelineFailed as failure:
            # On a first run the address is probably wrong. On later runs, open the files first, so that rotation does
            # not remove them.
            if arguments.until_end or state.load() is None:
                raise
            away = failure
        disk = Disk(arguments.files, allow_handles())
        shipper = Shipper(address, arguments.host, ensure_topics, topic=arguments.topic, fields=fields)
        if away is not None:
            terminal.warn(f"collector: {away}; follows the files meanwhile")
            shipper.seek_topic()
        teller = Teller(arguments.interval, terminal)
        collector = Collector(disk, state, shipper, arguments.host, arguments.record_start)
        terminal.say(f"collector follows {', '.join(arguments.files)} -> {arguments.topic} at {address}")
        collector.run(lambda: bool(stopping), teller.tell, arguments.until_end)
        shipper.close()
        disk.close()
        terminal.say(f"collector stopped: {described(collector.figures(), None)}")
    finally:
        state.close()
    return 0


def _ensured(topic: str, address: ClusterAddress) -> Callable[..., None]:
    """Return what makes the topic if it is missing, within a time in seconds."""

    def ensure_topics(timeout_s: float = TOPICS_AGAIN_TIMEOUT_S) -> None:
        create_missing(address, plans([topic]), timeout_s)

    return ensure_topics


def _stopping() -> list[int]:
    """Return the signals to stop that have come: none yet."""
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopping.append(number))
    return stopping


def _collect_standard_input(arguments: argparse.Namespace, address: ClusterAddress) -> int:
    if arguments.files != [STDIN]:
        raise PipelineFailed(
            f"{STDIN} is standard input, which is collected alone: start another collector for files"
        )
    stopping = _stopping()
    terminal = Terminal(lambda: stopping.append(signal.SIGPIPE))

    ensure_topics = _ensured(arguments.topic, address)
    ensure_topics(DEFAULT_TIMEOUT_S)
    shipper = Shipper(
        address, arguments.host, ensure_topics, topic=arguments.topic, fields=_fields(arguments)
    )
    source = StandardInput(shipper, arguments.host, begins=arguments.record_start)
    terminal.say(f"collector reads standard input -> {arguments.topic} at {address}")
    try:
        source.run(lambda: bool(stopping), Teller(arguments.interval, terminal).tell)
    finally:
        shipper.close()
        terminal.say(f"collector stopped: {described(source.figures(), None)}")
    return 0


def _collect_journal(arguments: argparse.Namespace, address: ClusterAddress) -> int:
    matches = [name.removeprefix(JOURNAL) for name in arguments.files if name.startswith(JOURNAL)]
    if len(matches) < len(arguments.files):
        raise PipelineFailed(f"{JOURNAL} is collected alone: start another collector for files")
    matches = [match for match in matches if match]
    for match in matches:
        if re.fullmatch(r"[A-Z0-9_]{1,64}=.*", match, re.DOTALL) is None or "\0" in match:
            raise PipelineFailed(f"{JOURNAL}{match} is not {JOURNAL}FIELD=VALUE")
    if arguments.record_start is not None:
        raise PipelineFailed(f"--record-start is for lines: an entry of {JOURNAL} is a record")
    fields = _fields(arguments)
    state = StateFile(arguments.state)
    try:
        stopping = _stopping()
        terminal = Terminal(lambda: stopping.append(signal.SIGPIPE))

        ensure_topics = _ensured(arguments.topic, address)
        ensure_topics(DEFAULT_TIMEOUT_S)
        shipper = Shipper(address, arguments.host, ensure_topics, topic=arguments.topic, fields=fields)
        journal = Journal(shipper, state, matches, until_end=arguments.until_end)
        terminal.say(f"collector follows the journal -> {arguments.topic} at {address}")
        try:
            journal.run(lambda: bool(stopping), Teller(arguments.interval, terminal).tell)
        finally:
            shipper.close()
        terminal.say(f"collector stopped: {described(journal.figures(), None)}")
    finally:
        state.close()
    return 0


def allow_handles() -> int:
    """Raise this process's limit of open files as far as possible. Return how many files can be followed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_HANDLES + OTHER_HANDLES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - OTHER_HANDLES, 1)


class Teller:
    """Prints one line per interval."""

    def __init__(self, interval_s: float, terminal: Terminal) -> None:
        self._interval_s = interval_s
        self._voice = terminal
        self._told_s = time.monotonic()
        self._lines = 0
        self._trouble: str | None = None
        self._beyond = False

    def tell(self, figures: Figures) -> None:
        now_s = time.monotonic()
        if figures.trouble is not None and figures.trouble != self._trouble:
            self._voice.warn(f"collector: {figures.trouble}")
        self._trouble = figures.trouble
        if figures.beyond_files and not self._beyond:
            self._voice.warn(
                f"collector: more than {MAX_FILES} files are held open: some have lost their names before their lines "
                "were shipped"
            )
        self._beyond = figures.beyond_files > 0
        elapsed_s = now_s - self._told_s
        if elapsed_s < self._interval_s:
            return
        self._voice.say(f"collector: {described(figures, (figures.lines - self._lines) / elapsed_s)}")
        self._told_s, self._lines = now_s, figures.lines


def described(figures: Figures, lines_per_s: float | None) -> str:
    """Return the figures for a person. Unusual ones are included only if they occurred."""
    parts = [
        f"{figures.lines:,} lines, {figures.bytes / 1e6:,.1f} MB shipped",
        f"lag {figures.lag_bytes:,} bytes in {figures.files} files",
        f"{figures.on_the_way_bytes:,} bytes in flight",
    ]
    if lines_per_s is not None:
        parts.insert(0, f"{lines_per_s:,.0f} lines/s")
    if figures.unfinished_bytes:
        parts.append(f"{figures.unfinished_bytes:,} bytes without a newline yet")
    if figures.cut_lines:
        parts.append(f"{figures.cut_lines:,} lines cut")
    if figures.resent_lines:
        parts.append(f"{figures.resent_lines:,} sent again")
    if figures.truncations:
        parts.append(f"{figures.truncations} truncations")
    if figures.unread_at_truncation_bytes:
        parts.append(f"{figures.unread_at_truncation_bytes:,} bytes lost by them, with no copy found")
    if figures.given_up_bytes:
        parts.append(f"{figures.given_up_bytes:,} bytes of deleted files not shipped")
    if figures.beyond_files:
        parts.append(
            f"{figures.beyond_files} files beyond {MAX_FILES} held open until their lines are shipped"
        )
    if figures.lost_files:
        parts.append(f"{figures.lost_files} files of the previous run not found")
    if figures.refused_files:
        parts.append(f"{figures.refused_files} files not followed because of the limit")
    return ", ".join(parts)
