"""`kafkacompat dump`: print the files of a log directory line by line, and check indexes against their logs.

This module knows arguments, paths and terminals. log/dump.py and cli/decoding.py know the file formats.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import sys
import time
from collections.abc import Iterator

from kafkacompat.cli.decoding import describer
from kafkacompat.cli.index_check import (
    check_offset_index,
    check_time_index,
    check_transaction_index,
    segment_outline,
)
from kafkacompat.cli.output import PROGRESS_INTERVAL_S, failing_clearly
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import is_base_offset
from kafkacompat.log.checkpoint import CLEAN_SHUTDOWN_FILE, LEADER_EPOCH_FILE, PARTITION_METADATA_FILE
from kafkacompat.log.dump import OFFSET_FILES, dump_bytes

BATCH_FILES = (".log", ".checkpoint")
INDEX_FILES = (".index", ".timeindex", ".txnindex")
OTHER_ENDINGS = (".snapshot",)
NAMED_FILES = frozenset({*OFFSET_FILES, LEADER_EPOCH_FILE, PARTITION_METADATA_FILE})
TEXT_FILES = frozenset({"meta.properties", "quorum-state", CLEAN_SHUTDOWN_FILE})
PROGRESS_BYTES = 16 * 1024 * 1024
"""Files smaller than this are dumped without a progress line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        nargs="+",
        metavar="FILE|PARTITION_DIR",
        help="segments, indexes, snapshots, checkpoints, or a partition's directory for all of its files",
    )
    parser.add_argument(
        "-r", "--records", action="store_true", help="also the records of each batch, without their contents"
    )
    parser.add_argument(
        "--values",
        nargs="?",
        const="auto",
        choices=("auto", "text", "hex"),
        help="the contents of records (implies --records): auto decodes the internal topics by name and shows others as text",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only problems: damaged batches, indexes that disagree with their log; exit 1 if any",
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    findings = 0
    paths = [file for path in arguments.path for file in files_of(path)]
    for number, path in enumerate(paths):
        if arguments.check:
            for finding in check_file(path):
                print(f"{path}: {finding}")
                findings += 1
            continue
        if len(paths) > 1:
            print(("\n" if number else "") + f"Dumping {path}")
        for line in dump(path, arguments.records or arguments.values is not None, arguments.values):
            print(line)
    sys.stdout.flush()
    if arguments.check:
        print(f"{len(paths)} files checked, {findings} findings", file=sys.stderr)
    return 1 if findings else 0


def files_of(path: str) -> list[str]:
    """Return the file, or the files in a directory that can be dumped, sorted by name."""
    if not os.path.exists(path):
        raise CommandFailed(f"{path} does not exist")
    if not os.path.isdir(path):
        if not can_be_dumped(os.path.basename(path)):
            raise CommandFailed(f"{path} is not named like a segment, index, snapshot or checkpoint")
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if can_be_dumped(name)]
    files = [file for file in found if os.path.isfile(file)]
    if not files:
        raise CommandFailed(f"{path} contains no segment, index, snapshot or checkpoint")
    return files


def can_be_dumped(name: str) -> bool:
    return (
        name in NAMED_FILES or name in TEXT_FILES or name.endswith(BATCH_FILES + INDEX_FILES + OTHER_ENDINGS)
    )


def dump(path: str, records: bool, values: str | None) -> Iterator[str]:
    """Yield the lines of one file. Raises CommandFailed if it cannot be read."""
    name = os.path.basename(path)
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    with mapped(path) as data:
        if name in TEXT_FILES:
            yield from text_of(bytes(data))
            return
        describe = describer(directory, values) if values is not None else None
        shown = Percent(path, len(data))
        try:
            yield from dump_bytes(name, data, records=records, describe=describe, reached=shown.update)
        except ValueError as error:
            raise CommandFailed(f"{path}: {error}") from error
        finally:
            shown.finish()


def text_of(data: bytes) -> list[str]:
    """Return a small text file's lines: JSON unchanged, properties without comments."""
    text = data.decode("utf-8", "replace")
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            return [f"{name}: {json.dumps(value)}" for name, value in json.loads(text).items()]
    return [line for line in text.splitlines() if not line.startswith("#")]


def check_file(path: str) -> Iterator[str]:
    """Yield the findings about one file. That it cannot be read is one: the check goes on with the other files."""
    try:
        yield from _findings_in(path)
    except CommandFailed as failure:
        # A running broker has removed the file since the directory was listed.
        if os.path.exists(path):
            yield str(failure).removeprefix(f"{path}: ")


def _findings_in(path: str) -> Iterator[str]:
    """An index is compared with the log of the same segment. Raises CommandFailed if a file cannot be read."""
    name = os.path.basename(path)
    if not name.endswith(INDEX_FILES):
        for line in dump(path, records=True, values=None):
            if line.startswith("damaged ") or line.endswith("isvalid: false"):
                yield line
        return
    stem, ending = os.path.splitext(path)
    base_offset = int(name[:20]) if is_base_offset(name[:20]) else 0
    with mapped(path) as data:
        if ending == ".txnindex":
            yield from check_transaction_index(base_offset, bytes(data))
            return
        if not os.path.exists(f"{stem}.log"):
            yield f"there is no {stem}.log"
            return
        with mapped(f"{stem}.log") as log:
            ends, latest = segment_outline(log)
        if ending == ".index":
            yield from check_offset_index(base_offset, bytes(data), ends)
        else:
            yield from check_time_index(base_offset, bytes(data), latest)


@contextlib.contextmanager
def mapped(path: str) -> Iterator[memoryview]:
    """Map a file into memory. A segment may be larger than the memory."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                yield memoryview(b"")
                return
            # An unfinished generator may use slices of the map after this block, so the map is not closed here.
            yield memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error


class Percent:
    """Shows the progress through a long file on standard error, if that is a terminal."""

    def __init__(self, path: str, size: int) -> None:
        self._path, self._size = path, size
        self._visible = size >= PROGRESS_BYTES and sys.stderr.isatty() and not sys.stdout.isatty()
        self._shown = 0.0

    def update(self, position: int) -> None:
        if self._visible and time.monotonic() - self._shown >= PROGRESS_INTERVAL_S:
            self._shown = time.monotonic()
            print(f"\r{self._path}: {position * 100 // self._size} % ", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self._visible:
            print(f"\r{self._path}: done    ", file=sys.stderr)
