"""A search over a consumer that returns made records: it finds what matches, says how far it looked, and goes on from there."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicPartition

from kafkacompat.console import searching
from kafkacompat.console.core.parameters import SearchQuery
from kafkacompat.console.failure import NotRead, NotThere
from kafkacompat.console.searching import _search

SECOND_MS = 1_000


class Written:
    """A record as the client library returns it."""

    def __init__(self, partition: int, offset: int, at_ms: int, key: bytes, value: bytes | None) -> None:
        self._place, self._at_ms = (partition, offset), at_ms
        self._key, self._value = key, value

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, self._at_ms

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None


class AtEnd:
    """What the library returns at the end of a partition."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)


class Logs:
    """A consumer of these partitions. `silent`: offsets that never arrive."""

    def __init__(self, *logs: list[Written], silent: range = range(0)) -> None:
        self.logs = dict(enumerate(logs))
        self.at = (0, 0)
        self.silent = silent
        self.polled = 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions=self.logs)})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        log = self.logs[place.partition]
        return (log[0].offset(), log[-1].offset() + 1) if log else (0, 0)

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = []
        for place in places:
            later = [each for each in self.logs[place.partition] if each.timestamp()[1] >= place.offset]
            found.append(TopicPartition("t", place.partition, later[0].offset() if later else -1))
        return found

    def assign(self, places: list[TopicPartition]) -> None:
        self.at = places[0].partition, places[0].offset

    def poll(self, timeout: float) -> Written | AtEnd | None:
        partition, offset = self.at
        if offset in self.silent:
            return None
        for each in self.logs[partition]:
            if each.offset() >= offset:
                self.at = partition, each.offset() + 1
                self.polled += 1
                return each
        return AtEnd()


def log(partition: int, count: int, value: bytes = b"v", step: int = 1) -> list[Written]:
    return [
        Written(partition, number * step, number * SECOND_MS, b"k%d" % (number % 5), value + b" %d;" % number)
        for number in range(count)
    ]


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching.time, "monotonic", lambda: 0.0)


def places(page: dict[str, object]) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in page["records"]]  # type: ignore[attr-defined]


def test_the_newest_that_match_are_found_in_all_partitions() -> None:
    consumer = Logs(log(0, 40), log(1, 38), [])
    page = _search(consumer, SearchQuery("t", None, key="k4", limit=3))
    assert places(page) == [(0, 39), (0, 34), (1, 34)]
    assert (page["stopped"], page["partitions"]) == ("limit", 3)
    assert page["looked"]["records"] == 40 - 30 + 38 - 30, "until the next that match"
    query = SearchQuery("t", None, key="k4", limit=99, ends=tuple(map(int, page["older"].split("."))))
    again = _search(consumer, query)
    assert places(again) == [(p, at) for at in (29, 24, 19, 14, 9, 4) for p in (0, 1)]
    assert (again["stopped"], again["left"], again["older"]) == (None, 0, None)
    assert page["looked"]["records"] + again["looked"]["records"] == 40 + 38


def test_a_text_is_found_in_the_value_and_one_partition_can_be_chosen() -> None:
    logs = log(0, 40), log(1, 40)
    assert places(_search(Logs(*logs), SearchQuery("t", 1, value=" 7;"))) == [(1, 7)]
    with pytest.raises(NotThere, match="topic t has no partition 2"):
        _search(Logs(*logs), SearchQuery("t", 2, value="7;"))


def test_a_range_of_time_bounds_what_is_read() -> None:
    consumer = Logs(log(0, 400))
    page = _search(consumer, SearchQuery("t", None, from_ms=100 * SECOND_MS, to_ms=104 * SECOND_MS))
    assert places(page) == [(0, 103), (0, 102), (0, 101), (0, 100)]
    assert (consumer.polled, page["looked"]["records"], page["left"]) == (4, 4, 0)
    nothing = _search(consumer, SearchQuery("t", None, from_ms=900 * SECOND_MS))
    assert (nothing["records"], nothing["older"], nothing["looked"]["records"]) == ([], None, 0)


def test_a_request_ends_after_its_records_and_says_how_far_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MAX_RECORDS", 100)
    page = _search(Logs(log(0, 1_000)), SearchQuery("t", None, value="nowhere"))
    assert (page["records"], page["stopped"], page["looked"]["records"]) == ([], "records", 200)
    assert (page["left"], page["older"], page["back_to_ms"]) == (800, "800", 800 * SECOND_MS)


def test_a_request_ends_after_its_bytes() -> None:
    consumer = Logs(log(0, 200, b"x" * 1_000_000))
    page = _search(consumer, SearchQuery("t", None, value="nowhere"))
    assert page["stopped"] == "bytes"
    assert searching.MAX_BYTES <= consumer.polled * 1_000_000 < searching.MAX_BYTES + 9_000_000
    looked = page["looked"]["records"]
    assert 0 < looked == 200 - page["left"] == page["looked"]["cut"], "a longer value is looked at in part"


def test_gaps_are_passed() -> None:
    consumer = Logs(log(0, 50, step=100_000))
    page = _search(consumer, SearchQuery("t", None, key="k0", limit=200))
    assert len(page["records"]) == 10
    assert (page["left"], page["looked"]["records"]) == (0, 50)


def test_a_record_that_never_arrives_is_said_unless_there_is_more_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(searching.time, "monotonic", lambda: next(ticks) / 1_000)
    query = SearchQuery("t", None, value="nowhere")
    with pytest.raises(NotRead, match="no record of t-0 at or after offset 900"):
        _search(Logs(log(0, 1_000), silent=range(900, 1_000)), query)
    page = _search(Logs(log(0, 1_000), silent=range(700, 800)), query)
    assert (page["stopped"], page["looked"]["records"], page["older"]) == ("time", 200, "800")
