"""The collector with a producer that refuses, fails fatally or is full. No broker."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kafkacompat.pipeline.collect_command import OWN_HEADERS
from kafkacompat.pipeline.collector import shipping
from kafkacompat.pipeline.collector.followed import Chunk, Followed, Mark
from kafkacompat.pipeline.collector.lines import Line
from kafkacompat.pipeline.collector.shipping import Shipper
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.options import DEFAULT_DUPLICATE_HORIZON_S
from kafkacompat.security.cluster_address import ClusterAddress

TURNS_MAX = 600


class Refusal:
    def __init__(self, name: str, fatal: bool = False) -> None:
        self._name = name
        self._fatal = fatal

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return f"it is {self._name}"

    def fatal(self) -> bool:
        return self._fatal


class Message:
    def __init__(self, key: bytes, value: bytes) -> None:
        self._key = key
        self._value = value

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


class Producer:
    """Keeps produced lines until it is polled. `answer` gives the result of each batch, `raised` the exception of produce."""

    def __init__(
        self,
        answer: Callable[[list[bytes]], Refusal | None],
        queue: int = 1000,
        raised: Callable[[bytes], Refusal | None] = lambda value: None,
    ) -> None:
        self.answer = answer
        self.queue = queue
        self.raised = raised
        self.calls = 0
        self.holds = False
        """Whether it returns nothing until it is purged."""
        self.slow = False
        """Whether the first wait for all lines is too short."""
        self.known = True
        """Whether the client has asked for the topic since it was found missing."""
        self.waiting: list[tuple[bytes, bytes, dict[str, bytes], Callable[..., None]]] = []
        self.arrived: list[tuple[bytes, dict[str, bytes]]] = []

    def produce(
        self, topic: str, value: bytes, key: bytes, headers: Any, on_delivery: Callable[..., None]
    ) -> None:
        assert topic == "logs.raw"
        assert {name for name, _ in headers} <= {*OWN_HEADERS}, (
            "--field could give it too: collect_command.py"
        )
        self.calls += 1
        refusal = self.raised(value)
        if refusal is not None:
            raise KafkaException(refusal)
        if len(self.waiting) == self.queue:
            raise BufferError
        self.waiting.append((key, value, dict(headers), on_delivery))

    def poll(self, timeout_s: float) -> None:
        if self.holds:
            return
        batch, self.waiting = self.waiting, []
        refusal = self.answer([value for _, value, _, _ in batch]) if batch else None
        for key, value, headers, delivered in batch:
            if refusal is None:
                self.arrived.append((value, headers))
            delivered(refusal, Message(key, value))

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == "logs.raw"
        self.known = True

    def flush(self, timeout_s: float) -> int:
        if self.slow:
            self.slow = False
            kept = self.waiting[len(self.waiting) // 2 :]
            self.waiting = self.waiting[: len(self.waiting) // 2]
            self.poll(timeout_s)
            self.waiting = kept
            return len(kept)
        self.poll(timeout_s)
        return 0

    def purge(self) -> None:
        self.holds = False
        self.answer = lambda values: Refusal("_PURGE_QUEUE")


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shipper]:
    """make(first, second, ensure=...) is a shipper that uses these producers one after the other."""

    def build(*producers: Producer, ensure: Callable[[], object] = lambda: None) -> Shipper:
        left = list(producers)
        monkeypatch.setattr(Shipper, "_new_producer", lambda self: left.pop(0))
        return Shipper(ClusterAddress("nowhere"), "web", ensure)

    return build


def chunk_of(lines: list[Line]) -> Chunk:
    file = Followed(1, 2, "/a.log")
    chunk = Chunk(file, Mark(999, "digest"), len(lines), sum(len(line.value) for line in lines))
    file.chunks.append(chunk)
    return chunk


def position_of(chunk: Chunk) -> int:
    assert isinstance(chunk.file, Followed)
    return chunk.file.position


def ship(shipper: Shipper, *values: bytes) -> Chunk:
    lines = [Line(number * 100, value, len(value)) for number, value in enumerate(values)]
    chunk = chunk_of(lines)
    shipper.ship(chunk, lines, "id", "/a.log")
    return chunk


def test_what_arrives_is_acknowledged_and_makes_room(make: Callable[..., Shipper]) -> None:
    producer = Producer(lambda values: None)
    shipper = make(producer)
    chunk = ship(shipper, b"one", b"two")
    assert shipper.on_the_way_bytes == 6 + 2 * shipping.LINE_COST_BYTES
    assert position_of(chunk) == 0
    shipper.turn(0.0)
    assert position_of(chunk) == 999
    assert shipper.on_the_way_bytes == 0
    assert producer.arrived[1] == (b"two", {"source": b"web/a.log", "file": b"id", "position": b"100"})


def test_a_line_has_the_fields_of_its_file(make: Callable[..., Shipper]) -> None:
    producer = Producer(lambda values: None)
    shipper = make(producer)
    lines = [Line(0, b"#Fields: a b", 12, b"a b"), Line(13, b"1 2", 3, b"a b"), Line(17, b"3", 1)]
    shipper.ship(chunk_of(lines), lines, "id", "/a.log")
    shipper.turn(0.0)
    assert [headers.get("fields") for _, headers in producer.arrived] == [b"a b", b"a b", None]


def test_there_is_no_room_beyond_the_bound(make: Callable[..., Shipper]) -> None:
    shipper = make(Producer(lambda values: None))
    assert shipper.room
    ship(shipper, *[b"x" * 512 * 1024] * 32)
    assert not shipper.room
    shipper.turn(0.0)
    assert shipper.room


def test_a_full_queue_is_waited_for(make: Callable[..., Shipper]) -> None:
    producer = Producer(lambda values: None, queue=2)
    shipper = make(producer)
    ship(shipper, b"1", b"2", b"3", b"4", b"5")
    shipper.turn(0.0)
    assert [value for value, _ in producer.arrived] == [b"1", b"2", b"3", b"4", b"5"]


def test_what_fails_is_sent_again_with_its_headers(make: Callable[..., Shipper]) -> None:
    refusals: list[Refusal | None] = [Refusal("REQUEST_TIMED_OUT"), None]
    producer = Producer(lambda values: refusals.pop(0))
    shipper = make(producer)
    chunk = ship(shipper, b"one", b"two")
    shipper.turn(0.0)
    assert shipper.trouble == "it is REQUEST_TIMED_OUT"
    assert position_of(chunk) == 0
    shipper.turn(0.0)
    assert position_of(chunk) == 999
    assert shipper.trouble is None
    assert [headers["position"] for _, headers in producer.arrived] == [b"0", b"100"]
    assert shipper.resent_lines == 2


def test_a_producer_that_failed_for_good_is_replaced_and_nothing_is_lost(
    make: Callable[..., Shipper],
) -> None:
    second = Producer(lambda values: None)
    shipper = make(Producer(lambda values: Refusal("OUT_OF_ORDER_SEQUENCE_NUMBER", fatal=True)), second)
    chunk = ship(shipper, b"one", b"two")
    shipper.turn(0.0)
    shipper.turn(0.0)
    assert sorted(value for value, _ in second.arrived) == [b"one", b"two"]
    assert position_of(chunk) == 999
    assert shipper.on_the_way_bytes == 0


def test_a_producer_that_cannot_be_replaced_now_is_replaced_later(
    make: Callable[..., Shipper], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Producer(lambda values: None)
    shipper = make(Producer(lambda values: Refusal("OUT_OF_ORDER_SEQUENCE_NUMBER", fatal=True)), second)
    chunk = ship(shipper, b"one", b"two")

    def refuse(self: Shipper) -> Producer:
        raise KafkaException(Refusal("_CRIT_SYS_RESOURCE"))

    with monkeypatch.context() as patch:
        patch.setattr(Shipper, "_new_producer", refuse)
        shipper.turn(0.0)
        assert shipper.trouble == "it is _CRIT_SYS_RESOURCE"
    shipper.turn(0.0)
    shipper.turn(0.0)
    assert sorted(value for value, _ in second.arrived) == [b"one", b"two"]
    assert position_of(chunk) == 999
    assert shipper.trouble is None


def test_a_producer_that_failed_for_good_is_kept_until_it_has_given_back_all(
    make: Callable[..., Shipper],
) -> None:
    """On a busy machine one wait may not be enough for all callbacks. Nobody would send their lines again."""
    first, second = Producer(lambda values: None), Producer(lambda values: None)
    first.holds = first.slow = True
    shipper = make(first, second)
    chunk = ship(shipper, b"one", b"two", b"three", b"four")
    shipper._heard(Refusal("_FATAL", fatal=True))
    for _ in range(3):
        shipper.turn(0.0)
    assert sorted(value for value, _ in second.arrived) == [b"four", b"one", b"three", b"two"]
    assert position_of(chunk) == 999
    assert shipper.on_the_way_bytes == 0


def test_lines_that_wait_for_a_broker_are_stamped_anew() -> None:
    """With the real client: if lines kept the timestamp of hours ago, the jobs would drop them as late."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        shipper = Shipper(
            ClusterAddress(f"127.0.0.1:{nobody.getsockname()[1]}"), "web", lambda: None, stamp_age_max_ms=50
        )
        chunk = ship(shipper, b"one", b"two")
        on_the_way_bytes = shipper.on_the_way_bytes
        for _ in range(TURNS_MAX):
            shipper.turn(0.05)
            if shipper.resent_lines >= 4:
                break
        assert shipper.resent_lines >= 4
        assert shipper.trouble is not None
        assert "timed out" not in shipper.trouble
        assert (chunk.missing, shipper.on_the_way_bytes) == (2, on_the_way_bytes)
        shipper.close()


def test_lines_that_wait_for_no_reason_that_was_told_tell_that_they_wait(
    make: Callable[..., Shipper],
) -> None:
    """A client retries NOT_ENOUGH_REPLICAS silently until it gives a line up."""
    shipper = make(Producer(lambda values: Refusal(shipping.TOO_OLD)))
    ship(shipper, b"one")
    shipper.turn(0.0)
    assert shipper.trouble == Refusal(shipping.TOO_OLD).str()
    shipper.trouble = "no broker answers"
    shipper.turn(0.0)
    assert shipper.trouble == "no broker answers"


def test_lines_never_wait_as_long_as_copies_are_looked_for() -> None:
    assert shipping.STAMP_AGE_MAX_MS <= DEFAULT_DUPLICATE_HORIZON_S * 1000 / 2


def test_a_topic_that_is_gone_is_made_again_when_the_broker_can(make: Callable[..., Shipper]) -> None:
    there: list[bool] = []
    asked: list[int] = []

    def ensure() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise PipelineFailed("no broker answers")
        there.append(True)

    producer = Producer(lambda values: None if there else Refusal("_UNKNOWN_TOPIC"))
    shipper = make(producer, ensure=ensure)
    ship(shipper, b"one")
    shipper.turn(0.0)
    assert shipper.trouble == "no broker answers"
    for _ in range(3):
        shipper.turn(0.0)
    assert [value for value, _ in producer.arrived] == [b"one"]
    assert len(asked) == 2


def test_only_the_line_that_is_too_large_is_cut(make: Callable[..., Shipper]) -> None:
    producer = Producer(lambda values: Refusal("MSG_SIZE_TOO_LARGE") if sum(map(len, values)) > 100 else None)
    shipper = make(producer)
    chunk = ship(shipper, b"s" * 60, b"L" * 300, b"t" * 60)
    for _ in range(5):
        shipper.turn(0.0)
    assert sorted((value, headers.get("cut_from_bytes")) for value, headers in producer.arrived) == [
        (b"L" * 75, b"300"),
        (b"s" * 60, None),
        (b"t" * 60, None),
    ]
    assert position_of(chunk) == 999
    assert shipper.cut_lines == 1
    assert shipper.on_the_way_bytes == 0


def test_a_topic_that_the_client_knows_to_be_gone_is_made_again_and_asked_for(
    make: Callable[..., Shipper],
) -> None:
    there: list[bool] = []

    def ensure() -> None:
        if producer.calls < 9:
            raise PipelineFailed("no broker answers")
        there.append(True)

    def raised(value: bytes) -> Refusal | None:
        return None if there and producer.known else Refusal("_UNKNOWN_TOPIC")

    producer = Producer(lambda values: None, raised=raised)
    producer.known = False
    shipper = make(producer, ensure=ensure)
    chunk = ship(shipper, b"one", b"two", b"three", b"four")
    assert (producer.calls, shipper.trouble) == (4, "it is _UNKNOWN_TOPIC")
    for calls in (5, 6, 7, 8, 9):
        # One line is enough to see that nothing has changed.
        shipper.turn(0.0)
        assert producer.calls == calls
    assert position_of(chunk) == 0
    shipper.turn(0.0)
    shipper.turn(0.0)
    assert sorted(headers["position"] for _, headers in producer.arrived) == [b"0", b"100", b"200", b"300"]
    assert position_of(chunk) == 999
    assert (shipper.on_the_way_bytes, shipper.resent_lines) == (0, 4)
    assert shipper.trouble is None


def test_a_producer_that_takes_nothing_more_is_replaced(make: Callable[..., Shipper]) -> None:
    second = Producer(lambda values: None)
    shipper = make(
        Producer(lambda values: None, raised=lambda value: Refusal("_FATAL", fatal=value == b"two")), second
    )
    chunk = ship(shipper, b"one", b"two")
    for _ in range(2):
        shipper.turn(0.0)
    assert sorted(value for value, _ in second.arrived) == [b"one", b"two"]
    assert position_of(chunk) == 999


def test_a_line_that_the_client_finds_too_large_is_cut(make: Callable[..., Shipper]) -> None:
    producer = Producer(
        lambda values: None, raised=lambda value: Refusal("MSG_SIZE_TOO_LARGE") if len(value) > 100 else None
    )
    shipper = make(producer)
    chunk = ship(shipper, b"s" * 60, b"L" * 300)
    for _ in range(5):
        shipper.turn(0.0)
    assert sorted((value, headers.get("cut_from_bytes")) for value, headers in producer.arrived) == [
        (b"L" * 75, b"300"),
        (b"s" * 60, None),
    ]
    assert position_of(chunk) == 999
    assert (shipper.on_the_way_bytes, shipper.cut_lines) == (0, 1)
