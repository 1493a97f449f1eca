"""`kafkacompat consume`: print the records of a topic as lines, from the beginning, an offset, a time, or from now on."""

from __future__ import annotations

import argparse
import datetime

from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.cli.group_member import GroupMember
from kafkacompat.cli.output import failing_clearly, terminable
from kafkacompat.cli.printing import FIELDS, Printing, renderer
from kafkacompat.cli.reader import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Reader
from kafkacompat.cli.share_options import SHARE_FIELDS, add_share_options, positive, require_share
from kafkacompat.client.blocking import Cluster
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int

ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("topic", nargs="+", help="its name; several with --share")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning", action="store_true", help="from the first record kept (default: from now on)"
    )
    start.add_argument("--offset", type=int, help="from this offset in every partition read")
    start.add_argument(
        "--since",
        metavar="TIME",
        help="from the first record at or after an ISO time, UTC without a zone, or ms since 1970",
    )
    parser.add_argument("--partition", type=int, action="append", help="only this partition; may be repeated")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--group",
        metavar="ID",
        help="join this consumer group: continue at its committed offsets, and commit what is printed",
    )
    group.add_argument(
        "--share",
        metavar="ID",
        help="join this share group: take records that no other member has, and accept what is printed. "
        "--from-beginning then sets the group's share.auto.offset.reset to earliest",
    )
    parser.add_argument(
        "--isolation-level",
        choices=ISOLATION_LEVELS,
        default="read_uncommitted",
        help="read_committed leaves out aborted transactions and waits for open ones (default %(default)s)",
    )
    parser.add_argument("--max-messages", type=positive, metavar="N", help="stop after N records")
    parser.add_argument("--until-end", action="store_true", help="stop at the current end of the topic")
    parser.add_argument(
        "--print",
        default="value",
        metavar="FIELDS",
        help=f"comma list of {', '.join(FIELDS)}, and with --share {', '.join(SHARE_FIELDS)} (default %(default)s)",
    )
    parser.add_argument("--separator", default="\t", help="between fields (default: tab)")
    add_share_options(parser)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.share is not None:
        from kafkacompat.cli.consume_share import work

        return work(arguments)
    require_share(arguments)
    (topic,) = arguments.topic
    if arguments.group is not None and (
        arguments.partition or arguments.offset is not None or arguments.since is not None
    ):
        raise CommandFailed(
            "--group continues at committed offsets; it excludes --partition, --offset and --since"
        )
    line = renderer(arguments.print.split(","), arguments.separator.encode())
    with terminable(), Cluster(address_of(arguments)) as cluster:
        reader = Reader(cluster, topic, arguments.partition, ISOLATION_LEVELS[arguments.isolation_level])
        ends = reader.offsets(LATEST) if arguments.until_end else None
        printing = Printing(topic, line, arguments.max_messages)
        member = None if arguments.group is None else GroupMember(cluster, arguments.group, topic)
        print_records(reader, member, starting_timestamp(arguments), arguments.offset, ends, printing)
    return 0


def print_records(
    reader: Reader,
    member: GroupMember | None,
    timestamp_ms: int,
    offset: int | None,
    ends: dict[int, int] | None,
    printing: Printing,
) -> None:
    """Print from the offset, or from the timestamp, or as a member of a group, until these ends or as long as `printing`
    wants more."""
    try:
        if member is not None:
            read_as_member(member, reader, timestamp_ms, ends, printing)
            return
        reader.seek(timestamp_ms, offset)
        for partition, records in reader.batches(ends):
            printing.show(partition, records)
            if printing.is_done:
                break
    finally:
        printing.finish()


def read_as_member(
    member: GroupMember, reader: Reader, timestamp_ms: int, ends: dict[int, int] | None, printing: Printing
) -> None:
    """Read as a group member. `timestamp_ms` is the start in partitions for which the group has no committed offset, or one whose
    record is deleted."""
    stands = False
    try:
        while not printing.is_done:
            partitions = member.join()
            reader.assign(dict.fromkeys(partitions, 0))
            if partitions:
                committed = member.committed(partitions)
                first = reader.offsets(EARLIEST) if committed else {}
                present = {number: offset for number, offset in committed.items() if offset >= first[number]}
                reader.assign(reader.starts(timestamp_ms) | present)
            stands = True
            for partition, records in reader.batches(ends):
                printed = printing.show(partition, records)
                if printed:
                    reader.positions[partition] = printed[-1][0] + 1
                if printing.is_done:
                    break
                stands = member.tend(reader.positions)
                if not stands:
                    break
            else:
                return
    finally:
        if stands:
            member.commit(reader.positions)
        member.leave()


def starting_timestamp(arguments: argparse.Namespace, option: str = "--since") -> int:
    """Return the timestamp for ListOffsets: a special value, or milliseconds since 1970. `option`: the one that the
    user gave for arguments.since."""
    text = arguments.since
    if text is None:
        return EARLIEST if arguments.from_beginning else LATEST
    try:
        if text.isascii() and text.isdigit():
            return parse_int(text, 63)
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandFailed(f"{option} takes an ISO time or milliseconds, not {text!r}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    # Numbers below 0 are special values of ListOffsets.
    return max(0, int(moment.timestamp() * 1000))
