"""Decodes values in a schema registry's wire format: Avro and Protobuf as JSON. Blocking: called in worker threads.

Whoever writes to a topic chooses the bytes, and whoever registers a schema may make them expensive: a few bytes may become
gigabytes. So a process of its own decodes (decoder_process.py). Its memory is bounded, and it is killed if it takes too long.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafkacompat.console.core.decoding import MAX_JSON_BYTES
from kafkacompat.pipeline.schemas.client import RegistrySettings
from kafkacompat.pipeline.schemas.wire_format import HEAD_BYTES, MAGIC

TIMEOUT_S: Final = 12.0
"""For one value. The registry may take 10 s of it, and protoc reads a schema."""
REST_S: Final = 10.0
"""After a value that took longer, or whose decoder ended, nothing is decoded for this time, so that a page of such values comes."""
PAGE_S: Final = 8.0
"""For the values of one page. Those after that time are shown as bytes: the page must come, and others wait for the decoder."""
COMMAND: Final = (sys.executable, "-m", "kafkacompat.console.decoder_process")


@dataclass(frozen=True, slots=True)
class Told:
    """A value as its schema says, or why it is not decoded. text: JSON, indented. writer: format, type and id of the schema."""

    text: str = ""
    writer: str = ""
    problem: str = ""


def is_framed(value: bytes | None) -> bool:
    """Whether a value may be in the wire format."""
    return value is not None and len(value) >= HEAD_BYTES and value[0] == MAGIC


class Decoder:
    """The values of one registry. It starts its process with the first of them."""

    __slots__ = ("_command", "_lock", "_now", "_process", "_resting_until_s", "_settings", "_why")

    def __init__(
        self,
        settings: RegistrySettings,
        command: tuple[str, ...] = COMMAND,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._command = command
        self._now = now
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._resting_until_s: float | None = None
        self._why = ""

    def decoded(self, value: bytes | None) -> Told | None:
        """Return what a value says. None for one that is not in the wire format."""
        if value is None or not is_framed(value):
            return None
        if len(value) > MAX_JSON_BYTES:
            return Told(problem=f"it is longer than {MAX_JSON_BYTES:,} bytes")
        with self._lock:
            if self._resting_until_s is not None and self._now() < self._resting_until_s:
                return Told(problem=self._why)
            try:
                answer = json.loads(self._ask(base64.b64encode(value)))
            except (OSError, ValueError):
                self._end()
                self._resting_until_s = self._now() + REST_S
                self._why = (
                    f"a value took more than {TIMEOUT_S:.0f} s or too much memory, so nothing is decoded for "
                    f"{REST_S:.0f} s"
                )
                return Told(problem=self._why)
        return Told(**answer)

    def of_page(self) -> PageDecoder:
        """Return what decodes the values of one page."""
        return PageDecoder(self, self._now)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _ask(self, line: bytes) -> bytes:
        """Return the line that answers. Empty if the process has ended."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        killing = threading.Timer(TIMEOUT_S, self._process.kill)
        killing.start()
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()
        finally:
            killing.cancel()

    def _start(self) -> None:
        self._end()
        # In a session of its own, so that Ctrl-C in a terminal ends the console first.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        # Not among the arguments, which other users of the machine can read.
        self._process.stdin.write(self._settings.encoded().encode() + b"\n")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class PageDecoder:
    """A Decoder for the values of one page, until PAGE_S have passed."""

    __slots__ = ("_decoder", "_now", "_until_s")

    def __init__(self, decoder: Decoder, now: Callable[[], float]) -> None:
        self._decoder = decoder
        self._now = now
        self._until_s = now() + PAGE_S

    def decoded(self, value: bytes | None) -> Told | None:
        """As in Decoder."""
        if is_framed(value) and self._now() >= self._until_s:
            return Told(
                problem=f"the values before it took more than {PAGE_S:.0f} s to decode: ask for fewer records"
            )
        return self._decoder.decoded(value)
