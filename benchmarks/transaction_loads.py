"""Transactional loads of one client process: transactions one after the other, and the time to a read_committed
consumer.

There are two clients in Python. One is librdkafka, as programs use it. The other encodes requests by hand for Kafka's
transaction.version 2: the partition joins its transaction with the first Produce version 12, and EndTxn version 5
returns the next epoch. It needs nearly no CPU, so it shows the broker. Kafka's Java client is in TransactionLoop.java.
All are limited in seconds.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

import crc32c
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.raw import Stream, frame, record_batch, text

FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, END_TXN = 10, 22, 0, 26
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS = 15, 16, 51
READY_S = 30.0
RETRY_S = 0.001
"""A client's own retry waits 20 ms or more. This load retries at once, so that the figure shows the broker's time."""
CRC_AT, CRC_FROM, PRODUCER_AT = 17, 21, 43
TRANSACTIONAL = 0x10


def compact(value: bytes) -> bytes:
    return unsigned(len(value) + 1) + value


def unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def flexible_frame(api_key: int, version: int, body: bytes) -> bytes:
    return frame(api_key, version, b"\0" + body)


class RawTransactions:
    """One transactional id over one connection to the broker that is its coordinator and leads the partition."""

    def __init__(self, bootstrap: str, transactional_id: str, topic: str, batch: bytes) -> None:
        self._stream = Stream(bootstrap)
        self._id = transactional_id.encode()
        self._topic = topic.encode()
        self._batch = bytearray(batch)
        attributes = struct.unpack_from(">h", batch, CRC_FROM)[0] | TRANSACTIONAL
        struct.pack_into(">h", self._batch, CRC_FROM, attributes)
        self._producer_id, self._epoch = self._initialise()
        self.asked_again = 0

    def _initialise(self) -> tuple[int, int]:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self._stream.send(frame(FIND_COORDINATOR, 1, text(self._id.decode()) + b"\1"))
            if struct.unpack_from(">h", self._stream.reply(), 8)[0] == 0:
                self._stream.send(
                    frame(INIT_PRODUCER_ID, 1, text(self._id.decode()) + struct.pack(">i", 60_000))
                )
                error, producer_id, epoch = struct.unpack_from(">hqh", self._stream.reply(), 8)
                if error == 0:
                    return producer_id, epoch
                if error not in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS, 14):
                    raise RuntimeError(f"InitProducerId was answered by error {error}")
            time.sleep(0.05)
        raise TimeoutError("the transaction coordinator did not become available")

    def carry_out(self) -> None:
        """One transaction: a batch and its commit. The sequence numbers of each epoch start at 0."""
        batch = self._batch
        struct.pack_into(">qhi", batch, PRODUCER_AT, self._producer_id, self._epoch, 0)
        struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(memoryview(batch)[CRC_FROM:]))
        partition = struct.pack(">i", 0) + compact(bytes(batch)) + b"\0"
        topic = compact(self._topic) + b"\2" + partition + b"\0"
        body = compact(self._id) + struct.pack(">hi", -1, 30_000) + b"\2" + topic + b"\0"
        # The error follows the correlation id and tags, one topic and its name, one partition and its number.
        self._until_taken(flexible_frame(PRODUCE, 12, body), 4 + 1 + 1 + 1 + len(self._topic) + 1 + 4)
        body = compact(self._id) + struct.pack(">qh?", self._producer_id, self._epoch, True) + b"\0"
        reply = self._until_taken(flexible_frame(END_TXN, 5, body), 9)
        self._producer_id, self._epoch = struct.unpack_from(">qh", reply, 11)

    def _until_taken(self, request: bytes, error_at: int) -> bytes:
        """The content of the response. A broker may ask to retry while it completes the previous transaction."""
        deadline = time.monotonic() + READY_S
        while True:
            self._stream.send(request)
            reply = self._stream.reply(keep=256)
            error = struct.unpack_from(">h", reply, error_at)[0]
            if error == 0:
                return reply
            if error != CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                raise RuntimeError(f"a transaction's request was answered by error {error}")
            self.asked_again += 1
            time.sleep(RETRY_S)


def rate(carry_out: Any, warm_s: float, seconds: float) -> dict[str, float]:
    """Calls per second over `seconds`, after `warm_s` seconds that do not count."""
    warm = time.perf_counter() + warm_s
    while time.perf_counter() < warm:
        carry_out()
    count = 0
    started = time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        carry_out()
        count += 1
    return {"transactions_per_s": count / took, "transactions": count}


def raw_transactions(job: dict[str, Any]) -> dict[str, float]:
    batch = record_batch(job["payload"], job["records"])
    transactions = RawTransactions(job["bootstrap"], "raw", job["topic"], batch)
    return rate(transactions.carry_out, job["warm_s"], job["seconds"])


def transactional_producer(job: dict[str, Any], name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "transactional.id": name,
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
    )
    producer.init_transactions(READY_S)
    return producer


def librdkafka_transactions(job: dict[str, Any]) -> dict[str, float]:
    producer = transactional_producer(job, "librdkafka")
    topic, payload, records = job["topic"], job["payload"], job["records"]

    def carry_out() -> None:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, payload)
        producer.commit_transaction(READY_S)

    return rate(carry_out, job["warm_s"], job["seconds"])


def committed_latency(job: dict[str, Any]) -> dict[str, float]:
    """Transactions of one record at a fixed rate. Figures: ms from produce to a waiting read_committed consumer, p50
    and p99."""
    consumer = Consumer(
        {
            "bootstrap.servers": job["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(job["topic"], 0, 0)])
    producer = transactional_producer(job, "latency")
    count, interval, filler = job["count"], 1.0 / job["rate"], job["payload"]
    samples: list[float] = []

    def read() -> None:
        deadline = time.monotonic() + count * interval + READY_S
        while len(samples) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                samples.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    started = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, started + number * interval - time.perf_counter()))
        producer.begin_transaction()
        producer.produce(job["topic"], b"%020d" % time.perf_counter_ns() + filler)
        producer.commit_transaction(READY_S)
    reader.join()
    consumer.close()
    if len(samples) < count:
        raise TimeoutError(f"{len(samples)} of {count} records came back")
    samples = sorted(samples[count // 10 :])
    return {"p50_ms": samples[len(samples) // 2], "p99_ms": samples[int(len(samples) * 0.99)]}
