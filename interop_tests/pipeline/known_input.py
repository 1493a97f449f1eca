"""Known input for the jobs: the same records for the same seed, produced to any broker with the same offsets.

Events are slightly out of order. Some are late within the watermark, some far behind it, some repeated, some invalid.
Partitions, record timestamps and batches are given explicitly, so that two brokers have the same log and Spark plans
the same batches on it.
"""

from __future__ import annotations

import json
import random
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkacompat.pipeline.queries import JOBS

PARTITIONS = 3
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
PRODUCE_TIMEOUT_S = 60.0
QUEUED_MAX = 50_000
INPUTS = {name: job.inputs for name, job in JOBS.items()}
"""The topics of each job. EVENTS has what is sent to them."""

SERVICES = ("cart", "search", "login", "images", "mail")


@dataclass(frozen=True)
class Entry:
    """A record to be written."""

    topic: str
    key: str
    value: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()

    def partition(self, partitions: int) -> int:
        """The partition of a key, which is always the same."""
        return zlib.crc32(self.key.encode()) % partitions


@dataclass
class KnownInput:
    """Entries in the order of sending, and the number of events in them."""

    entries: list[Entry] = field(default_factory=list)
    events: dict[str, set[str]] = field(default_factory=dict)
    """Ids of valid events that are not later than the watermark, by job."""
    bad: dict[str, int] = field(default_factory=dict)
    """Records to be rejected, by job."""
    twice: dict[str, int] = field(default_factory=dict)
    """Records that are copies of earlier ones, by job."""
    late: dict[str, int] = field(default_factory=dict)
    """Events that arrive an hour behind all others, by job."""
    hostile: list[tuple[Entry, str]] = field(default_factory=list)
    """More invalid records, sent before all others, each with the expected reason."""

    def send(
        self, bootstrap: str, jobs: tuple[str, ...] = tuple(INPUTS), partitions: int = PARTITIONS
    ) -> None:
        """Create the input topics of these jobs and write all their entries."""
        names = [name for job in jobs for name in INPUTS[job]]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(name, partitions, 1, config={"retention.ms": "-1"}) for name in names]
        for future in admin.create_topics(new).values():
            future.result(PRODUCE_TIMEOUT_S)
        entries = [entry for entry, _ in self.hostile] + self.entries
        self.send_some(bootstrap, [entry for entry in entries if entry.topic in names], partitions)

    @staticmethod
    def send_some(bootstrap: str, entries: list[Entry], partitions: int = PARTITIONS) -> None:
        """Write these entries. AssertionError unless all of them are acknowledged."""
        failed: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        )
        for entry in entries:
            while len(producer) > QUEUED_MAX:
                producer.poll(0.05)
            producer.produce(
                entry.topic,
                entry.value,
                entry.key,
                partition=entry.partition(partitions),
                timestamp=entry.timestamp_ms,
                headers=list(entry.headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(PRODUCE_TIMEOUT_S) == 0
        assert failed == []


def known_input(
    seed: int, events_a_job: int, hours: float = 1.0, jobs: tuple[str, ...] = tuple(INPUTS)
) -> KnownInput:
    """Events of these jobs over the last hours, ending two hours ago, so that none is too old or too new for the jobs."""
    made = KnownInput()
    start_ms = int(time.time() * 1000) // HOUR_MS * HOUR_MS - int((hours + 2) * HOUR_MS)
    for job in jobs:
        one = EVENTS[job]
        chance = random.Random(f"{seed}/{job}")
        made.events[job] = set()
        made.bad[job] = made.twice[job] = made.late[job] = 0
        recent: list[Entry] = []
        for number in range(events_a_job):
            arrives_ms = start_ms + int(number / events_a_job * hours * HOUR_MS)
            lot = chance.random()
            if lot < 0.02 and recent:
                # The same event again, a moment later. A copy of a line has the same file and position.
                copied = chance.choice(recent[-50:])
                made.twice[job] += 1
                made.entries.append(Entry(copied.topic, copied.key, copied.value, arrives_ms, copied.headers))
                continue
            if lot < 0.04:
                made.bad[job] += 1
                made.entries.append(_bad(job, number, arrives_ms, chance))
                continue
            behind_ms = int(chance.expovariate(1 / 4000))
            if lot < 0.10:
                behind_ms = chance.randrange(MINUTE_MS, 7 * MINUTE_MS)
            event_ms = arrives_ms - behind_ms
            # In the last fifth, some events are too late for every window.
            if lot > 0.99 and number > events_a_job * 0.8:
                made.late[job] += 1
                event_ms = start_ms - HOUR_MS + chance.randrange(MINUTE_MS)
            else:
                made.events[job].add(f"{job}-{number}")
            entry = one(number, event_ms, arrives_ms, chance)
            recent.append(entry)
            made.entries.append(entry)
    return made


def more_activity(given: KnownInput, length_ms: int, events: int = 200) -> list[Entry]:
    """Valid activity events after all of the given ones, in order, over this time."""
    chance = random.Random("more activity")
    before = [entry for entry in given.entries if entry.topic in INPUTS["activity"]]
    start_ms = max(entry.timestamp_ms for entry in before)
    times = [start_ms + length_ms * step // events for step in range(1, events + 1)]
    return [_activity(len(before) + step, at_ms, at_ms, chance) for step, at_ms in enumerate(times)]


def _log(number: int, event_ms: int, arrives_ms: int, chance: random.Random) -> Entry:
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(event_ms // 1000))
    host = f"web-{chance.randrange(6)}"
    status = chance.choices((200, 304, 404, 500), (80, 8, 9, 3))[0]
    path = f"/items/{int(200 * chance.random() ** 3)}?q=%C3%A9"
    line = (
        f'10.0.{chance.randrange(4)}.{chance.randrange(250)} - - [{stamp}] "GET {path} HTTP/1.1" {status} '
        f'{chance.randrange(20000)} "-" "agent \\"{number % 7}\\""'
    )
    headers = (
        ("source", host.encode()),
        ("file", host.encode() + b"/1"),
        ("position", b"%d" % (number * 200)),
    )
    return Entry("logs.raw", host, line.encode(), arrives_ms, headers)


def _activity(number: int, event_ms: int, arrives_ms: int, chance: random.Random) -> Entry:
    user = f"user-{int(120 * chance.random() ** 2)}"
    event: dict[str, Any] = {
        "event_id": f"activity-{number}",
        "user_id": user,
        "event_time_ms": event_ms,
    }
    if chance.random() < 0.2:
        event |= {"query": f"words {chance.randrange(30)}", "results": chance.randrange(100)}
        return Entry("activity.searches", user, json.dumps(event).encode(), arrives_ms)
    page = f"/page/{int(40 * chance.random() ** 2)}"
    event |= {"page": page, "referrer": None, "device": chance.choice(["phone", "desktop"])}
    return Entry("activity.page_views", user, json.dumps(event).encode(), arrives_ms)


def _sample(number: int, event_ms: int, arrives_ms: int, chance: random.Random) -> Entry:
    service = chance.choice(SERVICES)
    slow = 10 if service == "mail" and number % 1000 > 800 else 1
    event = {
        "event_id": f"metrics-{number}",
        "service": service,
        "host": f"{service}-{chance.randrange(3)}",
        "event_time_ms": event_ms,
        "latency_ms": round(chance.lognormvariate(4, 0.8) * slow, 3),
        "error": chance.random() < 0.03 * slow,
        "cpu_percent": round(chance.uniform(5, 99), 2),
        "memory_bytes": chance.randrange(1 << 28, 1 << 31),
    }
    return Entry("metrics.raw", service, json.dumps(event).encode(), arrives_ms)


def _bad(job: str, number: int, arrives_ms: int, chance: random.Random) -> Entry:
    """A record that the job must reject, in one of several ways."""
    topic, key = INPUTS[job][0], f"bad-{number % 5}"
    if job == "logs":
        values = [
            b"",
            b"not a line",
            b'1.2.3.4 - - [99/Foo/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1',
            b"\xff\xfe",
        ]
        return Entry(topic, key, chance.choice(values), arrives_ms)
    event = {"event_id": f"{job}-{number}", "user_id": "u", "service": "s", "event_time_ms": arrives_ms}
    values = [
        b"{",
        b"[1, 2]",
        b"\xff\xfe\x00",
        json.dumps(event | {"event_time_ms": "soon"}).encode(),
        json.dumps(event | {"event_time_ms": arrives_ms + HOUR_MS}).encode(),
        json.dumps(event | {"event_id": None}).encode(),
    ]
    return Entry(topic, key, chance.choice(values), arrives_ms)


EVENTS = {"logs": _log, "activity": _activity, "metrics": _sample}
