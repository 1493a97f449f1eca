"""A sink for foreachBatch that is exactly once for readers with isolation.level=read_committed.

    rows.writeStream.foreachBatch(TransactionalSink(kafka_options, "totals", "totals-writer")).start()

A batch is divided among a fixed number of writers by the rows' keys. Each writer is a task of Spark with a transactional
id of its own. It writes its rows in one transaction. The number of the batch is committed in the same transaction, as the
metadata of offsets of a group with the name of the transactional id. When Spark runs a batch again, a writer that
finds the batch in its group writes nothing.

Only one of two tasks of a writer can commit: a task first calls InitProducerId, which ends the transaction of the other
one and fences it, and asks for the last batch after that. So a task that comes late, of a driver that was given up for
dead too, finds its batch written. The group belongs to the checkpoint of the query: the metadata has the query's id.

The tasks are Python: executors need kafkacompat and confluent-kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.groups import address_of_options, batch_of, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMEOUT_S: Final = 60.0
TRANSACTION_TIMEOUT_MS: Final = 300_000
POLL_S: Final = 0.1
BATCH_BYTES: Final = 16_384
"""As Kafka's own producer has by default. A batch that is larger than its topic takes is refused, however small its records are:
librdkafka, whose default is a megabyte, does not divide it."""
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
COLUMNS: Final = ("key", "value", "headers")

Record = tuple[str | bytes | None, str | bytes | None, list[tuple[str, bytes]] | None]
"""Key, value and headers."""


class TransactionalSink:
    """Writes rows with the columns value and, if there are such, key and headers to one topic."""

    def __init__(
        self,
        kafka_options: Mapping[str, str],
        topic: str,
        name: str,
        *,
        writers: int = 1,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """`kafka_options`: as Spark's Kafka sink gets them. `name`: begins the transactional ids, NAME-0 to NAME-(writers - 1).
        It belongs to one query. `writers`: how many transactions a batch has. It must not change between two runs of a batch.
        `transaction_timeout_ms`: how long a transaction may take, and how long readers wait for one whose task has died."""
        settings = address_of_options(kafka_options).librdkafka()
        self._target = Target(topic, name, "", settings, transaction_timeout_ms)
        self._writers = writers

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a batch. Fails as a task of Spark does."""
        from pyspark.sql import functions as F

        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if query_id is None:
            raise RuntimeError("a TransactionalSink writes the batches of a streaming query, in foreachBatch")
        found = [name for name in COLUMNS if name in rows.columns]
        key = F.col("key" if "key" in found else "value")
        target = self._target.of_query(query_id)
        # By the content of a row: a row that is computed again goes to the same writer.
        rows.select(*found).repartition(self._writers, key).foreachPartition(
            partial(_write_partition, target, batch)
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Where and as whom a query writes."""

    topic: str
    name: str
    query_id: str
    settings: Mapping[str, str] = field(repr=False)
    """Of librdkafka. They may contain passwords."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS

    def of_query(self, query_id: str) -> Target:
        """Return the same for a query with this id."""
        return Target(self.topic, self.name, query_id, self.settings, self.transaction_timeout_ms)


def _write_partition(target: Target, batch: int, rows: Iterator[Any]) -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    write(target, context.partitionId(), batch, map(_record_of, rows))


def _record_of(row: Any) -> Record:
    told = row.asDict()
    headers = told.get("headers")
    return (
        _bytes(told.get("key")),
        _bytes(told["value"]),
        None if headers is None else [(each["key"], _bytes(each["value"])) for each in headers],
    )


def _bytes(content: Any) -> Any:
    return bytes(content) if isinstance(content, bytearray) else content


def write(target: Target, writer: int, batch: int, records: Iterable[Record]) -> bool:
    """Write the records of one writer in a transaction, unless it has written this batch. Return whether it wrote.

    Raises confluent_kafka's KafkaException. Then nothing is visible to readers of committed records, except after a
    failure without an answer to the commit: the next run of the batch finds out.
    """
    waiting = iter(records)
    first = next(waiting, None)
    if first is None:
        return False
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    transactional_id = f"{target.name}-{writer}"
    producer = Producer(
        {
            **target.settings,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": target.transaction_timeout_ms,
            # The partition of a key is that of Kafka's own producer, which Spark's sink uses.
            "partitioner": "murmur2_random",
            "batch.size": BATCH_BYTES,
            "log_level": 0,
        }
    )
    reader = Consumer(
        {
            **target.settings,
            "client.id": transactional_id,
            "group.id": transactional_id,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        # This order: the batch of a task that is fenced from now on is either seen, or will never be committed.
        producer.init_transactions(TIMEOUT_S)
        last = _last_batch(reader, target)
        if last is not None and last > batch:
            raise PipelineFailed(
                f"{transactional_id} has written batch {last} of this query, and gets batch {batch}: its checkpoint is an older "
                "copy, or another run has gone on. Go on with the newest checkpoint or, to start again, with an empty one"
            )
        if last == batch:
            return False
        producer.begin_transaction()
        try:
            ends = _produce(producer, target.topic, chain((first,), waiting))
            metadata = metadata_of(target.name, target.query_id, batch)
            offsets = [
                TopicPartition(target.topic, partition, end, metadata=metadata)
                for partition, end in ends.items()
            ]
            end_s = time.monotonic() + target.transaction_timeout_ms / 1000
            patiently(
                partial(producer.send_offsets_to_transaction, offsets, reader.consumer_group_metadata()),
                end_s,
            )
            patiently(partial(producer.commit_transaction, TIMEOUT_S), end_s)
        except BaseException as failure:
            if not (isinstance(failure, KafkaException) and failure.args[0].fatal()):
                # A failure to abort would hide the reason. The next InitProducerId aborts too.
                abort(producer)
            raise
    finally:
        reader.close()
    return True


def _produce(producer: Any, topic: str, records: Iterable[Record]) -> dict[int, int]:
    """Return the offset after the last record by partition, when all are acknowledged."""
    from confluent_kafka import KafkaException

    ends: dict[int, int] = {}
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
        else:
            ends[message.partition()] = message.offset() + 1

    for key, value, headers in records:
        while not failures:
            try:
                producer.produce(topic, value, key, headers=headers or [], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(POLL_S)
        if failures:
            break
        producer.poll(0)
    while not failures and producer.flush(POLL_S):
        pass
    if failures:
        raise KafkaException(failures[0])
    return ends


def _last_batch(reader: Any, target: Target) -> int | None:
    """Return the last batch of this query that the writer has committed."""
    from confluent_kafka import KafkaException, TopicPartition

    told = reader.list_topics(target.topic, timeout=TIMEOUT_S).topics[target.topic]
    if told.error is not None:
        raise KafkaException(told.error)
    asked = [TopicPartition(target.topic, partition) for partition in told.partitions]
    found = [batch_of(each.metadata, target.query_id) for each in reader.committed(asked, TIMEOUT_S)]
    return max((batch for batch in found if batch is not None), default=None)


def patiently(call: Any, end_s: float) -> None:
    """Call again after a failure that passes, as long as the transaction can last. Each call waits for the broker."""
    from confluent_kafka import KafkaException

    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() >= end_s:
                raise


def abort(producer: Any) -> None:
    from contextlib import suppress

    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        producer.abort_transaction(TIMEOUT_S)
