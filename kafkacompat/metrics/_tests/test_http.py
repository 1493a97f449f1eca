"""Request heads of scrapers, and of others."""

from __future__ import annotations

import pytest

from kafkacompat.metrics.http import HttpError, answer, answer_head, chunk, parse_head, whole_body


def test_a_scraper_s_request() -> None:
    head = b"GET /metrics?x=1 HTTP/1.1\r\nHost: h:1\r\nAccept: text/plain\r\n\r\n"
    assert parse_head(head) == ("GET", "/metrics", True, "x=1", None)


def test_an_old_client_gets_no_chunks() -> None:
    assert parse_head(b"HEAD /live HTTP/1.0\r\n\r\n") == ("HEAD", "/live", False, "", None)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /metrics HTTP/1.1", 405),
        (b"GET http://other/metrics HTTP/1.1", 400),
        (b"GET /metrics", 400),
        (b"GET /metrics HTTP/2", 400),
        (b"GET /\xff HTTP/1.1", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"", 400),
    ],
)
def test_requests_that_the_metrics_listener_refuses(line: bytes, status: int) -> None:
    with pytest.raises(HttpError) as refused:
        parse_head(line + b"\r\n\r\n")
    assert refused.value.status == status


def test_an_answer_states_its_length() -> None:
    whole = answer(503, "the node starts")
    assert whole.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"Content-Length: 16\r\n" in whole
    assert whole.endswith(b"\r\n\r\nthe node starts\n")
    assert answer(503, "the node starts", with_body=False) == whole[:-16]


def test_an_answer_in_chunks_has_no_length() -> None:
    head = answer_head(200, "text/plain", None, in_chunks=True)
    assert b"Transfer-Encoding: chunked\r\n" in head
    assert b"Content-Length" not in head
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
    assert chunk(b"") == b"0\r\n\r\n"


@pytest.mark.parametrize(
    "whole",
    [
        answer(200, "ready"),
        answer(503, ""),
        answer_head(200, "text/plain", None, in_chunks=True)
        + chunk(b"size 1234\n" * 3)
        + chunk(b"up 1\n")
        + chunk(b""),
    ],
)
def test_an_answer_is_whole_or_nothing(whole: bytes) -> None:
    head, _, rest = whole.partition(b"\r\n\r\n")
    body = whole_body(head, rest)
    assert body is not None
    assert body.endswith(b"\n")
    assert {whole_body(head, rest[:size]) for size in range(len(rest))} == {None}


def test_a_header_that_comes_twice_is_none() -> None:
    head = b"GET /watch HTTP/1.1\r\nauthorization:  Bearer x \r\n"
    assert parse_head(head + b"\r\n").authorization == "Bearer x"
    assert parse_head(head + b"Authorization: Bearer y\r\n\r\n").authorization is None
