"""`kafkacompat pipeline generate`: the command line, the clock, the signals, and the line with the rate."""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Final, NamedTuple

from kafkacompat.pipeline.argument_types import positive, whole
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.generator.access_log import DEFAULT_ROTATE_BYTES, RENAME, ROTATIONS, AccessLog
from kafkacompat.pipeline.generator.chance import Chance
from kafkacompat.pipeline.generator.data_set import RETENTIONEERING, DataSet
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event
from kafkacompat.pipeline.generator.pace import Pace
from kafkacompat.pipeline.generator.sending import Sender
from kafkacompat.pipeline.generator.traffic import Traffic
from kafkacompat.pipeline.options import add_bootstrap, address_of
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import (
    ACTIVITY_PAGE_VIEWS,
    ACTIVITY_SEARCHES,
    LOGS_RAW,
    METRICS_RAW,
    create_missing,
    plans,
)

DEFAULT_RATE: Final = 200.0
DEFAULT_PAST_S: Final = 24 * 3600.0
"""How far in the past event time starts if it runs faster than the clock and no option says otherwise."""

TURN_S: Final = 0.05
MOST_PER_TURN: Final = 5000
TELL_INTERVAL_S: Final = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--access-log", metavar="FILE", help=f"write lines here for a collector, not to {LOGS_RAW}"
    )
    parser.add_argument("--rotation", choices=ROTATIONS, default=RENAME, help="how the access log is rotated")
    parser.add_argument(
        "--rotate-bytes",
        type=whole,
        default=DEFAULT_ROTATE_BYTES,
        metavar="N",
        help="size at which it is rotated",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed makes the same events"
    )
    parser.add_argument(
        "--rate", type=positive, default=DEFAULT_RATE, metavar="EVENTS_PER_S",
        help="events per second of wall time, averaged over a day",
    )  # fmt: skip
    parser.add_argument("--duration", type=positive, metavar="S", help="end after this many seconds")
    parser.add_argument("--count", type=whole, metavar="N", help="end after this many events")
    parser.add_argument(
        "--start-time",
        type=moment,
        metavar="ISO",
        help="the first event's time; UTC unless it says otherwise",
    )
    parser.add_argument(
        "--speed", type=positive, default=1.0, metavar="X",
        help="event time runs X times as fast as the clock, until it has caught up",
    )  # fmt: skip
    parser.add_argument(
        "--at-once", action="store_true", help="do not wait until events are due (with --count)"
    )
    parser.add_argument(
        "--data-set",
        metavar="FILE",
        help=f"replay an access log, a click stream (.csv), or the package {RETENTIONEERING}",
    )
    parser.add_argument(
        "--interval",
        type=positive,
        default=TELL_INTERVAL_S,
        metavar="SECONDS",
        help="interval of the lines about the rate",
    )


def moment(text: str) -> int:
    """Parse an ISO date and time into milliseconds since 1970."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an ISO date and time") from None
    time_ms = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    if time_ms < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970")
    return time_ms


def run(arguments: argparse.Namespace) -> int:
    """Send until the end or a signal. Return 0 if the broker has accepted everything."""
    require_extra("spark", "confluent_kafka")
    if arguments.at_once and arguments.count is None and arguments.data_set is None:
        raise PipelineFailed("--at-once needs --count: the generator would never end")
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopping.append(number))
    terminal = Terminal(lambda: stopping.append(signal.SIGPIPE))
    plan = planned(arguments, int(time.time() * 1000))
    names = [LOGS_RAW, ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES, METRICS_RAW]
    topics = plans(names)
    if arguments.data_set is not None:
        # Recorded times may be older than the retention of new topics allows.
        topics = [replace(topic, configs=topic.configs | {"retention.ms": "-1"}) for topic in topics]
    address = address_of(arguments)
    create_missing(address, topics)
    sender = Sender(address, f"generator-{arguments.seed}-{plan.start_ms:x}")
    log = (
        AccessLog(arguments.access_log, arguments.rotation, arguments.rotate_bytes)
        if arguments.access_log
        else None
    )
    terminal.say(f"generator sends {plan.what} to {address}, event time from {shown(plan.start_ms)}")
    try:
        Sending(arguments, plan, sender, log, lambda: bool(stopping), terminal).run()
    finally:
        if log is not None:
            log.close()
    sender.close()
    terminal.say(stopped(sender.sent, log))
    return 0


def stopped(sent: int, log: AccessLog | None) -> str:
    """Return the last line to print."""
    rotated = f", access log rotated {log.rotations:,} times" if log is not None and log.rotations else ""
    return f"generator stopped: {sent:,} records taken by the broker{rotated}"


class Planned(NamedTuple):
    """The events to send."""

    what: str
    events: Iterator[Event]
    start_ms: int
    speed: float


def planned(arguments: argparse.Namespace, now_ms: int) -> Planned:
    """Choose the events and their times from the command line. Raises PipelineFailed for impossible times."""
    plan = _planned(arguments, now_ms)
    if plan.start_ms < 0:
        raise PipelineFailed(f"{plan.what} would begin before 1970, where Kafka's timestamps begin")
    return plan


def _planned(arguments: argparse.Namespace, now_ms: int) -> Planned:
    count = arguments.count
    if arguments.data_set is not None:
        data = DataSet(arguments.data_set)
        recorded = data.recorded
        start_ms = arguments.start_time if arguments.start_time is not None else now_ms - recorded.span_ms
        # The wanted rate is an average, however sparse the events are.
        speed = max(recorded.span_ms * arguments.rate / (1000.0 * recorded.events), 1.0)
        what = f"{recorded.events:,} events of {recorded.path} at {arguments.rate:g}/s"
        if data.without_time:
            what += f" ({data.without_time:,} without a time follow the line before)"
        if data.left_out:
            what += f" ({data.left_out:,} lines before the first time are left out)"
        events = data.events(start_ms + recorded.span_ms)
        return Planned(what, islice(events, count), start_ms, speed)
    density = arguments.rate / arguments.speed
    if arguments.start_time is not None:
        start_ms = arguments.start_time
        if start_ms > now_ms:
            raise PipelineFailed(f"--start-time {shown(start_ms)} is ahead of the clock")
    elif arguments.at_once:
        start_ms = now_ms - int(count / density * 1000.0)
    elif arguments.speed > 1:
        lasts_s = min(
            DEFAULT_PAST_S,
            (arguments.speed - 1) * (arguments.duration or DEFAULT_PAST_S),
            (arguments.speed - 1) * (count / arguments.rate if count is not None else DEFAULT_PAST_S),
        )
        start_ms = now_ms - int(lasts_s * 1000)
    else:
        start_ms = now_ms
    traffic = Traffic(arguments.seed, chances(arguments.seed), start_ms, density)
    return Planned(
        f"traffic of seed {arguments.seed} at {arguments.rate:g}/s",
        islice(traffic, count),
        start_ms,
        arguments.speed,
    )


def chances(seed: int) -> Callable[[str], Chance]:
    """Return a function that gives one stream of random numbers for each purpose."""
    return lambda purpose: random.Random(f"{seed}/{purpose}")


def shown(time_ms: int) -> str:
    """Format a time for a person."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


class Sending:
    """The loop that sends due events to the broker and to the access log."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        plan: Planned,
        sender: Sender,
        log: AccessLog | None,
        stopping: Callable[[], bool],
        terminal: Terminal,
    ) -> None:
        self._voice = terminal
        self._at_once = arguments.at_once
        self._duration_s = arguments.duration
        self._interval_s = arguments.interval
        self._plan = plan
        self._sender = sender
        self._log = log
        self._stopping = stopping

    def run(self) -> None:
        """Run until the last event, the end of the duration or a signal."""
        pace = Pace(int(time.time() * 1000), self._plan.start_ms, self._plan.speed)
        started_s = told_s = time.monotonic()
        waiting = self._plan.events
        made = told = 0
        event_ms = self._plan.start_ms
        while not self._stopping():
            now_s = time.monotonic()
            if self._duration_s is not None and now_s - started_s >= self._duration_s:
                return
            due_ms = pace.event_time_ms(int(time.time() * 1000))
            events: list[Event] = []
            for event in islice(waiting, MOST_PER_TURN):
                if event.arrival_ms > due_ms and not self._at_once:
                    waiting = chain((event,), self._plan.events)
                    break
                events.append(event)
            else:
                waiting = self._plan.events
                if not events:
                    return
            if events:
                event_ms = events[-1].arrival_ms
                self._take(events)
                made += len(events)
            if now_s - told_s >= self._interval_s:
                rate = (made - told) / (now_s - told_s)
                self._voice.say(
                    f"generator: {rate:,.0f} events/s, {made:,} so far, event time {shown(event_ms)}"
                )
                told_s, told = now_s, made
            if not self._at_once and len(events) < MOST_PER_TURN:
                self._sender.wait(0)
                time.sleep(TURN_S)

    def _take(self, events: list[Event]) -> None:
        if self._log is not None:
            lines = [event.value for event in events if event.stream == ACCESS_LINES]
            if lines:
                self._log.write(lines)
            events = [event for event in events if event.stream != ACCESS_LINES]
        self._sender.send(events, self._stopping)
