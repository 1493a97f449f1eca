"""`kafkacompat consume --share`: a worker of a share group, Kafka's queue.

A record is done when it has been printed, when a line of standard input says so, or when a program has ended well.
Whatever is unfinished when the worker ends is released.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from kafkacompat.cli.cluster_address import address_of
from kafkacompat.cli.output import terminable
from kafkacompat.cli.printing import Lines, renderer
from kafkacompat.cli.reader import LATEST, Reader
from kafkacompat.cli.record_command import NOT_RUN, Outcome, ending_of, outcome_of, run_for, words_of
from kafkacompat.cli.share_group import described_offsets, set_group_configs
from kafkacompat.cli.share_member import ShareMember
from kafkacompat.cli.share_options import RETRY_PAUSE_S, SHARE_FIELDS, check_share
from kafkacompat.cli.share_reader import Delivery, ShareReader
from kafkacompat.cli.share_session import BATCH_OPTIMIZED, RECORD_LIMIT, Acknowledgement
from kafkacompat.client.blocking import Cluster
from kafkacompat.failure import CommandFailed

PRINTED_AT_ONCE = 500
"""max.poll.records of Kafka's consumers."""
TICK_S = 0.2
LINE_BYTES_MAX = 1024
RENEW = "renew"
OUTCOMES = {"accept": Outcome.ACCEPT, "release": Outcome.RELEASE, "reject": Outcome.REJECT}
ACKNOWLEDGEMENTS = {
    Outcome.ACCEPT: Acknowledgement.ACCEPT,
    Outcome.RELEASE: Acknowledgement.RELEASE,
    Outcome.REJECT: Acknowledgement.REJECT,
}

ShareLine = Callable[[Delivery], bytes]
Ends = Mapping[tuple[str, int], int]


class Work(Protocol):
    """What a worker does with records."""

    def do(self, deliveries: list[Delivery]) -> bool:
        """Finish these records, and acknowledge them. False if the worker shall end."""
        ...

    def finish(self) -> None: ...


def work(arguments: argparse.Namespace) -> int:
    check_share(arguments)
    topics = list(dict.fromkeys(arguments.topic))
    with terminable(), Cluster(address_of(arguments)) as cluster:
        ends = ends_of(cluster, topics) if arguments.until_end else None
        member = ShareMember(cluster, arguments.share, topics)
        reader = ShareReader(cluster, member, topics)
        doing = work_of(arguments, reader)
        if arguments.from_beginning:
            set_group_configs(cluster, arguments.share, {"share.auto.offset.reset": "earliest"})
        try:
            run_until_done(cluster, member, reader, doing, arguments, ends)
        finally:
            doing.finish()
            reader.close()
            member.leave()
    return 0


def work_of(arguments: argparse.Namespace, reader: ShareReader) -> Work:
    if arguments.exec is not None:
        pause_s = RETRY_PAUSE_S if arguments.retry_pause is None else arguments.retry_pause
        return ByCommand(reader, words_of(arguments.exec), arguments.retries, pause_s, arguments.exec_timeout)
    line = share_renderer(arguments.print.split(","), arguments.separator.encode())
    if arguments.by_line:
        return ByLine(reader, line)
    return ByPrinting(reader, line, ", ".join(arguments.topic))


def run_until_done(
    cluster: Cluster,
    member: ShareMember,
    reader: ShareReader,
    doing: Work,
    arguments: argparse.Namespace,
    ends: Ends | None,
) -> None:
    left = arguments.max_messages
    one_by_one = arguments.exec is not None or arguments.by_line is not None
    most = arguments.prefetch or (1 if one_by_one else PRINTED_AT_ONCE)
    # Only with a limit by records does the leader keep from the worker what it cannot use.
    mode = RECORD_LIMIT if one_by_one or left is not None or arguments.prefetch else BATCH_OPTIMIZED
    while left is None or left > 0:
        deliveries = reader.acquire(most if left is None else min(most, left), mode)
        if left is not None:
            # An older broker gives whole batches. What is too much stays unfinished, and is released at the end.
            deliveries = deliveries[:left]
            left -= len(deliveries)
        if deliveries:
            if not doing.do(deliveries):
                return
        elif ends is not None and member.assignment and is_drained(cluster, arguments.share, ends):
            return


def ends_of(cluster: Cluster, topics: list[str]) -> dict[tuple[str, int], int]:
    return {
        (topic, number): end
        for topic in topics
        for number, end in Reader(cluster, topic, None).offsets(LATEST).items()
    }


def is_drained(cluster: Cluster, group: str, ends: Ends) -> bool:
    """Return whether the group is done with all records before these ends, whichever member did them.

    The lag decides where the broker tells it: Kafka stores a new start offset only with the next acknowledgement. It is
    asked after a fetch that found nothing. A partition for which nothing is stored then has nothing to do.
    """
    stands = described_offsets(cluster, group)
    for (topic, number), end in ends.items():
        stand = stands.get(topic, {}).get(number)
        if stand is not None and stand.lag > 0 and stand.start_offset < end:
            return False
    return True


class ByPrinting:
    """Accepts records once they have been printed."""

    def __init__(self, reader: ShareReader, line: ShareLine, topics: str) -> None:
        self._reader = reader
        self._line = line
        self._lines = Lines(topics)

    def do(self, deliveries: list[Delivery]) -> bool:
        size = sum([len(each.record.value or b"") for each in deliveries])
        self._lines.print_lines([self._line(each) for each in deliveries], size)
        self._reader.acknowledge(deliveries, Acknowledgement.ACCEPT)
        return True

    def finish(self) -> None:
        self._lines.finish()


class ByLine:
    """Prints one record, and acknowledges it as the next line of standard input says.

    The lock is only renewed by the line renew: whoever gives the answers may hang, and others then get the record.
    """

    def __init__(self, reader: ShareReader, line: ShareLine) -> None:
        self._reader = reader
        self._line = line
        self._answers = Answers()
        self._done: Counter[Outcome] = Counter()

    def do(self, deliveries: list[Delivery]) -> bool:
        for delivery in deliveries:
            sys.stdout.buffer.write(self._line(delivery))
            sys.stdout.buffer.flush()
            word = self._answers.next(self._reader.beat)
            while word == RENEW:
                self._reader.renew([delivery])
                word = self._answers.next(self._reader.beat)
            if word is None:
                return False
            outcome = OUTCOMES.get(word)
            if outcome is None:
                raise CommandFailed(
                    f"a line of standard input is accept, release, reject or renew, not {word!r}"
                )
            if self._reader.acknowledge([delivery], ACKNOWLEDGEMENTS[outcome]):
                self._done[outcome] += 1
        return True

    def finish(self) -> None:
        tell(self._done)


class Answers:
    """The lines of standard input, awaited while the worker goes on with what is due."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._data = b""

    def next(self, tend: Callable[[], None]) -> str | None:
        """Return the next line without blanks around it. None at the end of the input."""
        while b"\n" not in self._data:
            if len(self._data) > LINE_BYTES_MAX:
                raise CommandFailed(f"a line of standard input has more than {LINE_BYTES_MAX} bytes")
            if not select.select([self._file], [], [], TICK_S)[0]:
                tend()
                continue
            more = os.read(self._file, LINE_BYTES_MAX)
            if not more:
                return None
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


class ByCommand:
    """Runs a program for each record, and acknowledges the record by the program's status."""

    def __init__(
        self,
        reader: ShareReader,
        words: list[str],
        retries: int | None,
        pause_s: float,
        limit_s: float | None,
    ) -> None:
        self._reader = reader
        self._words = words
        self._retries = retries
        self._pause_s = pause_s
        self._limit_s = limit_s
        self._done: Counter[Outcome] = Counter()

    def do(self, deliveries: list[Delivery]) -> bool:
        for delivery in deliveries:
            status = run_for(delivery, self._words, self._limit_s, self._reader.tend)
            if status in NOT_RUN:
                raise CommandFailed(
                    f"--exec: {self._words[0]} ended with status {status}, which tells that a program cannot be run; "
                    f"{delivery.name} is released"
                )
            outcome = outcome_of(status, delivery.count, self._retries)
            if outcome is not Outcome.ACCEPT:
                print(
                    f"kafkacompat: {delivery.name}, delivery {delivery.count}: {ending_of(status)}, {outcome.value}",
                    file=sys.stderr,
                )
            if outcome is Outcome.RELEASE:
                self._pause()
            if self._reader.acknowledge([delivery], ACKNOWLEDGEMENTS[outcome]):
                self._done[outcome] += 1
        return True

    def _pause(self) -> None:
        # A released record is delivered again at once. Without a pause all attempts would be over in a moment.
        until = time.monotonic() + self._pause_s
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, TICK_S))
            self._reader.tend()

    def finish(self) -> None:
        tell(self._done)


def tell(done: Mapping[Outcome, int]) -> None:
    counts = ", ".join(f"{done.get(outcome, 0)} {outcome.value}" for outcome in Outcome)
    print(f"kafkacompat: {counts}", file=sys.stderr)


def share_renderer(fields: list[str], separator: bytes) -> ShareLine:
    """Like `renderer`, for deliveries, which have more fields."""
    if not any(field in SHARE_FIELDS for field in fields):
        plain = renderer(fields, separator)
        return lambda each: plain(each.place[1], each.offset, each.record)
    parts = [SHARE_PARTS[field] if field in SHARE_PARTS else _part(field, separator) for field in fields]
    return lambda each: separator.join([part(each) for part in parts]) + b"\n"


def _part(field: str, separator: bytes) -> ShareLine:
    line = renderer([field], separator)
    return lambda each: line(each.place[1], each.offset, each.record)[:-1]


SHARE_PARTS: dict[str, ShareLine] = {
    "topic": lambda each: each.topic.encode(),
    "deliveries": lambda each: b"%d" % each.count,
}
