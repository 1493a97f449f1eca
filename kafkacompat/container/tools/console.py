"""kafka-console-producer and kafka-console-consumer: lines of text to and from a topic."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Mapping

from kafkacompat.cli import consume, produce
from kafkacompat.cli.consume import print_records
from kafkacompat.cli.group_member import GroupMember
from kafkacompat.cli.output import terminable
from kafkacompat.cli.printing import Line, Printing
from kafkacompat.cli.reader import EARLIEST, LATEST, Reader, Records
from kafkacompat.client.blocking import Cluster
from kafkacompat.container.tools.options import Options, address_of, pairs_of, property_of
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.records.record import Headers, Record

FIELDS = ("partition", "offset", "headers", "key", "value")
"""The order in which Kafka's tool prints them."""
NULL = b"null"


def producer_options() -> Options:
    parser = Options("kafka-console-producer", "Read lines from standard input and write them to a topic.")
    parser.add_server("command-config", "producer.config")
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--compression-codec", choices=produce.CODECS, default="none", nargs="?", const="gzip"
    )
    parser.add_argument(
        "--reader-property",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parse.key, key.separator",
    )
    return parser


def run_producer(arguments: argparse.Namespace) -> int:
    properties = pairs_of(arguments.reader_property, "reader-property")
    refuse_others(properties, ("parse.key", "key.separator"), "--reader-property")
    separator = properties.get("key.separator", "\t") if is_true(properties.get("parse.key", "")) else None
    return produce.run(
        argparse.Namespace(
            bootstrap=arguments.bootstrap_server,
            command_config=arguments.client_properties,
            topic=arguments.topic,
            key_separator=separator,
            is_key_required=separator is not None,
            partition=None,
            compression=arguments.compression_codec,
            is_quiet=True,
        )
    )


def consumer_options() -> Options:
    parser = Options("kafka-console-consumer", "Print the records of a topic on standard output.")
    parser.add_server("command-config", "consumer.config")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset", help="earliest, latest, or a number; with --partition")
    parser.add_flags("from-beginning")
    parser.add_argument("--max-messages", type=int)
    parser.add_argument("--timeout-ms", type=int, help="end when no record arrives for so long")
    parser.add_argument("--isolation-level", choices=consume.ISOLATION_LEVELS, default="read_uncommitted")
    parser.add_argument(
        "--formatter-property",
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=", ".join((*(f"print.{each}" for each in FIELDS), "key.separator")),
    )
    return parser


def run_consumer(arguments: argparse.Namespace) -> int:
    properties = pairs_of(arguments.formatter_property, "formatter-property")
    refuse_others(
        properties, ("key.separator", *(f"print.{each}" for each in FIELDS)), "--formatter-property"
    )
    group = arguments.group or property_of(arguments.client_properties, "group.id")
    if arguments.partition is None and arguments.offset is not None:
        raise CommandFailed("The partition is required when offset is specified.")
    if arguments.partition is not None and arguments.group is not None:
        raise CommandFailed("Options group and partition cannot be specified together.")
    start_ms, offset = start_of(arguments.offset, arguments.from_beginning)
    printing = Polling(arguments.topic, line_of(properties), arguments.max_messages, arguments.timeout_ms)
    only = None if arguments.partition is None else [arguments.partition]
    try:
        with terminable(), Cluster(address_of(arguments)) as cluster:
            reader = Reader(
                cluster, arguments.topic, only, consume.ISOLATION_LEVELS[arguments.isolation_level]
            )
            member = (
                None if group is None or only is not None else GroupMember(cluster, group, arguments.topic)
            )
            print_records(reader, member, start_ms, offset, None, printing)
    finally:
        sys.stdout.flush()
        print(f"Processed a total of {printing.count} messages", file=sys.stderr)
    return 0


def start_of(offset: str | None, from_beginning: bool) -> tuple[int, int | None]:
    """(timestamp for ListOffsets, offset)."""
    if offset in (None, "latest"):
        return (EARLIEST if from_beginning else LATEST), None
    if offset == "earliest":
        return EARLIEST, None
    try:
        found = parse_int(offset, 63)
    except ValueError:
        found = -1
    if found < 0:
        raise CommandFailed(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', "
            "or a non-negative long."
        )
    return LATEST, found


class Polling(Printing):
    """It is done after the last wanted record, or when none has arrived for a time."""

    def __init__(self, topic: str, line: Line, most: int | None, timeout_ms: int | None) -> None:
        super().__init__(topic, line, most)
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self._last = time.monotonic()

    @property
    def is_done(self) -> bool:
        is_late = self._timeout_s is not None and time.monotonic() - self._last >= self._timeout_s
        return is_late or super().is_done

    def show(self, partition: int, records: Records) -> Records:
        shown = super().show(partition, records)
        if shown:
            self._last = time.monotonic()
        return shown


def line_of(properties: Mapping[str, str]) -> Line:
    """The format of Kafka's DefaultMessageFormatter."""
    wanted = [each for each in FIELDS if is_true(properties.get(f"print.{each}", str(each == "value")))]
    separator = properties.get("key.separator", "\t").encode()

    def line(partition: int, offset: int, record: Record) -> bytes:
        told: dict[str, bytes] = {
            "partition": b"Partition:%d" % partition,
            "offset": b"Offset:%d" % offset,
            "headers": headers_text(record.headers),
            "key": NULL if record.key is None else record.key,
            "value": NULL if record.value is None else record.value,
        }
        return separator.join([told[each] for each in wanted]) + b"\n"

    return line


def is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def headers_text(headers: Headers) -> bytes:
    if not headers:
        return b"NO_HEADERS"
    return b",".join(name.encode() + b":" + (NULL if value is None else value) for name, value in headers)


def refuse_others(properties: Mapping[str, str], known: Collection[str], option: str) -> None:
    unknown = sorted(properties.keys() - set(known))
    if unknown:
        raise CommandFailed(f"{option} takes {', '.join(known)} here, not {', '.join(unknown)}")
