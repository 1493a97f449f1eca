"""Standard input as a source of lines: read, ship, wait for the acknowledgements. One thread.

What was read cannot be read again, so there is no state. While the broker is away the pipe fills, and its writer waits.
"""

from __future__ import annotations

import os
import secrets
import select
from collections.abc import Callable
from typing import Final

from kafkacompat.pipeline.collector.followed import Chunk, Mark
from kafkacompat.pipeline.collector.identity import origin_of
from kafkacompat.pipeline.collector.lines import Begins, Line, LineCutter, RecordCutter, with_fields
from kafkacompat.pipeline.collector.running import (
    READ_BYTES,
    RECORD_WAIT_S,
    STOP_TIMEOUT_S,
    Figures,
    ship_stream,
    stream_figures,
)
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import LINE_BYTES_MAX

PATH: Final = "/dev/stdin"
"""What the source of a line has in place of a file's path."""


class StandardInput:
    """The lines of one run. Their event ids are those of no other run."""

    def __init__(
        self, shipper: Shipper, host: str = "", descriptor: int = 0, begins: Begins | None = None
    ) -> None:
        """begins: the rule that puts lines together."""
        self._shipper = shipper
        self._descriptor = descriptor
        self._identity = f"{origin_of(host)}-stdin-{secrets.token_hex(8)}"
        self._cutter = LineCutter(0) if begins is None else RecordCutter(0, LINE_BYTES_MAX, begins)
        self._fields = b""
        self._read_s = float("-inf")
        self.has_ended = False

    def run(self, stopping: Callable[[], bool], tell: Callable[[Figures], None]) -> None:
        """Run until stopping() is true, or until everything is shipped. PipelineFailed if something was read and could not
        be shipped before a stop."""
        ship_stream(self, self._shipper, stopping, tell)
        # Its lines are whole, and nobody can read them again.
        self._finish_record()
        lost = self._cutter.waiting_bytes
        if not self._shipper.flush(STOP_TIMEOUT_S):
            lost += self._shipper.on_the_way_bytes
        tell(self.figures())
        if lost:
            raise PipelineFailed(
                f"the collector was stopped with {lost:,} bytes of standard input that are not shipped"
            )

    def turn(self, timeout_s: float, now_s: float) -> bool:
        """Read and ship what there is, waiting for it at most timeout_s. Return whether anything was read."""
        if self.has_ended or not self._shipper.room:
            return False
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            if now_s - self._read_s >= RECORD_WAIT_S:
                self._finish_record()
            return False
        self._read_s = now_s
        data = os.read(self._descriptor, READ_BYTES)
        if not data:
            self.has_ended = True
            # The end of the stream ends the last line too.
            data = b"\n" if self._cutter.part_bytes else b""
        lines = self._cutter.feed(data)
        if lines:
            self._ship(lines)
        if self.has_ended:
            self._finish_record()
        return bool(data)

    def _finish_record(self) -> None:
        if isinstance(self._cutter, RecordCutter) and (lines := self._cutter.finish()):
            self._ship(lines)

    def figures(self) -> Figures:
        """Return the figures since the start."""
        return stream_figures(self._shipper, self._cutter.waiting_bytes, None)

    def acknowledge(self) -> bool:
        """The broker has acknowledged a chunk. There is no position to save."""
        return True

    def _ship(self, lines: list[Line]) -> None:
        self._fields, lines = with_fields(lines, self._fields)
        end = Mark(self._cutter.start, "")
        chunk = Chunk(self, end, len(lines), sum(len(line.value) for line in lines))
        self._shipper.ship(chunk, lines, self._identity, PATH)
