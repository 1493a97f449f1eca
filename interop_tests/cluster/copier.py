"""Copies one partition of a topic to the same partition of another, exactly once, in transactions. It may be killed
with -9.

python -m interop_tests.cluster.copier BOOTSTRAP SOURCE TARGET PARTITION NAME INPUTS
"""

from __future__ import annotations

import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from interop_tests.harness.librdkafka import CONNECTED_TO_ALL

BATCH = 20
TIMEOUT_S = 60.0
STUCK_S = 30.0
"""An attempt without progress for this time is given up. It is longer than a transaction's timeout."""


class Copier:
    """Copies one partition of the source to the same partition of the target, with `BATCH` records per transaction.
    Every fifth transaction is aborted.

    After any failure that is not abortable, a new producer is created, as in a restarted application. The same happens
    when an attempt is stuck: librdkafka may wait forever for a group coordinator that was missing in the metadata
    while it was away (its issue 5511). If the abandoned attempt continues, its producer is fenced.
    """

    def __init__(
        self, bootstrap: str, source: str, target: str, partition: int, name: str, inputs: int
    ) -> None:
        self._bootstrap = bootstrap
        self._source = TopicPartition(source, partition)
        self._target = target
        self._name = name
        self._inputs = inputs
        self.copied = 0
        self.restarts = 0
        self.faults: list[str] = []
        self.ended = threading.Event()
        self._attempt = 0
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def stop(self) -> None:
        self.ended.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "a copier hangs"

    def _supervise(self) -> None:
        while not self.ended.is_set() and self.copied < self._inputs:
            self._attempt += 1
            worker = threading.Thread(target=self._run, args=(self._attempt,), daemon=True)
            worker.start()
            seen, since = (self.copied, self.restarts), time.monotonic()
            while worker.is_alive():
                worker.join(0.2)
                if seen != (self.copied, self.restarts):
                    seen, since = (self.copied, self.restarts), time.monotonic()
                elif time.monotonic() - since > STUCK_S:
                    self.faults.append(f"stuck at {self.copied}")
                    break

    def _goes_on(self, attempt: int) -> bool:
        return attempt == self._attempt and not self.ended.is_set() and self.copied < self._inputs

    def _run(self, attempt: int) -> None:
        while self._goes_on(attempt):
            consumer = self._consumer()
            try:
                self._copy(consumer, attempt)
            except KafkaException as error:
                if attempt == self._attempt:
                    self.restarts += 1
                    self.faults.append(str(error))
                self.ended.wait(0.2)
            finally:
                consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **CONNECTED_TO_ALL,
            }
        )

    def _copy(self, consumer: Consumer, attempt: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "transaction.timeout.ms": 20_000,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        (committed,) = consumer.committed([self._source], TIMEOUT_S)
        if attempt != self._attempt:
            return
        self.copied = max(committed.offset, 0)
        consumer.assign([TopicPartition(self._source.topic, self._source.partition, self.copied)])
        turn = 0
        while self._goes_on(attempt):
            messages = [each for each in consumer.consume(BATCH, 1.0) if each.error() is None]
            if not messages:
                continue
            turn += 1
            try:
                producer.begin_transaction()
                for message in messages:
                    producer.produce(self._target, message.value(), partition=self._source.partition)
                end = messages[-1].offset() + 1
                producer.send_offsets_to_transaction(
                    [TopicPartition(self._source.topic, self._source.partition, end)],
                    consumer.consumer_group_metadata(),
                    TIMEOUT_S,
                )
                if turn % 5 == 4:
                    producer.flush(TIMEOUT_S)
                    producer.abort_transaction(TIMEOUT_S)
                    end = self.copied
                else:
                    self._commit(producer)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)
                end = self.copied
            if attempt != self._attempt:
                return
            self.copied = end
            consumer.seek(TopicPartition(self._source.topic, self._source.partition, end))

    def _commit(self, producer: Producer) -> None:
        """Retry until the outcome of the transaction is known."""
        while True:
            try:
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


if __name__ == "__main__":
    bootstrap, source, target, partition, name, inputs = sys.argv[1:]
    Copier(bootstrap, source, target, int(partition), name, int(inputs)).wait()
