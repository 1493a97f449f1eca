"""A member of a group that copies a topic exactly once, with aiokafka. It prints the same lines as librdkafka.py.

python -m interop_tests.cluster.copiers.with_aiokafka BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from interop_tests.cluster.copiers.librdkafka import BATCH, FAILED_FOR_GOOD, say

FAILURES_MAX = 20


async def copy(bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    common = {"bootstrap_servers": bootstrap, "client_id": name}
    producer = AIOKafkaProducer(**common, transactional_id=name, transaction_timeout_ms=20_000)
    await producer.start()
    consumer = AIOKafkaConsumer(
        source,
        **common,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=BATCH,
    )
    await consumer.start()
    say("ready")
    failures = 0
    while failures < FAILURES_MAX:
        batches = await consumer.getmany(timeout_ms=200)
        if not batches:
            continue
        try:
            await copy_batches(producer, batches, target, group)
        except ProducerFenced:
            raise
        except KafkaError as error:
            failures += 1
            say(f"failed {error!r}")
            await rewind(consumer)
        else:
            failures = 0
            say(f"committed {sum(map(len, batches.values()))}")


async def copy_batches(
    producer: AIOKafkaProducer, batches: dict[Any, list[Any]], target: str, group: str
) -> None:
    async with producer.transaction():
        for partition, records in batches.items():
            for record in records:
                await producer.send(target, record.value, partition=partition.partition)
        ends = {partition: records[-1].offset + 1 for partition, records in batches.items()}
        await producer.send_offsets_to_transaction(ends, group)


async def rewind(consumer: AIOKafkaConsumer) -> None:
    """Go back to the committed offsets of the partitions that are still assigned to this member."""
    while True:
        try:
            for partition in consumer.assignment():
                consumer.seek(partition, await consumer.committed(partition) or 0)
        except KafkaError as error:
            say(f"failed {error!r}, rewinding")
        else:
            return


async def main(words: list[str]) -> int:
    try:
        await copy(*words)
        say("ended after too many failures")
    except KafkaError as error:
        say(f"ended {error!r}")
    return FAILED_FOR_GOOD


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
