"""The cheapest load: requests are encoded once and sent repeatedly over one socket. Responses are counted but not
parsed.

librdkafka needs more CPU than either broker here, so its figures show the client as much as the broker. This load
shows the broker. Both brokers get the same bytes: Produce version 7 with one batch, Fetch version 4 without a session.
Counts and deadlines limit it.
"""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import crc32c
import lz4.frame

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 7, 4
TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 20
HIGH_WATERMARK_END = 8


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


LZ4 = 3


def record_batch(payload: bytes, count: int, codec: int = 0) -> bytes:
    """A batch of magic 2 with `count` equal records, without compression or with LZ4."""
    now_ms = time.time_ns() // 1_000_000
    records = bytearray()
    for number in range(count):
        body = b"\0" + varint(0) + varint(number) + varint(-1) + varint(len(payload)) + payload + varint(0)
        records += varint(len(body)) + body
    if codec == LZ4:
        records = bytearray(lz4.frame.compress(bytes(records)))
    tail = struct.pack(">hiqqqhii", codec, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail


def frame(api_key: int, version: int, body: bytes) -> bytes:
    content = struct.pack(">hhih", api_key, version, 1, 5) + b"bench" + body
    return struct.pack(">i", len(content)) + content


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def produce_frame(topic: str, partitions: Sequence[int], acks: int, batch: bytes) -> bytes:
    """The same batch to each of the partitions."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic) + struct.pack(">i", len(partitions))
    parts = (struct.pack(">ii", partition, len(batch)) + batch for partition in partitions)
    return frame(PRODUCE, PRODUCE_VERSION, body + b"".join(parts))


def fetch_frame(topic: str, offset: int, max_bytes: int) -> bytes:
    body = struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1) + text(topic)
    return frame(FETCH, FETCH_VERSION, body + struct.pack(">iiqi", 1, 0, offset, max_bytes))


class Stream:
    """A connection that reads complete responses and returns their bodies."""

    def __init__(self, bootstrap: str, authority: str | None = None) -> None:
        """`authority`: the file with the certificate that a broker with TLS is known by."""
        host, port = bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if authority is not None:
            context = ssl.create_default_context(cafile=authority)
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._start = self._end = 0

    @property
    def has_more(self) -> bool:
        """Whether the beginning of another response is read already."""
        return self._end > self._start

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def reply(self, keep: int = 64) -> bytes:
        """The first `keep` bytes of the next response's content. The rest is skipped."""
        head = self._take(4)
        size = int.from_bytes(head, "big")
        kept = self._take(min(keep, size))
        self._skip(size - len(kept))
        return kept

    def _take(self, size: int) -> bytes:
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            elif len(self._buffer) - self._end < size:
                held = bytes(self._buffer[self._start : self._end])
                self._buffer[: len(held)] = held
                self._start, self._end = 0, len(held)
            self._receive()
        taken = bytes(self._buffer[self._start : self._start + size])
        self._start += size
        return taken

    def _skip(self, size: int) -> None:
        while size:
            step = min(size, self._end - self._start)
            self._start += step
            size -= step
            if size:
                self._start = self._end = 0
                self._receive()

    def _receive(self) -> None:
        count = self.socket.recv_into(memoryview(self._buffer)[self._end :])
        if not count:
            raise ConnectionError("the broker closed the connection")
        self._end += count


def error_of_produce(reply: bytes, topic: str) -> int:
    """The partition's error code in the content of a Produce version 7 response."""
    position = 4 + 4 + 2 + len(topic) + 4 + 4
    return int.from_bytes(reply[position : position + 2], "big", signed=True)


def raw_produce(job: dict[str, Any]) -> dict[str, float]:
    """Send `requests` with a batch of about `batch_bytes` to each of `partitions` over one connection, `in_flight` at a time."""
    per_batch = max(1, job.get("batch_bytes", 0) // job["size"])
    batch = record_batch(job["payload"], per_batch, job.get("codec", 0))
    topic, count, in_flight = job["topic"], job["requests"], job["in_flight"]
    partitions = range(job.get("partitions", 1))
    request = produce_frame(topic, partitions, -1 if job["acks"] == "all" else int(job["acks"]), batch)
    stream = Stream(job["bootstrap"], job.get("authority"))
    sent = received = 0
    began_s = time.time()
    started = time.perf_counter()
    while received < count:
        while sent < count and sent - received < in_flight:
            stream.send(request)
            sent += 1
        reply = stream.reply()
        received += 1
        if error_of_produce(reply, topic):
            raise RuntimeError(f"produce failed with error {error_of_produce(reply, topic)}")
    took = time.perf_counter() - started
    return {
        "requests_per_s": count / took,
        "records_per_s": count * per_batch * len(partitions) / took,
        "mb_per_s": count * len(batch) * len(partitions) / took / 1e6,
        "megabytes": count * len(batch) * len(partitions) / 1e6,
        "began_s": began_s,
        "seconds": took,
    }


def raw_paced(job: dict[str, Any]) -> dict[str, float]:
    """Send `requests` of one record to `partitions` each, `rate` a second. A late answer delays the next request."""
    batch = record_batch(job["payload"], 1)
    request = produce_frame(job["topic"], range(job.get("partitions", 1)), -1, batch)
    stream = Stream(job["bootstrap"])
    due = time.perf_counter()
    for _ in range(job["requests"]):
        due = max(due + 1 / job["rate"], time.perf_counter())
        time.sleep(max(0.0, due - time.perf_counter()))
        stream.send(request)
        error = error_of_produce(stream.reply(), job["topic"])
        if error:
            raise RuntimeError(f"produce failed with error {error}")
    return {}


def raw_fetch(job: dict[str, Any]) -> dict[str, float]:
    """Read a partition of equal batches repeatedly from its start: `requests` fetches of at most `max_bytes` each, at most
    `rate` a second."""
    per_batch = max(1, job["batch_bytes"] // job["size"])
    batch_size = len(record_batch(job["payload"], per_batch))
    step = job["max_bytes"] // batch_size * per_batch
    stream = Stream(job["bootstrap"])
    received = 0
    offset = 0
    end = job["records"] - step
    interval_s = 1 / job["rate"] if "rate" in job else 0.0
    started = time.perf_counter()
    for number in range(job["requests"]):
        if interval_s:
            time.sleep(max(0.0, started + number * interval_s - time.perf_counter()))
        stream.send(fetch_frame(job["topic"], offset, job["max_bytes"]))
        head = stream.reply(keep=64 + len(job["topic"]))
        size = struct.unpack_from(">i", head, 4 + 4 + 4 + 2 + len(job["topic"]) + 4 + 4 + 2 + 8 + 8 + 4)[0]
        if size <= 0:
            raise RuntimeError("a fetch came back empty")
        received += size
        offset = offset + step if offset + step < end else 0
    took = time.perf_counter() - started
    return {
        "mb_per_s": received / took / 1e6,
        "requests_per_s": job["requests"] / took,
        "megabytes": received / 1e6,
    }


def raw_exchanges(job: dict[str, Any]) -> dict[str, float]:
    """Send `requests` of those in the file `exchanges` over one connection, one after the other and again from the first,
    `in_flight` at a time. Each must get the response that the file has."""
    exchanges = [
        (bytes.fromhex(request), bytes.fromhex(reply))
        for request, reply in json.loads(Path(job["exchanges"]).read_text("utf-8"))
    ]
    stream = Stream(job["bootstrap"])
    count, in_flight = job["requests"], job["in_flight"]
    to_send, expected = (itertools.cycle(each) for each in zip(*exchanges, strict=True))
    sent = 0
    with stream.socket:
        started = time.perf_counter()
        for received in range(count):
            while sent < count and sent - received < in_flight:
                stream.send(next(to_send))
                sent += 1
            due = next(expected)
            reply = stream.reply(keep=RECEIVE_BYTES)
            if reply != due:
                raise RuntimeError(f"the response is {reply.hex()} and no longer {due.hex()}")
        return {"requests_per_s": count / (time.perf_counter() - started)}
