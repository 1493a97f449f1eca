"""Updates of few keys, and checks of the records that a consumer reads from the beginning."""

from __future__ import annotations

import itertools
import random
import zlib
from array import array
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from interop_tests.harness.waiting import wait_until, wait_without_error
from interop_tests.storage.contents import consumer

WAIT_S = 60.0
EAGER_CLEANER = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
EAGER_OFFSETS = {
    "offsets.topic.segment.bytes": str(1 << 20),
    "offsets.topic.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
EAGER_TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}
Found = dict[bytes | None, tuple[int, bytes | None]]


class Message(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def create_compacted(bootstrap: str, topic: str, **config: str) -> None:
    """Configs of a topic with one partition and small segments that are cleaned as soon as possible. Underscores
    replace dots."""
    settings = EAGER_TOPIC | {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=settings)]).values():
        future.result(WAIT_S)


def set_cleaners_pace(bootstrap: str, bytes_per_second: str) -> None:
    """Set the cleaner's throttle while the broker, which has id 1, runs."""
    pace = ConfigEntry(
        "log.cleaner.io.max.bytes.per.second", bytes_per_second, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[pace])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


class Updates:
    """Numbered values. `last` is the newest acknowledged one of each key."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        self.topic = topic
        self.last: dict[bytes, tuple[int, bytes | None]] = {}
        self.unanswered = 0
        self.given_up: list[str] = []
        """Updates whose outcome is unknown."""
        self._checksums = array("I")
        """By offset, the checksum of the key and value acknowledged there. 0 if there is none."""
        self._number = 0
        self._chance = random.Random(7)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **settings}
        )

    def write(self, count: int, keys: int, size: int = 200, tombstones_every: int = 0) -> None:
        """Returns when all updates are acknowledged or given up."""
        for _ in range(count):
            self._number += 1
            # Some keys are written often and some rarely, so the last values are spread over the log.
            key = b"key-%d" % int(keys * self._chance.random() ** 4)
            value: bytes | None = b"%d " % self._number + self._chance.randbytes(size // 2).hex().encode()
            if tombstones_every and self._number % tombstones_every == 0:
                value = None
            while True:
                try:
                    self._producer.produce(self.topic, value, key, on_delivery=self._acknowledged)
                    self.unanswered += 1
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        self._producer.flush(WAIT_S)

    def _acknowledged(self, error: KafkaError | None, message: object) -> None:
        self.unanswered -= 1
        if error is not None:
            self.given_up.append(str(error))
        else:
            offset, key, value = message.offset(), message.key(), message.value()  # type: ignore[attr-defined]
            if offset >= self.last.get(key, (-1, None))[0]:
                self.last[key] = (offset, value)
            missing = offset + 1 - len(self._checksums)
            self._checksums.extend(itertools.repeat(0, missing))
            self._checksums[offset] = checksum(key, value)

    def wrote(self, message: Message) -> bool:
        """Whether this record was at its offset from the beginning, as far as acknowledgements show."""
        known = self._checksums[message.offset] if message.offset < len(self._checksums) else 0
        return known in (0, checksum(message.key, message.value))


def checksum(key: bytes | None, value: bytes | None) -> int:
    return zlib.crc32(repr((key, value)).encode()) or 1


def read_all(
    bootstrap: str, topic: str, isolation: str = "read_uncommitted", start: int = 0
) -> tuple[list[int], Found]:
    """Offsets in order, and the last (offset, value) of each key, from an offset to the end."""
    messages = read_messages(bootstrap, topic, isolation, start)
    return [one.offset for one in messages], {one.key: (one.offset, one.value) for one in messages}


def read_messages(
    bootstrap: str, topic: str, isolation: str = "read_uncommitted", start: int = 0
) -> list[Message]:
    """The records in order, from an offset to the end."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
        }
    )
    found: list[Message] = []
    try:
        reader.assign([TopicPartition(topic, 0, start)])

        def at_end() -> bool:
            for message in reader.consume(1000, 0.5):
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return True
                found.append(
                    Message(message.offset(), message.key(), message.value(), message.timestamp()[1])
                )
            return False

        wait_until(at_end, f"{topic} is read", WAIT_S, 0)
    finally:
        reader.close()
    return found


def cleaned_to(data_dir: Path, topic: str) -> int:
    """The offset in the cleaner's checkpoint for the topic's only partition. -1 if there is none."""
    path = data_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    assert not lines or (lines[0] == "0" and int(lines[1]) == len(lines) - 2), lines
    for line in lines[2:]:
        name, partition, offset = line.split(" ")
        if (name, partition) == (topic, "0"):
            return int(offset)
    return -1


def active_base(data_dir: Path, topic: str) -> int:
    """The base offset of the last segment."""
    return max(int(path.name[:20]) for path in (data_dir / f"{topic}-0").glob("*.log"))


def wait_until_clean(data_dir: Path, topic: str) -> None:
    """Wait until all segments below the active one are clean."""
    wait_until(
        lambda: cleaned_to(data_dir, topic) == active_base(data_dir, topic) > 0, f"{topic} is cleaned", WAIT_S
    )


def assert_last_values(bootstrap: str, updates: Updates, isolation: str = "read_uncommitted") -> list[int]:
    """Check that a consumer that starts at 0 reads rising offsets, at each the record that was written there, and the
    newest value of each key. Returns the offsets."""
    assert not updates.unanswered, f"{updates.unanswered} updates are on their way still"
    assert not updates.given_up, f"{len(updates.given_up)} updates were given up: {updates.given_up[0]}"
    messages = read_messages(bootstrap, updates.topic, isolation)
    offsets = [one.offset for one in messages]
    assert all(one < two for one, two in itertools.pairwise(offsets))
    found = {one.key: (one.offset, one.value) for one in messages}
    others = {key: (found.get(key), last) for key, last in updates.last.items() if found.get(key) != last}
    assert not others, (
        f"found and acknowledged: {list(others.items())[:5]}, {len(others)} keys, {len(offsets)} offsets"
    )
    assert [one for one in messages if one.key in updates.last and not updates.wrote(one)] == []
    return offsets


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """The offset that a group has committed for each partition of a topic. A coordinator that still loads is asked again:
    of Apache Kafka librdkafka gives up too soon after a restart."""
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    with consumer(bootstrap, **{"group.id": group}) as member:
        places = wait_without_error(
            lambda: member.committed(asked, WAIT_S),
            f"offsets of {group} can be read",
            (KafkaException,),
            WAIT_S,
        )
    return [place.offset for place in places]
