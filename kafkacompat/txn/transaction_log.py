"""The records of `__transaction_state`, as Kafka writes them.

It converts transactions to key and value bytes and back. Value version 1 (flexible, with tagged fields) is written
from transaction.version 1 on. Both versions are always read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from typing import NamedTuple

from kafkacompat.coordinator.core import LoadFailure, decoded_in_steps
from kafkacompat.ids import NO_PRODUCER_ID, TopicPartition
from kafkacompat.tasks import at_once
from kafkacompat.txn.transaction_metadata import NO_PARTITIONS, TransactionState, TxnTransitMetadata
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.codec_source import STEP_UNITS
from kafkacompat.wire.messages.transaction_log_key import TransactionLogKey
from kafkacompat.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

KEY_VERSION = 0
FLEXIBLE_VALUE_VERSION = 1
WRITABLE_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


class TransactionRecord(NamedTuple):
    transactional_id: str
    values: TxnTransitMetadata | None
    """None if the id was removed."""
    value_version: int = FLEXIBLE_VALUE_VERSION


def value_version_for(transaction_version: int) -> int:
    """The value version for the finalized level of the feature."""
    return FLEXIBLE_VALUE_VERSION if transaction_version >= 1 else 0


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics and partitions, both sorted. Sorting only the numbers is fast for a transaction with very many
    partitions."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        topics[topic].append(index)
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = _with_version(KEY_VERSION, TransactionLogKey(transactional_id=record.transactional_id))
    values = record.values
    if values is None:
        return key, None
    topics = partitions_by_topic(values.partitions)
    message = TransactionLogValue(
        producer_id=values.producer_id,
        previous_producer_id=values.prev_producer_id,
        next_producer_id=values.next_producer_id,
        producer_epoch=values.epoch,
        transaction_timeout_ms=values.timeout_ms,
        transaction_status=values.state,
        transaction_partitions=None
        if values.state is TransactionState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
        transaction_last_update_timestamp_ms=values.last_update_ms,
        transaction_start_timestamp_ms=values.start_ms,
        client_transaction_version=values.client_transaction_version,
    )
    if record.value_version < FLEXIBLE_VALUE_VERSION:
        message.previous_producer_id = message.next_producer_id = NO_PRODUCER_ID
        message.client_transaction_version = 0
    return key, _with_version(record.value_version, message)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Run `decode_in_steps` at once."""
    return at_once(decode_in_steps(key, value))


def decode_in_steps(key: bytes, value: bytes | None) -> Generator[int, None, TransactionRecord | None]:
    """The record, in steps that report their cost, because a value may have very many partitions.

    None for an unknown kind of key or value. A downgrade may have left it, and Kafka skips it too. Raises LoadFailure
    or WireError.
    """
    if int.from_bytes(key[:2], "big", signed=True) != KEY_VERSION:
        return None
    transactional_id = decode(TransactionLogKey, KEY_VERSION, key, 2).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= TransactionLogValue.MAX_VERSION:
        return None
    message = yield from decoded_in_steps(TransactionLogValue, version, value)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError as error:
        raise LoadFailure(f"transactional id {transactional_id!r}: {error}") from error
    if state not in WRITABLE_STATES:
        raise LoadFailure(f"transactional id {transactional_id!r} is recorded as {state.name}")
    partitions = NO_PARTITIONS
    if message.transaction_partitions:
        named: set[TopicPartition] = set()
        for each in message.transaction_partitions:
            for start in range(0, len(each.partition_ids), STEP_UNITS):
                part = each.partition_ids[start : start + STEP_UNITS]
                named.update([TopicPartition(each.topic, index) for index in part])
                yield len(part)
            yield 1
        partitions = frozenset(named)
    return TransactionRecord(
        transactional_id,
        TxnTransitMetadata(
            producer_id=message.producer_id,
            epoch=message.producer_epoch,
            timeout_ms=message.transaction_timeout_ms,
            state=state,
            last_update_ms=message.transaction_last_update_timestamp_ms,
            partitions=partitions,
            start_ms=message.transaction_start_timestamp_ms,
            prev_producer_id=message.previous_producer_id,
            next_producer_id=message.next_producer_id,
            client_transaction_version=message.client_transaction_version,
        ),
        version,
    )


def _with_version(version: int, message: TransactionLogKey | TransactionLogValue) -> bytes:
    return version.to_bytes(2, "big") + encode(message, version)
