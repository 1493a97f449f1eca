"""Records, headers and groups with unusual contents: the console counts or shows them, and continues."""

from __future__ import annotations

from collections.abc import Callable

from selenium import webdriver

from interop_tests.conftest import MakeBroker
from interop_tests.console.page import Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import Result, result, window
from interop_tests.console.writing import Writer
from interop_tests.harness.groups import Member, coordinator
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan, encode_record
from interop_tests.harness.wire import Connection

ODD_TOPIC = "odd"
HALF_PAIR = rb'{"a":"\ud800"}'
BLANKS = 200_000
ODD_HEADERS = 30
UNKNOWN_LETTER = "\ufffd"


def summary(minute: int, **changed: object) -> Result:
    counts: dict[str, object] = {"requests": 60, "bytes": 1, "status_2xx": 60}
    rest = dict.fromkeys(("status_3xx", "status_4xx", "status_5xx"), 0)
    fields = window(minute) | counts | rest | changed
    return result("logs.summary", str(minute), 5, **fields)


def measured(latency_ms: float) -> Result:
    latency = {f"latency_{name}_ms": latency_ms for name in ("mean", "p50", "p95", "p99")}
    return result(
        "metrics.windows", "tiny|0", 5, **window(0), service="tiny", count=1, error_rate=latency_ms, **latency
    )


def write_odd_headers(bootstrap: str) -> None:
    """Records with a header whose name is not UTF-8. Clients do not write such records.

    There are so many that the client library in the console takes a fast path of Python, which makes a broken list.
    """
    record = encode_record(0, None, b"headed", [("ZZ", b"1")]).replace(b"ZZ", b"\xff\xfe")
    with Connection(bootstrap) as connection:
        for _ in range(ODD_HEADERS):
            written = produce(connection, ODD_TOPIC, BatchPlan([b"headed"], records=record))
            assert written["ErrorCode"] == 0, written


def commit_without_a_group(bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        coordinator(connection, "")
    member = Member(bootstrap, "")
    try:
        assert member.commit(ODD_TOPIC, 1, version=8) == 0
    finally:
        member.close()


def test_odd_records_and_groups_are_shown_or_counted_and_nothing_ends(
    chromium: webdriver.Chrome, make_broker: MakeBroker, make_console: Callable[[str], ConsoleProcess]
) -> None:
    broker = make_broker()
    writer = Writer(broker.bootstrap)
    names = ("logs.summary", "logs.rejected", "metrics.windows", ODD_TOPIC)
    writer.create(*names, partitions=1)
    writer.send(
        [
            summary(0, window_start_ms=10**400),
            summary(1),
            result("logs.rejected", "1", 1, reason="half \ud800", line="\udfff", received_ms=1),
            measured(5e-324),
        ]
    )
    blanks = b'{"blanks": "' + b" " * BLANKS + b'"}'
    for value in (b"before", HALF_PAIR, b"[" * 2_000 + b"]" * 2_000, b"[NaN]", blanks):
        writer.write(ODD_TOPIC, value, "k")
    writer.written()
    write_odd_headers(broker.bootstrap)
    writer.write(ODD_TOPIC, b"after", "k")
    writer.written()
    commit_without_a_group(broker.bootstrap)

    console = make_console(broker.bootstrap)
    page = Page(chromium, console.address).open()
    page.wait_for(
        "#reading", "4 result records read", "1 row not understood (logs.summary-0 offset 0: out of range"
    )
    page.wait_for("#rejected", f"half {UNKNOWN_LETTER}")
    page.wait_for("#services", "tiny")
    reading = console.get("/api/results")
    assert (reading.status, reading.json["reading"]["malformed"]) == (200, 1)

    page.open("#/cluster").wait_for("#groups", "1 more groups are not shown")
    page.open(f"#/browse?topic={ODD_TOPIC}&partition=0&offset=0&limit=100")
    page.wait_for("#browse-range", f"offsets 0 to {5 + ODD_HEADERS};")
    assert [row[3][:9] for row in page.rows("#browse-records")] == [
        "before",
        f'{{ "a": "{UNKNOWN_LETTER}',
        "[[[[[[[[[",
        "[NaN]",
        '{"blanks"',
        *["headed"] * ODD_HEADERS,
        "after",
    ]
    page.click("[data-key='4']")
    page.click("[data-key='whole 4']")
    page.wait_for("#browse-records .record", "json")
    page.click("[data-key='4']")
    page.click("[data-key='5']")
    page.wait_for("#browse-records .record", "The headers cannot be shown")
    (headed,) = console.get(f"/api/records?topic={ODD_TOPIC}&offset=5&limit=1").json["records"]
    assert (headed["headers"], headed["headers_unreadable"]) == ([], True)

    assert page.complaints() == []
    assert console.stop() == 0
