"""A member of a group that copies a topic exactly once, with librdkafka. It adds as little to the client as
librdkafka's examples.

python -m interop_tests.cluster.copiers.librdkafka BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID [SETTING=VALUE ...]

Prints a line for each transaction ("committed N") and for each failure ("failed ..."). Exits with status 3 when its
producer is fenced or fails permanently.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH = 200
CALL_TIMEOUT_S = 30.0
FAILED_FOR_GOOD = 3


def say(text: str) -> None:
    print(text, flush=True)


def copy(bootstrap: str, source: str, target: str, group: str, name: str, settings: dict[str, Any]) -> None:
    common = {"bootstrap.servers": bootstrap, "client.id": name, **settings}
    producer = Producer({**common, "transactional.id": name, "transaction.timeout.ms": 20_000})
    until_done(producer.init_transactions, CALL_TIMEOUT_S)
    consumer = Consumer(
        {
            **common,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    say("ready")
    while True:
        messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
                producer.poll(0)
            ends = {(each.topic(), each.partition()): each.offset() + 1 for each in messages}
            offsets = [TopicPartition(topic, number, end) for (topic, number), end in ends.items()]
            group_member = consumer.consumer_group_metadata()
            until_done(producer.send_offsets_to_transaction, offsets, group_member, CALL_TIMEOUT_S)
            until_done(producer.commit_transaction, CALL_TIMEOUT_S)
        except KafkaException as error:
            say(f"failed {error}")
            if not error.args[0].txn_requires_abort():
                raise
            until_done(producer.abort_transaction, CALL_TIMEOUT_S)
            rewind(consumer)
        else:
            say(f"committed {len(messages)}")


def until_done(call: Callable[..., None], *arguments: Any) -> None:
    """Call again while the client says that the error is retriable."""
    while True:
        try:
            call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            say(f"failed {error}, again")
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Go back to the committed offsets of the partitions that are still assigned to this member."""
    while assigned := consumer.assignment():
        try:
            committed = consumer.committed(assigned, CALL_TIMEOUT_S)
            for each in committed:
                consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
        except KafkaException as error:
            say(f"failed {error}, rewinding")
        else:
            return


if __name__ == "__main__":
    bootstrap, source, target, group, name, *words = sys.argv[1:]
    try:
        copy(bootstrap, source, target, group, name, dict(word.split("=", 1) for word in words))
    except KafkaException as error:
        say(f"ended {error}")
        sys.exit(FAILED_FOR_GOOD)
