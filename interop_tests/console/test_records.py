"""Browsing a topic's records as a user: by offset, by time, page by page, decoded; and the same with the JSON API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from interop_tests.console.page import PHONE, Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import BASE_MS
from interop_tests.console.writing import GROUP, MIXED_RECORDS, MIXED_TOPIC, Writer
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import ErrorCode, metadata
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from kafkacompat.pipeline._tests.registry_kit import a_registry, framed

MINUTE_MS = 60_000


def browse(page: Page, start: str = "the latest", at: str = "", limit: str = "10") -> Page:
    page.open("#/browse")
    page.choose("#browse-topic", MIXED_TOPIC)
    page.choose("#browse-start", start)
    if at:
        page.write("#browse-at", at)
    page.choose("#browse-limit", limit)
    page.click("#browse-form button[type=submit]")
    return page


def offsets(page: Page) -> list[int]:
    return [int(row[0]) for row in page.rows("#browse-records")]


def at_offsets(page: Page, first: int, last: int) -> None:
    page.wait_for("#browse-range", f"offsets {first} to {last};")
    # The topics to choose from are part of another response than the records.
    page.wait_for("#browse-topic", MIXED_TOPIC)
    assert offsets(page) == list(range(first, last + 1))


def test_paging_from_the_newest_to_the_oldest_and_back(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    assert f"the partition holds 0 to {MIXED_RECORDS}" in page.text("#browse-range")
    assert not page.element("#browse-newer").is_enabled()
    page.click("#browse-older")
    at_offsets(page, 40, 49)
    page.click("#browse-newer")
    at_offsets(page, 50, 59)
    page.click("#browse-oldest")
    at_offsets(page, 0, 9)
    assert not page.element("#browse-older").is_enabled()
    page.click("#browse-newer")
    at_offsets(page, 10, 19)
    page.script("history.back()")
    at_offsets(page, 0, 9)
    page.click("#browse-newest")
    at_offsets(page, 50, 59)


def test_paging_stays_with_what_is_shown_whatever_was_chosen_meanwhile(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    page.choose("#browse-topic", "logs.summary")
    page.click("#browse-older")
    at_offsets(page, 40, 49)
    assert page.text("#browse-title") == f"{MIXED_TOPIC}, partition 0"
    assert page.script("return document.querySelector('#browse-topic').value") == MIXED_TOPIC


def test_starting_at_an_offset(page: Page) -> None:
    at_offsets(browse(page, "at an offset", "33"), 33, 42)


def test_starting_at_a_time(page: Page, console: ConsoleProcess) -> None:
    moment = console.get(f"/api/records?topic={MIXED_TOPIC}&offset=12&limit=1").json["records"][0][
        "timestamp_ms"
    ]
    assert moment == BASE_MS + 12 * MINUTE_MS
    browse(
        page,
        "at a time (UTC)",
        page.script("return new Date(arguments[0]).toISOString()", moment)[:19].replace("T", " "),
    )
    at_offsets(page, 12, 21)


def test_a_time_after_everything_is_an_empty_page_that_leads_back(page: Page) -> None:
    browse(page, "at a time (UTC)", "2099-01-01")
    page.wait_for("#browse-records", "no records from here on")
    page.click("#browse-older")
    at_offsets(page, 50, 59)


def test_a_text_that_is_no_time_is_refused_with_a_message(page: Page) -> None:
    browse(page, "at a time (UTC)", "yesterday")
    page.wait_for("#browse-records", "yesterday is not a time")


def test_records_are_decoded(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    rows = page.rows("#browse-records")
    assert rows[0][2] == "customer-1"
    assert rows[0][3] == '{ "order": 50, "items": [ "tea", "café" ] }'
    assert rows[8][3:] == ["null", "null"]
    page.click("[data-key='50']")
    shown = page.wait_for("#browse-records .record", "json")
    assert '"order": 50,\n' in shown
    page.click("[data-key='50']")
    page.click("[data-key='57']")
    shown = page.wait_for("#browse-records .record", "hex", "trace", "abc-57")
    assert "000000  00 01 fe ff 20 62" in shown


def test_markup_in_a_record_stays_text_and_a_long_value_is_cut_until_asked_for(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    page.click("[data-key='59']")
    shown = page.wait_for("#browse-records .record", "only its beginning")
    assert "<img src=x onerror=document.title='owned'>" in shown
    assert len(shown) < 4_500
    page.click("[data-key='whole 59']")
    page.wait_for("#browse-records .record", "x" * 6_000)
    assert page.script("return document.querySelectorAll('#browse-records img').length") == 0
    assert page.script("return document.title") == "kafkacompat console"


def test_the_address_holds_what_is_shown(page: Page) -> None:
    page.open(f"#/browse?topic={MIXED_TOPIC}&partition=0&offset=5&limit=10")
    at_offsets(page, 5, 14)
    assert page.script("return document.querySelector('#browse-topic').value") == MIXED_TOPIC


def test_the_form_says_what_the_address_asked_for_and_leads_on_from_it(page: Page) -> None:
    """Also a number of records that is not among the choices."""

    def form() -> list[str]:
        found: list[str] = page.script(
            "return ['start', 'at', 'limit'].map(each => document.querySelector(`#browse-${each}`).value)"
        )
        return found

    page.open(f"#/browse?topic={MIXED_TOPIC}&partition=0&offset=5&limit=7")
    at_offsets(page, 5, 11)
    assert form() == ["offset", "5", "7"]
    page.click("#browse-newer")
    at_offsets(page, 12, 18)
    assert form() == ["offset", "12", "7"]
    page.click("#browse-form button[type=submit]")
    at_offsets(page, 12, 18)
    page.open(f"#/browse?topic={MIXED_TOPIC}&time_ms={BASE_MS + 12 * MINUTE_MS}")
    at_offsets(page, 12, 36)
    assert form() == ["time", "2026-09-21 14:26:00.000", "25"]
    page.click("#browse-form button[type=submit]")
    at_offsets(page, 12, 36)
    page.click("#browse-newest")
    at_offsets(page, 35, 59)
    assert form()[:2] == ["latest", ""]


def test_values_are_to_be_seen_on_a_phone(page: Page) -> None:
    """No element is wider than the window, because a phone does not show that one can scroll sideways."""
    page.open(f"#/browse?topic={MIXED_TOPIC}&offset=5&limit=10", size=PHONE)
    at_offsets(page, 5, 14)
    for box in page.boxes("#browse-records td.value"):
        assert box["width"] > 80
        assert box["x"] + box["width"] <= PHONE[0] - 20


def test_a_value_that_cannot_be_read_on_is_said(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    page.click("[data-key='59']")
    page.script("window.fetch = () => Promise.reject(new TypeError('nobody there'))")
    page.click("[data-key='whole 59']")
    page.wait_for("#browse-records .record", "No more of the value: nobody there", "only its beginning")


def test_a_committed_offset_is_told_with_its_fields(
    console: ConsoleProcess, shown_broker: BrokerProcess
) -> None:
    offsets = []
    for partition in range(int(shown_broker.settings["offsets.topic.num.partitions"])):
        answer = console.get(f"/api/records?topic=__consumer_offsets&partition={partition}&limit=100")
        assert answer.status == 200, answer.body
        for each in answer.json["records"]:
            if (
                each["key"]["kind"] == "json"
                and json.loads(each["key"]["text"])["data"].get("group") == GROUP
            ):
                offsets.append(
                    (json.loads(each["value"]["text"] or "null") or {"data": {}})["data"].get("offset")
                )
    assert 30 in offsets


def test_compaction_and_aborted_transactions_leave_gaps_that_are_stepped_over(
    console: ConsoleProcess, shown_broker: BrokerProcess
) -> None:
    """Transaction markers have offsets: pages are full, nothing is shown twice, and the end is found."""
    from confluent_kafka import Producer

    topic = "browse.transactions"
    Writer(shown_broker.bootstrap).create(topic, partitions=1)
    producer = Producer(
        {"bootstrap.servers": shown_broker.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    producer.init_transactions(60)
    for number in range(8):
        producer.begin_transaction()
        producer.produce(topic, f"v{number}".encode())
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)

    def values(query: str) -> list[str]:
        page = console.get(f"/api/records?topic={topic}&{query}").json
        return [each["value"]["text"] for each in page["records"]]

    assert values("offset=0") == ["v0", "v2", "v4", "v6"]
    assert values("uncommitted=true") == [f"v{number}" for number in range(8)]
    assert values("limit=3") == ["v2", "v4", "v6"]
    page = console.get(f"/api/records?topic={topic}&limit=2").json
    assert [each["offset"] for each in page["records"]] == [8, 12]
    assert page["next_offset"] is None
    before = console.get(f"/api/records?topic={topic}&limit=2&before={page['previous_before']}").json
    assert [each["offset"] for each in before["records"]] == [0, 4]
    after = console.get(f"/api/records?topic={topic}&limit=2&offset={before['next_offset']}").json
    assert [each["offset"] for each in after["records"]] == [8, 12]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("topic=no.such.topic", 404, "there is no topic no.such.topic"),
        (f"topic={MIXED_TOPIC}&partition=9", 404, "has no partition 9"),
        (f"topic={MIXED_TOPIC}&limit=1000000", 400, "limit must be a whole number from 1 to 200"),
        (f"topic={MIXED_TOPIC}&offset=-1", 400, "offset must be"),
        ("topic=%3Cscript%3E", 400, "topic must be"),
        ("", 400, "topic must be"),
    ],
)
def test_queries_that_cannot_be_answered_are_refused_with_a_reason(
    query: str, status: int, says: str, console: ConsoleProcess
) -> None:
    answer = console.get(f"/api/records?{query}")
    assert answer.status == status
    assert says in answer.json["error"]


def test_browsing_makes_no_topic_and_writes_nothing(
    console: ConsoleProcess, shown_broker: BrokerProcess
) -> None:
    """The broker creates topics on request. The test creates one that way, and then produces to it."""
    asked, made = "browsed.not.made", "written.and.made"
    for more in ("", "&offset=0", "&time_ms=1", "&before=5"):
        assert console.get(f"/api/records?topic={asked}{more}").status == 404
    with Connection(shown_broker.bootstrap) as connection:
        assert metadata(connection, asked)["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        writer = Writer(shown_broker.bootstrap)
        writer.write(made, b"v", "k")
        writer.written()
        assert metadata(connection, made)["ErrorCode"] == 0
        assert metadata(connection, asked)["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    view = console.wait_for("/api/cluster", lambda view: made in topics(view))
    assert asked not in topics(view)
    writer.delete(made)
    for path in ("/", "/api/records", "/api/results", "/metrics"):
        assert console.get(path, method="POST").status == 405


def topics(view: Any) -> set[str]:
    return {topic["topic"] for topic in view["cluster"]["topics"]}


def test_only_hosts_that_cannot_be_rebound_are_answered(console: ConsoleProcess) -> None:
    for host, status in (
        ("evil.example", 421),
        (f"evil.example:{console.port}", 421),
        (f"localhost:{console.port}", 200),
    ):
        answer = console.get("/api/cluster", host=host)
        assert answer.status == status
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_prometheus_can_read_what_is_known(console: ConsoleProcess) -> None:
    text = console.get("/metrics").body.decode()
    assert f'kafka_topic_records{{topic="{MIXED_TOPIC}"}} {float(MIXED_RECORDS)}\n' in text
    assert "kafkacompat_console_broker_up 1.0\n" in text
    assert f'kafka_group_lag_records{{group="{GROUP}"}} ' in text


def test_key_and_value_are_below_each_other_in_a_narrow_window(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    page.size((420, 900))
    for key, value in zip(
        page.boxes("#browse-records td.key"), page.boxes("#browse-records td.value"), strict=True
    ):
        assert key["y"] + key["height"] <= value["y"]
        assert key["x"] == value["x"]
        assert value["x"] + value["width"] <= 420
    assert page.script("return document.documentElement.scrollWidth") == 420
    page.size()
    (first, *_), (after, *_) = page.boxes("#browse-records td.key"), page.boxes("#browse-records td.value")
    assert first["y"] == after["y"]


def shown(page: Page) -> list[tuple[int, int]]:
    """Partition and offset of the records on a page of all partitions."""
    return [(int(row[1]), int(row[0])) for row in page.rows("#browse-records")]


def test_the_newest_records_of_all_partitions_come_first(page: Page, console: ConsoleProcess) -> None:
    topic = "logs.summary"
    seen: list[tuple[int, int]] = []
    times: list[int] = []
    query = f"/api/records?topic={topic}&partition=all&limit=30"
    answer = console.get(query).json
    while True:
        seen += [(record["partition"], record["offset"]) for record in answer["records"]]
        times += [record["timestamp_ms"] for record in answer["records"]]
        if answer["older"] is None:
            break
        answer = console.get(f"{query}&ends={answer['older']}").json
    places = []
    for partition in range(answer["partitions"]):
        alone = console.get(f"/api/records?topic={topic}&partition={partition}&offset=0&limit=200").json
        places += [(partition, record["offset"]) for record in alone["records"]]
    assert sorted(seen) == sorted(places)
    assert len(seen) > 60
    assert {partition for partition, _ in seen[:30]} == {0, 1, 2}
    page.open("#/cluster").wait_for("#topics", topic)
    page.click(f"a[aria-label='records of {topic}']")
    page.wait_for("#browse-range", "25 records of 3 partitions, newest first")
    assert shown(page) == seen[:25]
    page.click("#browse-older")
    wait_until(lambda: shown(page) == seen[25:50], "the next page is shown")
    page.click("#browse-records tbody tr:first-child button")
    page.wait_for("#browse-records .record", "Value · json")
    page.choose("#browse-start", "at an offset")
    page.click("#browse-form button[type=submit]")
    page.wait_for("#browse-records", "of all partitions only the latest records are shown")


def test_a_search_finds_what_matches_in_all_partitions_and_goes_on(
    page: Page, console: ConsoleProcess
) -> None:
    page.open("#/browse").choose("#browse-topic", MIXED_TOPIC)
    page.choose("#browse-start", "search")
    page.write("#sought-value", "caf\u00e9")
    page.write("#sought-from", "2026-09-21 14:26:00")
    page.write("#sought-to", "2026-09-21 14:29:00")
    page.click("#browse-form button[type=submit]")
    page.wait_for("#browse-range", "3 records found", "looked at 3 records", "nothing is left to look at")
    assert [row[0] for row in page.rows("#browse-records")] == ["14", "13", "12"]
    assert "\\u00e9" not in page.text("#browse-records")

    page.open(f"#/browse?topic={MIXED_TOPIC}&partition=all&key=customer-1&limit=4")
    page.wait_for("#browse-range", "4 records found", "of 1 partition", "offsets left")
    assert page.script("return document.querySelector('#sought-key').value") == "customer-1"
    for found in (8, 9):
        page.click("#search-go")
        page.wait_for("#browse-range", f"{found} records found")
    page.wait_for("#browse-range", f"looked at {MIXED_RECORDS} records", "nothing is left to look at")
    assert [int(row[0]) for row in page.rows("#browse-records")] == list(range(57, 0, -7))
    page.click("#browse-records tbody tr:first-child button")
    page.wait_for("#browse-records .record", "abc-57")

    answer = console.get("/api/search?topic=logs.summary&value=window_start_ms&limit=30").json
    newest = console.get("/api/records?topic=logs.summary&partition=all&limit=30").json
    assert answer["records"] == newest["records"]


def test_values_of_json_are_columns_that_the_user_chooses(page: Page) -> None:
    browse(page)
    at_offsets(page, 50, 59)
    page.click("[data-key='column order']")
    wait_until(lambda: page.rows("#browse-records")[0][3] == "50", "the column is shown")
    page.write("#columns-add", "items[1]\n")
    wait_until(lambda: page.rows("#browse-records")[0][3:5] == ["50", "caf\u00e9"], "two columns are shown")
    assert page.rows("#browse-records")[8][3:] == ["\u2013", "\u2013", "null"]
    page.click("#browse-older")
    wait_until(lambda: page.rows("#browse-records")[0][3:5] == ["40", "caf\u00e9"], "the columns stay")
    page.click("[data-key='column items[1]']")
    wait_until(lambda: len(page.rows("#browse-records")[0]) == 5, "one column is left")
    page.write("#columns-add", "items[\n")
    page.wait_for("#columns-problem", "Write a path like")


def test_avro_is_shown_by_the_schema_that_the_registry_has(
    chromium: webdriver.Chrome,
    shown_broker: BrokerProcess,
    make_console: Callable[..., ConsoleProcess],
    tmp_path: Path,
) -> None:
    topic = "browse.avro"
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
    }
    writer = Writer(shown_broker.bootstrap)
    writer.create(topic, partitions=1)
    writer.write(topic, framed(6, b"\x0e\x08<b>Z"), "k")
    writer.write(topic, framed(9, b"\x0e"), "k")
    writer.written()
    password = tmp_path / "registry.properties"
    password.write_text("basic.auth.user.info=console:s3cret\n")
    with a_registry() as registry:
        registry.register(6, schema)
        registry.authorization = "Basic Y29uc29sZTpzM2NyZXQ="
        console = make_console(
            shown_broker.bootstrap, "--registry", registry.url, "--registry-config", str(password)
        )
        page = Page(chromium, console.address)
        page.open(f"#/browse?topic={topic}&columns=city")
        page.wait_for("#browse-range", "offsets 0 to 1;")
        assert [row[3] for row in page.rows("#browse-records")] == ["<b>Z", "\u2013"]
        page.click("[data-key='0']")
        page.wait_for(
            "#browse-records .record", "avro, Order, schema 6", '"city": "<b>Z"', "as it is written"
        )
        page.click("[data-key='1']")
        page.wait_for("#browse-records", "unknown schema: the registry has no schema with id 9")
        assert console.stop() == 0
        assert "s3cret" not in console.log.read_text()
