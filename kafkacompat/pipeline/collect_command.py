"""`kafkacompat pipeline collect`: the words of the command line, signals, and the line that tells rate and lag."""

from __future__ import annotations

import argparse
import resource
import signal
import socket
import time
from typing import Final

from kafkacompat.pipeline.collector.disk import MAX_FILES, MAX_HANDLES, Disk
from kafkacompat.pipeline.collector.running import Collector, Figures
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.collector.state_file import StateFile
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.quantities import positive
from kafkacompat.pipeline.saying import Voice
from kafkacompat.pipeline.topics import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT_S, LOGS_RAW, create_missing, plans
from kafkacompat.pipeline.user_data import user_data

TELL_INTERVAL_S: Final = 5.0
TOPICS_AGAIN_TIMEOUT_S: Final = 3.0
"""For asking the broker while files are followed: nobody looks at them meanwhile."""

OTHER_HANDLES: Final = 96
"""Kept free for the state, the connections to brokers and what the interpreter opens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE_OR_GLOB", help="access logs; quote patterns such as 'access.log*'"
    )
    parser.add_argument("--bootstrap", default=DEFAULT_BOOTSTRAP, metavar="HOST:PORT", help="the broker")
    parser.add_argument(
        "--state",
        default=str(user_data() / "collector"),
        metavar="DIR",
        help="where positions are kept, of one collector ($XDG_DATA_HOME/kafkacompat/collector)",
    )
    parser.add_argument(
        "--host", default=socket.gethostname(), help="what the source of a line begins with; this host's name"
    )
    parser.add_argument("--until-end", action="store_true", help="ship what is there and end")
    parser.add_argument(
        "--interval",
        type=positive,
        default=TELL_INTERVAL_S,
        metavar="SECONDS",
        help="between two lines about rate and lag",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ship until SIGINT or SIGTERM; 0 when it stopped cleanly."""
    require_extra("spark", "confluent_kafka")
    state = StateFile(arguments.state)
    try:
        stopping: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stopping.append(number))
        voice = Voice(lambda: stopping.append(signal.SIGPIPE))

        def ensure_topics(timeout_s: float = TOPICS_AGAIN_TIMEOUT_S) -> None:
            create_missing(arguments.bootstrap, plans([LOGS_RAW]), timeout_s)

        away = None
        try:
            ensure_topics(DEFAULT_TIMEOUT_S)
        except PipelineFailed as failure:
            # On a first run that is most likely a wrong address. Later the files must be held before rotation takes them.
            if arguments.until_end or state.load() is None:
                raise
            away = failure
        disk = Disk(arguments.files, allow_handles())
        shipper = Shipper(arguments.bootstrap, arguments.host, ensure_topics)
        if away is not None:
            voice.warn(f"collector: {away}; follows the files meanwhile")
            shipper.seek_topic()
        teller = Teller(arguments.interval, voice)
        collector = Collector(disk, state, shipper, arguments.host)
        voice.say(f"collector follows {', '.join(arguments.files)} -> {LOGS_RAW} at {arguments.bootstrap}")
        collector.run(lambda: bool(stopping), teller.tell, arguments.until_end)
        shipper.close()
        disk.close()
        voice.say(f"collector stopped: {described(collector.figures(), None)}")
    finally:
        state.close()
    return 0


def allow_handles() -> int:
    """Raise this process's limit of open files as far as the system allows; how many there may be to follow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_HANDLES + OTHER_HANDLES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - OTHER_HANDLES, 1)


class Teller:
    """One line an interval."""

    def __init__(self, interval_s: float, voice: Voice) -> None:
        self._interval_s = interval_s
        self._voice = voice
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
    """What a person wants to know of it, the unusual only where it happened."""
    parts = [
        f"{figures.lines:,} lines, {figures.bytes / 1e6:,.1f} MB shipped",
        f"lag {figures.lag_bytes:,} bytes in {figures.files} files",
        f"{figures.on_the_way_bytes:,} bytes on the way",
    ]
    if lines_per_s is not None:
        parts.insert(0, f"{lines_per_s:,.0f} lines/s")
    if figures.unfinished_bytes:
        parts.append(f"{figures.unfinished_bytes:,} bytes wait for their newline")
    if figures.cut_lines:
        parts.append(f"{figures.cut_lines:,} lines cut")
    if figures.resent_lines:
        parts.append(f"{figures.resent_lines:,} sent again")
    if figures.truncations:
        parts.append(f"{figures.truncations} truncations")
    if figures.unread_at_truncation_bytes:
        parts.append(
            f"{figures.unread_at_truncation_bytes:,} bytes not read before them, if no copy has them"
        )
    if figures.given_up_bytes:
        parts.append(f"{figures.given_up_bytes:,} bytes not shipped of files that are gone")
    if figures.beyond_files:
        parts.append(f"{figures.beyond_files} files more than {MAX_FILES} held open for lines not shipped")
    if figures.lost_files:
        parts.append(f"{figures.lost_files} files of the run before not found again")
    if figures.refused_files:
        parts.append(f"{figures.refused_files} files too many are not followed")
    return ", ".join(parts)
