"""Lines in formats of users as events: times, escapes, requests, and what is refused. One Spark for tables of lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kafkacompat.pipeline._tests.conftest import RECEIVED_MS
from kafkacompat.pipeline._tests.test_log_formats import INGRESS, WHEN
from kafkacompat.pipeline.topics import CUT_HEADER, LINE_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Records = Callable[..., "DataFrame"]
ISO, SECONDS, MICROSECONDS = "$time_iso8601 $status", "$msec $status", "%{usec}t %s"


def validated(records: Records, form: str, lines: list[bytes], **more: Any) -> list[dict[str, Any]]:
    from kafkacompat.pipeline.formats.registry import log_format
    from kafkacompat.pipeline.jobs import logs

    frame = logs.validate(records("logs.raw", *lines, **more), log_format(form))
    return [row.asDict(recursive=True) for row in frame.collect()]


NO_TIME = "malformed line: time: there is no such date or time of day"
TIMES: dict[str, dict[str, int | str]] = {
    ISO: {
        "2026-09-21T14:13:20+00:00": 0,
        "2026-09-21T14:13:20Z": 0,
        "2026-09-21T16:13:20+0200": 0,
        "2026-09-21T08:43:20-05:30": 0,
        "2026-09-21T14:13:20.250Z": 250,
        "2026-09-21T14:13:20.2+00:00": 200,
        "2026-09-21T14:13:20.186641Z": 186,
        "2026-09-21T16:13:20.186641999+0200": 186,
        "2026-09-31T14:13:20Z": NO_TIME,
        "2026-09-21T24:13:20Z": NO_TIME,
        "2026-09-21T14:13:20+99:99": NO_TIME,
    },
    SECONDS: {
        "1790000000": 0,
        "1790000000.250": 250,
        "1790000000.0019": 1,
        "99999999999.999": "future timestamp",
    },
    "%{msec}t %s": {"1790000000007": 7},
    MICROSECONDS: {"1790000000007999": 7, "99999999999999999": "future timestamp"},
    "%t %s": {
        f"[{WHEN}]": 0,
        "[21/Sep/2026:14:13:20.25 +0000]": 250,
        "[21/Sep/2026:16:13:20.186641999 +0200]": 186,
        "[41/Sep/2026:14:13:20 +0000]": NO_TIME,
        "[21/Xyz/2026:14:13:20 +0000]": NO_TIME,
    },
}


@pytest.mark.parametrize("form", TIMES)
def test_a_time_is_read_with_its_fraction_and_offset(records: Records, form: str) -> None:
    found = validated(records, form, [f"{text} 200".encode() for text in TIMES[form]])
    assert {
        text: row["reason"] or row["event_time_ms"] - RECEIVED_MS
        for text, row in zip(TIMES[form], found, strict=True)
    } == TIMES[form]


ESCAPED = {
    rb"GET /\x22a\x22 HTTP/1.1": ("GET", '/"a"', "HTTP/1.1"),
    rb"GET /\"a\" HTTP/1.1": ("GET", '/"a"', "HTTP/1.1"),
    rb"GET /\\x41 HTTP/1.1": ("GET", r"/\x41", "HTTP/1.1"),
    rb"GET /\\\x41+%41 HTTP/1.1": ("GET", r"/\A+%41", "HTTP/1.1"),
    rb"GET /caf\xC3\xA9 HTTP/1.1": ("GET", "/caf\u00e9", "HTTP/1.1"),
    rb"GET /caf\xe9 HTTP/1.1": ("GET", "/caf\ufffd", "HTTP/1.1"),
    rb"GET /\x5Cx41 HTTP/1.1": ("GET", r"/\x41", "HTTP/1.1"),
    rb"GET /\u001fa\/b HTTP/1.1": ("GET", "/\x1fa/b", "HTTP/1.1"),
    rb"GET /a\tb HTTP/1.1": ("GET", "/a\tb", "HTTP/1.1"),
    rb"GET /\q\xzz HTTP/1.1": ("GET", r"/\q\xzz", "HTTP/1.1"),
    rb"GET /a file.txt HTTP/1.1": ("GET", "/a file.txt", "HTTP/1.1"),
    rb"GET /a  b HTTP/2.0": ("GET", "/a  b", "HTTP/2.0"),
    rb"GET /": (None, "GET /", None),
    rb"\x16\x03\x01 a": (None, "\x16\x03\x01 a", None),
    rb"GET /a b c": (None, "GET /a b c", None),
    b"GET /\0 HTTP/1.1": ("GET", "/\0", "HTTP/1.1"),
    b"": (None, "", None),
}


def test_a_request_is_read_without_the_escapes_of_the_server(records: Records) -> None:
    lines = [b'::1 [%s] "%s" 200' % (WHEN.encode(), request) for request in ESCAPED]
    found = validated(records, '%h %t "%r" %>s', lines)
    assert [(row["reason"], row["method"], row["path"], row["protocol"]) for row in found] == [
        (None, *wanted) for wanted in ESCAPED.values()
    ]


def test_without_escapes_a_backslash_is_a_backslash(records: Records) -> None:
    line = rf'[{WHEN}] "GET /\x22 HTTP/1.1" 200 a\"b'
    (found,) = validated(
        records, 'escape=none [$time_local] "$request" $status $http_user_agent', [line.encode()]
    )
    assert (found["path"], found["user_agent"]) == (r"/\x22", r"a\"b")


def test_an_absent_name_is_null_and_a_name_may_have_a_blank(records: Records) -> None:
    names = {"-": None, '""': None, "": None, "ann": "ann", "Ann Lee": "Ann Lee", r"\"a\"": '"a"'}
    found = validated(records, "%h %l %u %t %>s", [f"::1 - {name} [{WHEN}] 200".encode() for name in names])
    assert [(row["reason"], row["user"]) for row in found] == [(None, name) for name in names.values()]


def test_lists_of_upstreams_are_kept_by_their_names(records: Records) -> None:
    line = INGRESS.format("10.0.0.5:80, 10.0.0.6:80 0, 612 0.001, 0.002 502, 200")
    (found,) = validated(records, "upstreaminfo", [line.encode()])
    assert found["reason"] is None
    assert found["extra"] == {
        "request_length": "80",
        "request_time": "0.003",
        "proxy_upstream_name": "default-web-80",
        "upstream_addr": "10.0.0.5:80, 10.0.0.6:80",
        "upstream_response_length": "0, 612",
        "upstream_response_time": "0.001, 0.002",
        "upstream_status": "502, 200",
        "req_id": "9f1c2d3e4b",
    }


def test_the_job_takes_what_the_collector_sends_whole(records: Records) -> None:
    line = f'::1 [{WHEN}] "GET /" 200 "'.encode()
    longest = line + b"a" * (LINE_BYTES_MAX - len(line) - 1) + b'"'
    form = '$remote_addr [$time_local] "$request" $status "$http_user_agent"'
    found = validated(records, form, [longest, longest + b" "])
    assert [row["reason"] for row in found] == [None, "oversized record"]
    (cut,) = validated(records, form, [longest], headers=[(CUT_HEADER, b"600000")])
    assert cut["reason"] == "oversized record"
