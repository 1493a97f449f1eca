"""aiokafka, unmodified: produce, consume, groups, offsets and admin calls. Each test runs a new asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

TIME_LIMIT_S = 60
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine to its end, within the time limit."""
    asyncio.run(asyncio.wait_for(coroutine, TIME_LIMIT_S))


class Clients(AsyncExitStack):
    """The clients of one test, stopped at its end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.bootstrap = bootstrap

    async def producer(self, **options: Any) -> AIOKafkaProducer:
        return await self.enter_async_context(AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options))

    async def consumer(self, *topics: str, **options: Any) -> AIOKafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | options
        client = AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap, **settings)
        return await self.enter_async_context(client)

    async def admin(self) -> AIOKafkaAdminClient:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        self.push_async_callback(client.close)
        return client


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    """The next count records."""
    return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]


async def until(probe: Any, what: str, timeout_s: float = 30) -> None:
    """Wait for a synchronous condition."""
    try:
        async with asyncio.timeout(timeout_s):
            while not probe():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"after {timeout_s} s still waiting until {what}") from None


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_every_codec_brings_back_keys_values_headers_and_nulls(
    codec: str | None, bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            producer = await clients.producer(compression_type=codec, linger_ms=20)
            sent: list[tuple[Any, Any, list[tuple[str, bytes]]]] = [
                (b"key", b"value" * 200, [("trace", b"1"), ("empty", b"")]),
                (None, b"no key", []),
                (b"tombstone", None, []),
            ]
            futures = [
                await producer.send(topic, value, key, headers=headers, timestamp_ms=1_700_000_000_000)
                for key, value, headers in sent
            ]
            assert [(await each).offset for each in futures] == [0, 1, 2]
            got = await take(await clients.consumer(topic), 3)
            assert [(each.key, each.value, list(each.headers)) for each in got] == sent
            assert {each.timestamp for each in got} == {1_700_000_000_000}

    run(body())


@pytest.mark.smoke
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(acks: int | str, bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            producer = await clients.producer(acks=acks)
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
            got = await take(await clients.consumer(topic), 20)
            assert [int(each.value) for each in got] == list(range(20))

    run(body())


def test_idempotent_producer_keeps_order(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            producer = await clients.producer(enable_idempotence=True, max_batch_size=300)
            futures = [await producer.send(topic, b"%d" % number) for number in range(500)]
            assert [(await each).offset for each in futures] == list(range(500))
            got = await take(await clients.consumer(topic), 500)
            assert [int(each.value) for each in got] == list(range(500))

    run(body())


def test_records_above_the_limit_are_refused(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            producer = await clients.producer(max_request_size=8 << 20)
            assert (await producer.send_and_wait(topic, bytes(1_000_000))).offset == 0
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(2_000_000))
            assert (await producer.send_and_wait(topic, b"after")).offset == 1

    run(body())


def test_seek_and_offsets_for_times(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            producer, start_ms = await clients.producer(), 1_700_000_000_000
            for number in range(10):
                await producer.send_and_wait(topic, b"x", timestamp_ms=start_ms + 1000 * number)
            consumer, partition = await clients.consumer(), TopicPartition(topic, 0)
            consumer.assign([partition])
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = (await consumer.offsets_for_times({partition: start_ms + 3500}))[partition]
            assert (found.offset, found.timestamp) == (4, start_ms + 4000)
            beyond = await consumer.offsets_for_times({partition: start_ms + 60_000})
            assert beyond[partition] is None
            consumer.seek(partition, 7)
            assert [each.offset for each in await take(consumer, 3)] == [7, 8, 9]
            await consumer.seek_to_beginning(partition)
            assert (await take(consumer, 1))[0].offset == 0
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10

    run(body())


def test_a_long_poll_on_an_empty_topic_ends_and_sees_a_late_record(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Clients(bootstrap) as clients:
            consumer = await clients.consumer(topic, fetch_max_wait_ms=300)
            assert await consumer.getmany(timeout_ms=1000) == {}
            await (await clients.producer()).send_and_wait(topic, b"late")
            assert (await take(consumer, 1))[0].value == b"late"

    run(body())


@pytest.mark.smoke
def test_manual_commits_and_automatic_ones(bootstrap: str, topic: str, unique: Any) -> None:
    async def body() -> None:
        group, partition = unique("group"), TopicPartition(topic, 0)
        async with Clients(bootstrap) as clients:
            producer = await clients.producer()
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
            async with Clients(bootstrap) as first:
                consumer = await first.consumer(topic, group_id=group)
                await take(consumer, 20)
                await consumer.commit({partition: (12, "wo es steht")})
                assert await consumer.committed(partition) == 12
            async with Clients(bootstrap) as second:
                consumer = await second.consumer(topic, group_id=group, enable_auto_commit=True)
                assert (await take(consumer, 8))[0].offset == 12
            onlooker = await clients.consumer(group_id=group)
            assert await onlooker.committed(partition) == 20

    run(body())


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=["range", "roundrobin", "sticky"],
)
def test_group_shares_partitions_over_joins_and_leaves_without_loss(
    assignor: Any, bootstrap: str, make_topic: Any, unique: Any
) -> None:
    topic, group = make_topic(partitions=6), unique("group")

    async def body() -> None:
        seen: set[tuple[int, int]] = set()

        async def poll(consumer: AIOKafkaConsumer) -> None:
            async for record in consumer:
                seen.add((record.partition, record.offset))

        async def join() -> tuple[AIOKafkaConsumer, asyncio.Task[None]]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=300,
                partition_assignment_strategy=(assignor,),
            )
            await consumer.start()
            return consumer, asyncio.create_task(poll(consumer))

        def is_shared() -> bool:
            held = [each.partition for consumer, _ in members for each in consumer.assignment()]
            return sorted(held) == list(range(6)) and all(each.assignment() for each, _ in members)

        async with Clients(bootstrap) as clients:
            producer = await clients.producer()

            async def send_to_all_partitions() -> None:
                for number in range(60):
                    await producer.send_and_wait(topic, b"x", partition=number % 6)

            members = [await join(), await join()]
            try:
                await until(is_shared, "two members share six partitions")
                await send_to_all_partitions()
                members.append(await join())
                await until(is_shared, "three members share six partitions")
                await send_to_all_partitions()
                consumer, task = members.pop(0)
                await consumer.stop()
                task.cancel()
                await until(is_shared, "the two left share six partitions")
                await send_to_all_partitions()
                await until(lambda: len(seen) == 180, "all records are seen")
            finally:
                for consumer, task in members:
                    await consumer.stop()
                    task.cancel()

    run(body())


def test_static_member_comes_back_to_its_partitions(bootstrap: str, make_topic: Any, unique: Any) -> None:
    topic, group = make_topic(partitions=4), unique("group")

    async def body() -> None:
        options = {"group_id": group, "session_timeout_ms": 20000, "heartbeat_interval_ms": 300}
        async with Clients(bootstrap) as clients:
            stays = await clients.consumer(topic, group_instance_id="stays", **options)
            async with Clients(bootstrap) as short:
                returns = await short.consumer(topic, group_instance_id="returns", **options)
                await until(
                    lambda: len(stays.assignment()) == 2 and len(returns.assignment()) == 2, "both share"
                )
                held = set(returns.assignment())
            again = await clients.consumer(topic, group_instance_id="returns", **options)
            await until(lambda: set(again.assignment()) == held, "the same partitions are back", 15)
            assert len(stays.assignment()) == 2

    run(body())


def test_admin(bootstrap: str, unique: Any) -> None:
    name, group = unique("made"), unique("group")

    async def body() -> None:
        async with Clients(bootstrap) as clients:
            admin = await clients.admin()
            reply = await admin.create_topics([NewTopic(name, 2, 1)])
            assert reply.topic_errors[0][1] == 0
            again = await admin.create_topics([NewTopic(name, 2, 1)])
            assert again.topic_errors[0][1] == TopicAlreadyExistsError.errno
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 2
            assert name in await admin.list_topics()
            cluster = await admin.describe_cluster()
            assert cluster["brokers"]
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            entries = {entry[0]: entry[1] for entry in configs.resources[0][4]}
            assert entries["cleanup.policy"] == "delete"
            consumer = await clients.consumer(name, group_id=group)
            await consumer.commit({TopicPartition(name, 0): 0})
            assert group in [each[0] for each in await admin.list_consumer_groups()]
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[TopicPartition(name, 0)].offset == 0
            deleted = await admin.delete_topics([name])
            assert deleted.topic_error_codes[0][1] == 0

    run(body())
