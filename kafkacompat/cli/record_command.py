"""Runs a program for one record, and tells from the end of that program what becomes of the record.

Pure except for `run_for`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from enum import Enum

from kafkacompat.cli.output import signals_later
from kafkacompat.cli.share_reader import Delivery
from kafkacompat.failure import CommandFailed

REJECTED = 65
"""EX_DATAERR of sysexits.h: the record is at fault, and another attempt is of no use."""
TEMPORARY = 75
"""EX_TEMPFAIL of sysexits.h: the record is not at fault."""
NOT_RUN = (126, 127)
"""The statuses of shells, env and xargs for a program that cannot be run. The worker is at fault."""
TICK_S = 0.2
TERMINATION_S = 5.0
"""A program that is ended has this long after SIGTERM."""
KEY_BYTES_MAX = 64 * 1024
"""Linux takes 128 KiB for one variable."""


class Outcome(Enum):
    ACCEPT = "accepted"
    RELEASE = "released"
    REJECT = "rejected"


def words_of(command: str) -> list[str]:
    """Split as a shell does, without its other meanings. Raises CommandFailed if there is no such program."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandFailed(f"--exec: {error}") from error
    if not words:
        raise CommandFailed("--exec takes a command")
    if shutil.which(words[0]) is None:
        raise CommandFailed(f"--exec: there is no program {words[0]}")
    return words


def outcome_of(status: int, deliveries: int, retries: int | None) -> Outcome:
    """`status` is negative for a signal. `deliveries` includes this attempt."""
    if status == 0:
        return Outcome.ACCEPT
    if status == REJECTED:
        return Outcome.REJECT
    is_counted = status > 0 and status != TEMPORARY
    if is_counted and retries is not None and deliveries > retries:
        return Outcome.REJECT
    return Outcome.RELEASE


def ending_of(status: int) -> str:
    """The status in words."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def variables_of(delivery: Delivery) -> dict[bytes, bytes]:
    """The environment variables that describe a record. Those that an environment cannot hold are left out."""
    record = delivery.record
    found = {
        b"RECORD_TOPIC": delivery.topic.encode(),
        b"RECORD_PARTITION": b"%d" % delivery.place[1],
        b"RECORD_OFFSET": b"%d" % delivery.offset,
        b"RECORD_TIMESTAMP": b"%d" % record.timestamp_ms,
        b"RECORD_DELIVERY_COUNT": b"%d" % delivery.count,
    }
    if record.key is not None and len(record.key) <= KEY_BYTES_MAX and b"\0" not in record.key:
        found[b"RECORD_KEY"] = bytes(record.key)
    if record.value is None:
        found[b"RECORD_VALUE_IS_NULL"] = b"1"
    return found


def run_for(delivery: Delivery, words: list[str], limit_s: float | None, tend: Callable[[], None]) -> int:
    """Run the program to its end and return its status, negative for a signal. `tend` is called meanwhile. The program
    is ended after the limit, and if this is interrupted."""
    inherited = {name: value for name, value in os.environb.items() if not name.startswith(b"RECORD_")}
    process: subprocess.Popen[bytes] | None = None
    deadline = None if limit_s is None else time.monotonic() + limit_s
    value: bytes | None = bytes(delivery.record.value or b"")
    try:
        # A signal within Popen would leave a program that nobody ends.
        with signals_later():
            process = started(words, inherited | variables_of(delivery))
        while True:
            try:
                process.communicate(value, timeout=TICK_S)
                return process.returncode
            except subprocess.TimeoutExpired:
                value = None
            if deadline is not None and time.monotonic() >= deadline:
                end(process)
                return -signal.SIGTERM
            tend()
    except BaseException:
        if process is not None:
            end(process)
        raise


def started(words: list[str], environment: dict[bytes, bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, process_group=0)
    except OSError as error:
        raise CommandFailed(f"--exec: {words[0]}: {error.strerror or error}") from error


def end(process: subprocess.Popen[bytes]) -> None:
    """End the program and those that it started."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(TERMINATION_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # A program that has ended, and was not waited for, keeps its number: the group is still this one.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
