"""One record as the browser of records shows it, with any bytes and headers."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.browse import MAX_HEADERS, messages, record_view
from kafkacompat.console.core.columns import columns_of
from kafkacompat.console.core.parameters import RecordsQuery
from kafkacompat.console.failure import BrokerAway, NotRead

Header = tuple[str, bytes | None]


class ReadMessage:
    """A message as the client library returns it. As there, headers may be read only once."""

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header] | Exception | None = None,
        offset: int = 3,
    ) -> None:
        self._offset = offset
        self._key, self._value = key, value
        self._headers = [headers]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1_000

    def headers(self) -> list[Header] | None:
        given = self._headers.pop()
        if isinstance(given, Exception):
            raise given
        return given


@pytest.mark.parametrize(
    "error",
    [
        SystemError("<method 'headers'> returned a result with an exception set"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=repr,
)
def test_a_header_whose_name_is_no_text_hides_the_headers_and_nothing_else(error: Exception) -> None:
    """Brokers do not check a record's headers, and the client library returns none of them if one is not UTF-8."""
    shown = record_view(ReadMessage(b"k", b"v", error), RecordsQuery("t", 0))
    assert (shown["headers"], shown["headers_hidden"], shown["headers_unreadable"]) == ([], 0, True)
    assert (shown["key"]["text"], shown["value"]["text"]) == ("k", "v")


def test_headers_are_shown_up_to_a_bound() -> None:
    many: list[Header] = [(f"h{number}", b"\xff") for number in range(MAX_HEADERS + 7)]
    shown = record_view(ReadMessage(None, None, many), RecordsQuery("t", 0))
    assert (len(shown["headers"]), shown["headers_hidden"], shown["headers_unreadable"]) == (
        MAX_HEADERS,
        7,
        False,
    )


def test_columns_are_read_from_the_whole_value_however_little_of_it_is_shown() -> None:
    value = b'{"text": "' + b"x" * 5_000 + b'", "id": 7}'
    query = RecordsQuery("t", 0, value_bytes=10, columns=columns_of("id,absent"))
    shown = record_view(ReadMessage(None, value), query)
    assert (shown["cells"], shown["value"]["truncated"]) == (["7", None], True)


class FailedMessage:
    """The object that the library returns instead of a record."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._TRANSPORT)


class SilentConsumer:
    """A consumer of a partition that returns two records. After them it returns only the given object, or nothing."""

    def __init__(self, then: FailedMessage | None) -> None:
        self.at = 0
        self.then = then

    def assign(self, places: list[TopicPartition]) -> None:
        self.at = places[0].offset

    def poll(self, timeout_s: float) -> ReadMessage | FailedMessage | None:
        if self.at >= 2:
            return self.then
        self.at += 1
        return ReadMessage(b"k", b"v", None, self.at - 1)


@pytest.mark.parametrize(
    ("then", "error", "says"),
    [
        (None, NotRead, "no record of t-0 at or after offset 2"),
        (FailedMessage(), BrokerAway, "no more records of t-0"),
    ],
)
def test_a_record_that_never_comes_is_told_from_a_broker_that_is_away(
    then: FailedMessage | None, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reports nothing about a batch that it cannot read."""
    seconds = iter(range(1_000))
    monkeypatch.setattr("kafkacompat.console.browse.time.monotonic", lambda: next(seconds))
    with pytest.raises(error, match=says):
        list(messages(SilentConsumer(then), "t", 0, 0, 9, 8.0))


BYTES = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.sampled_from([b'{"a":"\\ud800"}', b"[1e999]", b"[NaN]", b"[" * 50_000]),
    st.tuples(st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\0\4"]), st.binary(max_size=60)).map(
        b"".join
    ),
)
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=3)


@given(
    st.sampled_from(["t", "__consumer_offsets", "__transaction_state"]),
    BYTES,
    BYTES,
    HEADERS,
    st.integers(1, 100),
)
def test_no_record_is_one_that_cannot_be_sent_to_the_page(
    topic: str, key: bytes | None, value: bytes | None, headers: list[Header], value_bytes: int
) -> None:
    shown = record_view(ReadMessage(key, value, headers), RecordsQuery(topic, 0, value_bytes=value_bytes))
    told = json.dumps(shown, ensure_ascii=False, allow_nan=False).encode()
    assert json.loads(told) == shown
