"""Query parameters and Host headers: the accepted values, and the errors for all others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.console.core.addresses import host_of, listen_address, may_ask
from kafkacompat.console.core.parameters import (
    KNOWN,
    MAX_LIMIT,
    MAX_PAGE_BYTES,
    MAX_VALUE_BYTES,
    BadParameter,
    NewestQuery,
    RecordsQuery,
    SearchQuery,
    records_query,
    search_query,
)


def test_a_query_with_all_its_parts() -> None:
    pairs = {
        "topic": "a.b-c_1",
        "partition": "2",
        "limit": "5",
        "value_bytes": "10",
        "offset": "0",
        "uncommitted": "true",
    }
    assert records_query(pairs.items()) == RecordsQuery("a.b-c_1", 2, 5, 10, offset=0, uncommitted=True)


def test_only_the_topic_must_be_given() -> None:
    query = records_query([("topic", "t")])
    assert (query.partition, query.offset, query.before, query.time_ms, query.uncommitted) == (
        0,
        None,
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([], "topic must be"),
        ([("topic", "../etc")], "topic must be"),
        ([("topic", "t\n")], "topic must be"),
        ([("topic", "t" * 250)], "topic must be"),
        ([("topic", "t"), ("partition", "-1")], "partition must be a whole number from 0"),
        ([("topic", "t"), ("partition", "1.5")], "partition must be"),
        ([("topic", "t"), ("offset", "9" * 30)], "offset must be"),
        ([("topic", "t"), ("offset", str(2**63))], "offset must be"),
        ([("topic", "t"), ("offset", "١")], "offset must be"),
        ([("topic", "t"), ("limit", "0")], "limit must be"),
        ([("topic", "t"), ("limit", str(MAX_LIMIT + 1))], "limit must be"),
        ([("topic", "t"), ("limit", "")], "limit must be"),
        ([("topic", "t"), ("value_bytes", str(MAX_VALUE_BYTES + 1))], "value_bytes must be"),
        ([("topic", "t"), ("limit", "200"), ("value_bytes", "1000000")], f"at most {MAX_PAGE_BYTES}"),
        ([("topic", "t"), ("time_ms", "1e3")], "time_ms must be"),
        ([("topic", "t"), ("offset", "1"), ("before", "2")], "cannot be given together"),
        ([("topic", "t"), ("topic", "u")], "topic is given twice"),
        ([("topic", "t"), ("speed", "1")], "unknown parameter 'speed'"),
        ([("topic", "t"), ("uncommitted", "1")], "uncommitted must be true or false"),
    ],
)
def test_a_parameter_out_of_bounds_is_named(pairs: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        records_query(pairs)


@given(st.lists(st.tuples(st.sampled_from([*KNOWN, "else"]), st.text(max_size=25)), max_size=6))
def test_any_parameters_are_a_query_within_bounds_or_refused_in_a_line(pairs: list[tuple[str, str]]) -> None:
    refused = ""
    try:
        query = records_query(pairs)
    except BadParameter as error:
        refused = str(error)
    assert refused.count("\n") == 0
    if not refused:
        assert 1 <= query.limit <= MAX_LIMIT
        assert query.limit * query.value_bytes <= MAX_PAGE_BYTES


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8088", "127.0.0.1:8088", "[::1]:8088", "192.168.1.7", "localhost."]
)
def test_hosts_that_cannot_be_rebound_may_ask(host: str) -> None:
    assert may_ask(host, frozenset())


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8088",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[",
        "x" * 999,
    ],
)
def test_other_hosts_may_not_ask(host: str | None) -> None:
    assert not may_ask(host, frozenset({"console.internal"}))


def test_a_name_that_was_allowed_may_ask() -> None:
    assert may_ask("Console.Internal:8088", frozenset({"console.internal"}))
    assert host_of("[fe80::1]:80") == "fe80::1"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:8088", ("::1", 8088)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses_to_listen_on(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["8088", ":8088", "a:", "a:b", "a:65536", "::1:80", "a:-1", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        listen_address(text)


def test_all_partitions_have_ends_and_no_start() -> None:
    assert records_query([("topic", "t"), ("partition", "all")]) == NewestQuery("t")
    pairs = [
        ("topic", "t"),
        ("partition", "all"),
        ("ends", "3.0.55"),
        ("limit", "5"),
        ("uncommitted", "true"),
    ]
    assert records_query(pairs) == NewestQuery("t", 5, ends=(3, 0, 55), uncommitted=True)
    for more, said in (
        ([("partition", "all"), ("offset", "1")], "offset is for one partition"),
        ([("partition", "all"), ("ends", "1..2")], "ends must be offsets"),
        ([("partition", "all"), ("ends", ".".join(["1"] * 65))], "at most 64"),
        ([("partition", "all"), ("ends", "9" * 19 + ".1")], "ends must be offsets"),
        ([("ends", "1")], "ends is for the partition all"),
    ):
        with pytest.raises(BadParameter, match=said):
            records_query([("topic", "t"), *more])


def test_a_search_with_all_its_parts() -> None:
    pairs = {
        "topic": "t",
        "partition": "2",
        "key": "",
        "value": "a",
        "from_ms": "1",
        "to_ms": "2",
        "ends": "7",
    }
    wanted = SearchQuery("t", 2, key="", value="a", from_ms=1, to_ms=2, ends=(7,))
    assert search_query(pairs.items()) == wanted
    assert search_query([("topic", "t"), ("key", "k")]) == SearchQuery("t", None, key="k")


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([], "nothing to look for"),
        ([("value", "")], "nothing to look for"),
        ([("key", "k" * 1_001)], "key may have at most 1000 characters"),
        ([("value", "v" * 1_001)], "value may have at most 1000 characters"),
        ([("from_ms", "5"), ("to_ms", "5")], "from_ms must be before to_ms"),
        ([("from_ms", "-5")], "from_ms must be a whole number"),
        ([("key", "k"), ("partition", "x")], "partition must be a whole number from 0 to 1000000 or all"),
        ([("key", "k"), ("offset", "1")], "unknown parameter 'offset'"),
        ([("key", "k"), ("ends", "1.x")], "ends must be offsets"),
        ([("key", "k"), ("columns", "a..b")], "columns: it is no path at character 2"),
    ],
)
def test_a_search_out_of_bounds_is_refused_with_a_reason(pairs: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        search_query([("topic", "t"), *pairs])
