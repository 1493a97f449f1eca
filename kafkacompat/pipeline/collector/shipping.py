"""Sends lines to the broker and tracks acknowledgements: acks=all, idempotent producer. Knows only the identity of
files.

No line is ever dropped: after a failure it is sent again with the same event id. The amount in flight is bounded, so
callers check `room` first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kafkacompat.pipeline.collector.followed import Chunk
from kafkacompat.pipeline.collector.lines import Line
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import (
    CUT_HEADER,
    FIELDS_HEADER,
    FILE_HEADER,
    LOGS_RAW,
    POSITION_HEADER,
    SOURCE_HEADER,
)
from kafkacompat.security.cluster_address import ClusterAddress

MAX_ON_THE_WAY_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of unacknowledged lines. Each line counts LINE_COST_BYTES extra for its key, headers and place in the queue."""

LINE_COST_BYTES: Final = 512
MOST_PER_TURN: Final = 10_000
CLIENT_ID: Final = "kafkacompat-collector"

TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
STAMP_AGE_MAX_MS: Final = 10 * 60 * 1000
"""The client sets a line's timestamp when the line is produced. A line that waits longer than this for the broker is
produced again, with a new timestamp.

The timestamp must not be older than those of other hosts by the duplicate horizon (--duplicate-horizon, an hour). The
jobs would count the line as late, and it would reach no table.
"""

TOO_OLD: Final = "_MSG_TIMED_OUT"
ALONE_TIMEOUT_S: Final = 2.0
TOPIC_TIMEOUT_S: Final = 3.0
RECONNECT_MAX_MS: Final = 2000

Headers = list[tuple[str, bytes]]
_Unsent = tuple[Chunk, bytes, bytes, Headers]


class Shipper:
    """One producer, which is replaced after a fatal error."""

    def __init__(
        self,
        bootstrap: ClusterAddress,
        host: str,
        ensure_topics: Callable[[], object],
        stamp_age_max_ms: int = STAMP_AGE_MAX_MS,
        topic: str = LOGS_RAW,
        fields: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """host: the start of `source`. ensure_topics is called if the topic is missing. fields: headers of every line."""
        self._fields = fields
        self._topic = topic
        self._bootstrap = bootstrap
        self._stamp_age_max_ms = stamp_age_max_ms
        self._host = host
        self._ensure_topics = ensure_topics
        self._again: deque[_Unsent] = deque()
        self._alone: deque[_Unsent] = deque()
        from confluent_kafka import KafkaException

        self._refusal = KafkaException
        self._producer = self._new_producer()
        self._broken = False
        self._topic_missing = False
        self.on_the_way_bytes = 0
        self.acknowledged_lines = 0
        self.acknowledged_bytes = 0
        self.cut_lines = 0
        self.resent_lines = 0
        self.trouble: str | None = None
        """The client's last error, until a line is acknowledged again."""

    @property
    def room(self) -> bool:
        """Whether more lines may be sent."""
        return self.on_the_way_bytes < MAX_ON_THE_WAY_BYTES

    def seek_topic(self) -> None:
        """The broker could not be asked for the topic yet. Each turn asks until it answers."""
        self._topic_missing = True

    def ship(self, chunk: Chunk, lines: list[Line], identity: str, path: str) -> None:
        """Send the lines of one chunk."""
        source = (self._host + path).encode("utf-8", "surrogateescape")
        fixed = [(SOURCE_HEADER, source), (FILE_HEADER, identity.encode("ascii")), *self._fields]
        produce = self._produce
        self.on_the_way_bytes += chunk.size_bytes + len(lines) * LINE_COST_BYTES
        for position, value, length, fields in lines:
            headers = [*fixed, (POSITION_HEADER, b"%d" % position)]
            if fields:
                headers.append((FIELDS_HEADER, fields))
            if length != len(value):
                self.cut_lines += 1
                headers.append((CUT_HEADER, b"%d" % length))
            produce((chunk, value, source, headers))

    def turn(self, timeout_s: float) -> None:
        """Process acknowledgements for at most timeout_s, and send failed lines again."""
        self._producer.poll(timeout_s)
        if self._topic_missing:
            self._make_topic()
        if self._broken:
            # A fatal error of the idempotent producer. It accepts nothing more, and returns all its lines.
            self._producer.purge()
            if not self._producer.flush(1.0):
                # Otherwise nobody would send the lines that it has not returned yet.
                self._replace_producer()
        for _ in range(min(len(self._again), MOST_PER_TURN)):
            if not self._produce(self._again.popleft()):
                # Sending the other lines would fail too.
                break
            self.resent_lines += 1
        if self._alone:
            self._send_alone()

    def flush(self, timeout_s: float) -> bool:
        """Wait for the lines in flight. Return whether all were acknowledged."""
        self._producer.flush(timeout_s)
        return self.on_the_way_bytes == 0

    def close(self) -> None:
        """Drop the lines in flight. The next run sends them again."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _new_producer(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                **self._bootstrap.librdkafka(),
                "client.id": CLIENT_ID,
                "acks": "all",
                "enable.idempotence": True,
                # A line that the client gives up after this time is sent again, without limit.
                "message.timeout.ms": self._stamp_age_max_ms,
                "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.kbytes": 2 * MAX_ON_THE_WAY_BYTES // 1024,
                "log_level": 0,
                "error_cb": self._heard,
            }
        )

    def _replace_producer(self) -> None:
        try:
            self._producer = self._new_producer()
        except self._refusal as refusal:
            # The system gives the client no thread, or a file of the settings is being replaced. The next turn tries again.
            self.trouble = refusal.args[0].str()
        else:
            self._broken = False

    def _make_topic(self) -> None:
        try:
            self._ensure_topics()
            # The client refuses lines until it has new metadata of the topic, and it stops asking for them after a
            # while.
            self._producer.list_topics(self._topic, timeout=TOPIC_TIMEOUT_S)
            self._topic_missing = False
        except PipelineFailed as failure:
            self.trouble = str(failure)
        except self._refusal as refusal:
            self.trouble = refusal.args[0].str()

    def _produce(self, unsent: _Unsent) -> bool:
        """Return whether the client accepts the line. Otherwise it is queued to be sent again."""
        chunk, value, key, headers = unsent
        delivered = partial(self._delivered, chunk, headers)
        while True:
            try:
                self._producer.produce(
                    self._topic, value=value, key=key, headers=headers, on_delivery=delivered
                )
                return True
            except BufferError:
                self._producer.poll(0.1)
            except self._refusal as refusal:
                self._refused(unsent, refusal.args[0])
                return False

    def _heard(self, error: Any) -> None:
        self.trouble = error.str()
        self._broken = self._broken or error.fatal()

    def _delivered(self, chunk: Chunk, headers: Headers, error: Any, message: Any) -> None:
        value = message.value() or b""
        if error is None:
            self.trouble = None
            self.acknowledged_lines += 1
            self.acknowledged_bytes += len(value)
            self.on_the_way_bytes -= len(value) + LINE_COST_BYTES
            chunk.missing -= 1
            if not chunk.missing:
                chunk.file.acknowledge()
            return
        self._refused((chunk, value, message.key(), headers), error)

    def _refused(self, unsent: _Unsent, error: Any) -> None:
        code = error.name()
        if code != TOO_OLD or self.trouble is None:
            # The reason for a long wait was usually reported before. Errors that the client retries silently were not.
            self.trouble = error.str()
        if code in TOO_LARGE:
            # The batch may have been too large, rather than this line.
            self._alone.append(unsent)
            return
        if code in NO_TOPIC:
            self._topic_missing = True
        elif error.fatal() or code == "_FATAL":
            self._broken = True
        self._again.append(unsent)

    def _send_alone(self) -> None:
        """Send lines that were refused as too large, each in a separate batch. Cut a line in half until the topic accepts it."""
        for _ in range(len(self._alone)):
            if self._producer.flush(ALONE_TIMEOUT_S):
                return
            chunk, value, key, headers = self._alone.popleft()
            self.resent_lines += 1
            refused = len(self._alone)
            self._produce((chunk, value, key, headers))
            self._producer.flush(ALONE_TIMEOUT_S)
            if len(self._alone) > refused and value:
                self._alone.pop()
                if not any(name == CUT_HEADER for name, _ in headers):
                    self.cut_lines += 1
                    headers = [*headers, (CUT_HEADER, b"%d" % len(value))]
                shorter = value[: len(value) // 2]
                self.on_the_way_bytes -= len(value) - len(shorter)
                self._alone.appendleft((chunk, shorter, key, headers))
