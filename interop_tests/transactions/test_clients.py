"""Transactional producers of the Python clients, unmodified: commit, abort, isolation, fencing, consume-transform-produce."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced as AioProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.waiting import wait_until

MakeTopic = Callable[..., str]
TIMEOUT_S = 60.0


def confluent_producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id} | settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed"
) -> list[bytes]:
    """Every value up to the end after all transactions have ended, as librdkafka returns it to an application, by
    partition and in order."""
    wait_until_stable(bootstrap, topic, partitions, TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values: dict[int, list[bytes]] = {each: [] for each in range(partitions)}
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    ended: set[int] = set()

    def at_end() -> bool:
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                values[message.partition()].append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return len(ended) == partitions

    wait_until(at_end, "everything is read", TIMEOUT_S)
    consumer.close()
    return [value for each in values.values() for value in each]


def test_confluent_commits_and_aborts(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    topic = make_topic(partitions=2)
    producer = confluent_producer(bootstrap, unique("tx"))
    for number in range(20):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 2:
            producer.flush()
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    expected = [b"%d" % number for number in range(20) if number % 3 != 2]
    assert read_all(bootstrap, topic, 2) == expected * 2
    assert len(read_all(bootstrap, topic, 2, "read_uncommitted")) == 40


def test_confluent_empty_transactions(bootstrap: str, unique: Any) -> None:
    producer = confluent_producer(bootstrap, unique("tx"))
    for commit in (True, False, True):
        producer.begin_transaction()
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


def test_confluent_zombie(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    topic, name = make_topic(), unique("tx")
    zombie = confluent_producer(bootstrap, name)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie's")
    zombie.flush()
    heir = confluent_producer(bootstrap, name)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    heir.begin_transaction()
    heir.produce(topic, b"heir's")
    heir.commit_transaction(TIMEOUT_S)
    assert read_all(bootstrap, topic) == [b"heir's"]


def test_confluent_consume_transform_produce(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    """Every input once, although every second transaction is aborted and the consumer seeks back."""
    source, target, group = make_topic(), make_topic(), unique("group")
    feeder = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        feeder.produce(source, b"%d" % number)
    feeder.flush()
    producer = confluent_producer(bootstrap, unique("tx"))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    done = 0
    for attempt in range(100):
        messages = [each for each in consumer.consume(7, 5.0) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"<" + message.value() + b">")
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if attempt % 2:
            producer.abort_transaction(TIMEOUT_S)
            for partition in consumer.committed(consumer.assignment(), TIMEOUT_S):
                consumer.seek(TopicPartition(source, partition.partition, max(partition.offset, 0)))
        else:
            producer.commit_transaction(TIMEOUT_S)
            done += len(messages)
        if done >= 50:
            break
    consumer.close()
    assert read_all(bootstrap, target) == [b"<%d>" % number for number in range(50)]


def test_aiokafka_commits_aborts_and_sends_offsets(
    bootstrap: str, make_topic: MakeTopic, unique: Any
) -> None:
    topic, group, name = make_topic(), unique("group"), unique("tx")

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
                await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 1}, group)
            try:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise RuntimeError("stop")
            except RuntimeError:
                pass
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed too")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return [message.value]
        finally:
            await consumer.stop()

    # The group's committed offset is 1: the first record is before it, and its marker is skipped.
    assert asyncio.run(run()) == [b"committed too"]
    assert read_all(bootstrap, topic) == [b"committed", b"committed too"]


def feed(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0


def test_aiokafka_consume_transform_produce(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    """Every input once, although every second transaction is aborted and the consumer seeks back."""
    source, target, group = make_topic(), make_topic(), unique("group")
    feed(bootstrap, source, 40)

    async def copy() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await producer.start()
        await consumer.start()
        try:
            done = attempt = 0
            while done < 40:
                for partition, messages in (await consumer.getmany(timeout_ms=1000, max_records=7)).items():
                    attempt += 1
                    await producer.begin_transaction()
                    for message in messages:
                        await producer.send(target, b"<" + message.value + b">")
                    await producer.send_offsets_to_transaction({partition: messages[-1].offset + 1}, group)
                    if attempt % 2:
                        await producer.abort_transaction()
                        consumer.seek(partition, messages[0].offset)
                    else:
                        await producer.commit_transaction()
                        done += len(messages)
            # The marker for the offsets may be written a moment after the commit is acknowledged.
            while await consumer.committed(AioTopicPartition(source, 0)) != 40:
                await asyncio.sleep(0.05)
        finally:
            await consumer.stop()
            await producer.stop()

    asyncio.run(asyncio.wait_for(copy(), 2 * TIMEOUT_S))
    assert read_all(bootstrap, target) == [b"<%d>" % number for number in range(40)]


def test_kafka_python_consume_transform_produce(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    import kafka

    source, target, group = make_topic(), make_topic(), unique("group")
    feed(bootstrap, source, 40)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer.init_transactions()
    done = attempt = 0

    def copied() -> bool:
        nonlocal done, attempt
        for partition, messages in consumer.poll(1000, max_records=7).items():
            attempt += 1
            producer.begin_transaction()
            for message in messages:
                producer.send(target, b"<" + message.value + b">")
            end = kafka.OffsetAndMetadata(messages[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({partition: end}, group)
            if attempt % 2:
                producer.abort_transaction()
                consumer.seek(partition, messages[0].offset)
            else:
                producer.commit_transaction()
                done += len(messages)
        return done == 40

    try:
        wait_until(copied, "everything is copied", 2 * TIMEOUT_S, 0)
    finally:
        producer.close()
        consumer.close()
    assert read_all(bootstrap, target) == [b"<%d>" % number for number in range(40)]


def test_aiokafka_and_kafka_python_zombies(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    """A producer with the same id, of any client, fences the previous one."""
    import kafka

    topic, name = make_topic(), unique("tx")

    async def run() -> None:
        zombie = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await zombie.start()
        try:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"aiokafka's")
            heir = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
            await asyncio.to_thread(heir.init_transactions)
            with pytest.raises(AioProducerFenced):
                await zombie.commit_transaction()
            heir.begin_transaction()
            heir.send(topic, b"kafka-python's")
            await asyncio.to_thread(heir.flush, TIMEOUT_S)
            last = await asyncio.to_thread(confluent_producer, bootstrap, name)
            with pytest.raises(kafka.errors.KafkaError):
                await asyncio.to_thread(heir.commit_transaction)
            last.begin_transaction()
            last.produce(topic, b"librdkafka's")
            last.commit_transaction(TIMEOUT_S)
            await asyncio.to_thread(heir.close, 5)
        finally:
            await zombie.stop()

    asyncio.run(asyncio.wait_for(run(), 2 * TIMEOUT_S))
    assert read_all(bootstrap, topic) == [b"librdkafka's"]


def test_kafka_python_commits_and_aborts(bootstrap: str, make_topic: MakeTopic, unique: Any) -> None:
    import kafka

    topic, group = make_topic(), unique("group")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number).get(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"last")
    producer.send_offsets_to_transaction(
        {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(4, "", -1)}, group
    )
    producer.commit_transaction()
    producer.close()
    assert read_all(bootstrap, topic) == [b"0", b"2", b"4", b"last"]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, isolation_level="read_committed"
    )
    try:
        wait_until(
            lambda: consumer.committed(kafka.TopicPartition(topic, 0)) == 4, "the offset is committed", 30
        )
    finally:
        consumer.close()
