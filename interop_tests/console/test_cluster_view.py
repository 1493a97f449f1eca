"""What a user sees of the cluster: nodes, topics with sizes, groups with lag, and partitions that are behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from selenium import webdriver

from interop_tests.cli.command import command_line
from interop_tests.cluster.clusters import Cluster
from interop_tests.console.page import PHONE, Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import RESULT_TOPICS
from interop_tests.console.writing import GROUP, MIXED_RECORDS, MIXED_TOPIC, Writer
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess, chosen_kind
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until


def test_topics_are_listed_with_records_rates_and_sizes(page: Page, console: ConsoleProcess) -> None:
    console.wait_for("/api/cluster", lambda view: sized(view, MIXED_TOPIC))
    page.open("#/cluster").wait_for("#topics", MIXED_TOPIC, "KiB")
    rows = {row[0]: row for row in page.rows("#topics")}
    assert {*RESULT_TOPICS, MIXED_TOPIC} <= rows.keys()
    assert rows[MIXED_TOPIC][1:4] == ["1", "in sync", str(MIXED_RECORDS)]
    assert rows["logs.summary"][1] == "3"
    assert rows["logs.summary"][4].endswith("/s")
    assert not any(name.startswith("__") for name in rows)
    page.click("#internal")
    page.wait_for("#topics", "__consumer_offsets")


def test_topics_are_found_by_a_part_of_their_name_and_ordered(page: Page, console: ConsoleProcess) -> None:
    console.wait_for("/api/cluster", lambda view: sized(view, MIXED_TOPIC))
    page.open("#/cluster").wait_for("#topics", MIXED_TOPIC)
    page.choose("#topic-order", "records")
    counts = [int(row[3].replace(",", "").replace("\u202f", "")) for row in page.rows("#topics")]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    page.write("#topic-search", "LOGS.")
    page.choose("#topic-order", "name")
    assert {row[0] for row in page.rows("#topics")} == {name for name in RESULT_TOPICS if "logs." in name}
    page.write("#topic-search", "no such name")
    page.wait_for("#topics", "No topic here has no such name in its name.")


def test_names_rates_and_sizes_are_to_be_seen_on_a_phone(page: Page, console: ConsoleProcess) -> None:
    """No element is wider than the window, because a phone does not show that one can scroll sideways."""
    console.wait_for("/api/cluster", lambda view: sized(view, MIXED_TOPIC))
    page.open("#/cluster", size=PHONE).wait_for("#topics", MIXED_TOPIC, "KiB", "/s")
    shown = """return [...document.querySelector('#topics tbody tr').cells]
        .filter(each => each.offsetWidth).map(each => each.innerText)"""
    name, rate, size = page.script(shown)[:3]
    assert rate.endswith("/s")
    assert size.endswith("B")
    for box in page.boxes("#topics tbody tr:first-child td")[:3]:
        assert box["x"] + box["width"] <= PHONE[0] - 20, name


def sized(view: dict[str, object], name: str) -> bool:
    cluster = view["cluster"]
    assert isinstance(cluster, dict)
    return any(topic["topic"] == name and (topic["size_bytes"] or 0) > 1_000 for topic in cluster["topics"])


def test_sizes_are_the_bytes_on_disk(console: ConsoleProcess, shown_broker: BrokerProcess) -> None:
    view = console.wait_for("/api/cluster", lambda view: sized(view, MIXED_TOPIC))
    told = {topic["topic"]: topic["size_bytes"] for topic in view["cluster"]["topics"]}
    logs = (shown_broker.data_dir / f"{MIXED_TOPIC}-0").glob("*.log")
    assert told[MIXED_TOPIC] == sum(log.stat().st_size for log in logs)


def test_a_topic_unfolds_to_its_partitions_and_stays_so(page: Page) -> None:
    page.open("#/cluster").wait_for("#topics", "logs.summary")
    page.click("[data-key='topic logs.summary']")
    page.wait_for("#topics .nested", "Leader", "Replicas", "In sync", "Offsets")
    assert [row[:5] for row in page.rows("#topics .nested")] == [
        [str(each), "in sync", "1", "1", "1"] for each in range(3)
    ]
    assert page.text("#nodes-note").startswith("cluster ")
    gone = "return document.querySelector('#topics [data-drawn]') === null"
    for _ in range(2):
        # The console redraws the table when it asks for the cluster. That would remove the selection.
        page.script("document.querySelector('#topics .nested').dataset.drawn = 'before'")
        wait_until(lambda: page.script(gone), "the topics are drawn again")
        assert len(page.rows("#topics .nested")) == 3
        assert page.script("return document.activeElement.dataset.key") == "topic logs.summary"


def test_the_page_of_a_topic_has_the_settings_that_are_set_before_the_others(page: Page) -> None:
    page.open("#/cluster").wait_for("#topics", "logs.summary")
    page.click("a[aria-label='settings of logs.summary']")
    page.wait_for("#topic-settings", "cleanup.policy", "settings with the default")
    rows = [row[:3] for row in page.rows("#topic-settings > .scroll")]
    assert rows[:2] == [["cleanup.policy", "compact", "topic"], ["retention.ms", "-1", "topic"]]
    assert "segment.bytes" not in page.text("#topic-settings")
    page.click("#topic-settings summary")
    page.wait_for("#topic-settings", "segment.bytes", "1.0 GiB")
    page.wait_for("#topic-note", "3 partitions")
    assert [row[:3] for row in page.rows("#topic-partitions")] == [
        [str(each), "in sync", "1"] for each in range(3)
    ]
    page.size((420, 900))
    assert page.script("return document.documentElement.scrollWidth") == 420
    page.click("#topic-links a")
    page.wait_for("#browse-title", "logs.summary, all partitions")


def test_text_that_a_user_has_selected_stays_while_there_is_news(
    page: Page, console: ConsoleProcess, shown_broker: BrokerProcess
) -> None:
    """A user selects text to copy it. The page shows new data when nothing is selected."""
    page.open("#/cluster").wait_for("#topics", "logs.summary")
    mark = """const row = [...document.querySelectorAll('#topics tbody tr')]
        .find(row => row.innerText.includes('logs.summary'));
        document.getSelection().selectAllChildren(row)"""
    marked, asked = (
        "return document.getSelection().toString()",
        "return performance.getEntriesByType('resource').length",
    )
    page.script(mark)
    text = page.script(marked)
    assert "logs.summary" in text
    writer = Writer(shown_broker.bootstrap)
    writer.create("made-meanwhile", partitions=1)
    try:
        console.wait_for(
            "/api/cluster",
            lambda view: "made-meanwhile" in {each["topic"] for each in view["cluster"]["topics"]},
        )
        before = page.script(asked)
        wait_until(lambda: page.script(asked) >= before + 4, "the page has asked again")
        assert page.script(marked) == text
        assert "made-meanwhile" not in page.text("#topics")
        page.script("document.getSelection().removeAllRanges()")
        page.wait_for("#topics", "made-meanwhile")
    finally:
        writer.delete("made-meanwhile")


def test_groups_are_listed_with_their_lag(page: Page, console: ConsoleProcess) -> None:
    topics = {topic["topic"]: topic for topic in console.get("/api/cluster").json["cluster"]["topics"]}
    ends = [each["latest"] for each in topics["metrics.windows"]["partitions"]]
    lag = ends[0] - 20 + ends[1] - 30
    page.open("#/cluster").wait_for("#groups", GROUP)
    (row,) = [row for row in page.rows("#groups") if row[0] == GROUP]
    assert row[1:] == ["classic", "empty", "0", f"{lag:,}", "metrics.windows"]
    page.click(f"[data-key='group {GROUP}']")
    page.wait_for("#groups .nested", "metrics.windows-0", "metrics.windows-1")
    assert page.rows("#groups .nested")[0][1:] == ["20", str(ends[0]), str(ends[0] - 20)]
    assert "kafkacompat-console" not in page.text("#groups"), "the console itself commits nothing"
    page.click("#groups .history a")
    page.wait_for("#group-note", "classic", f"lag {lag:,}")
    page.wait_for("#group-details", "metrics.windows-0")
    latest = "return document.querySelector('#lag-chart [role=img]').ariaLabel"
    wait_until(lambda: f"Latest: lag {lag:,}." in (page.script(latest) or ""), "the history is drawn")
    page.size((420, 900))
    assert page.script("return document.documentElement.scrollWidth") == 420


def test_a_group_of_the_consumer_protocol_unfolds_to_its_epochs_and_assignments(
    page: Page, shown_broker: BrokerProcess
) -> None:
    """Two members share the three partitions of a topic (KIP-848)."""
    name = "watched"
    consumers = [
        Consumer(
            {
                "bootstrap.servers": shown_broker.bootstrap,
                "group.id": name,
                "group.protocol": "consumer",
                "client.id": client,
                "log_level": 0,
            }
        )
        for client in ("one", "two")
    ]
    try:
        for consumer, topic in zip(consumers, ("logs.summary", "^logs.summary"), strict=True):
            consumer.subscribe([topic])

        def shared() -> bool:
            for consumer in consumers:
                consumer.poll(0.1)
            return sorted(len(consumer.assignment()) for consumer in consumers) == [1, 2]

        wait_until(shared, "the members share the topic")
        page.open("#/cluster").wait_for("#groups", name)
        page.click(f"[data-key='group {name}']")

        def members() -> dict[str, list[str]]:
            shared()
            return {row[0]: row for row in page.rows("#groups .members") if len(row) > 1}

        def converged() -> bool:
            rows = members().values()
            return len(rows) == 2 and all(row[5] == row[6] != "none" and row[3] != "–" for row in rows)

        wait_until(converged, "the page shows what both members have")
        rows = members()
        for client, consumer in zip(("one", "two"), consumers, strict=True):
            numbers = ", ".join(str(each.partition) for each in sorted(consumer.assignment()))
            assert rows[client][5] == rows[client][6] == f"logs.summary: {numbers}"
        epoch = rows["one"][3]
        assert [row[1:5] for row in (rows["one"], rows["two"])] == [
            ["/127.0.0.1", "consumer", epoch, "logs.summary"],
            ["/127.0.0.1", "consumer", epoch, "/(^logs.summary)/"],
        ]
        assert page.text("#groups .epochs") == (
            f"group epoch {epoch} · target assignment epoch {epoch} · assignor uniform"
        )
        (row,) = [row for row in page.rows("#groups") if row[0] == name]
        assert row[1:4] == ["consumer", "stable", "2"]
    finally:
        for consumer in consumers:
            consumer.close()


def test_a_share_group_unfolds_to_its_members_and_what_is_done(
    page: Page, console: ConsoleProcess, shown_broker: BrokerProcess
) -> None:
    """The second of three records is done before the first one, and the third one is not delivered (KIP-932)."""
    name, topic = "queue", MIXED_TOPIC
    words = ("--bootstrap", shown_broker.bootstrap, "--share", name, topic, "--from-beginning")
    worker = subprocess.Popen(
        command_line("consume", *words, "--by-line", "--prefetch", "2"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdin is not None
        worker.stdin.write(b"release\naccept\n")
        worker.stdin.flush()

        def group() -> dict[str, Any] | None:
            groups = console.get("/api/cluster").json["cluster"]["groups"]
            found = [each for each in groups if each["group"] == name and each["members"] == 1]
            done = [row["done"] for each in found for row in each["partitions"]]
            return found[0] if 1 in done else None

        seen = wait_until(group, "the console knows what is done")
        assert seen is not None
        page.open("#/cluster").wait_for("#groups", name)
        page.click(f"[data-key='group {name}']")
        page.wait_for("#groups .members", "kafkacompat-cli")
        (row,) = [row for row in page.rows("#groups") if row[0] == name]
        assert row[1:4] == ["share", "stable", "1"]
        assert f"group epoch {seen['group_epoch']} " in page.text("#groups .epochs")
        (member,) = page.rows("#groups .members")
        assert member[0] == "kafkacompat-cli"
        assert member[3] == topic
        assert member[4].startswith(f"{topic}: 0")
        stands = [[row["start"], row["latest"], row["lag"], row["done"]] for row in seen["partitions"]]
        shown = [row[1:] for row in page.rows("#groups .nested:not(.members)")]
        assert shown == [["–" if each is None else f"{each:,}" for each in stand] for stand in stands]
        assert "kafkacompat console --metrics" in page.text("#groups .numbers")
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


@pytest.mark.skipif(chosen_kind() != KAFKACOMPAT, reason="Apache Kafka has no metrics listener")
def test_the_metrics_of_the_node_tell_what_is_in_flight(
    chromium: webdriver.Chrome, make_console: Callable[..., ConsoleProcess], tmp_path: Path
) -> None:
    """Of three records one is rejected, and two are held by a worker that says nothing more."""
    port = free_port()
    settings = {
        "metrics.listener.port": str(port),
        # No lock ends while the test looks, however slow the machine is.
        "group.share.max.record.lock.duration.ms": "3600000",
        "group.share.record.lock.duration.ms": "3600000",
    }
    broker = BrokerProcess(KAFKACOMPAT, tmp_path / "broker", settings)
    broker.start()
    worker = None
    try:
        writer = Writer(broker.bootstrap)
        writer.create("jobs", partitions=1)
        for number in range(3):
            writer.write("jobs", b"job", str(number))
        writer.written()
        words = ("--bootstrap", broker.bootstrap, "--share", "queue", "jobs", "--from-beginning")
        worker = subprocess.Popen(
            command_line("consume", *words, "--by-line", "--prefetch", "3"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert worker.stdin is not None
        worker.stdin.write(b"reject\n")
        worker.stdin.flush()
        console = make_console(broker.bootstrap, "--metrics", f"http://127.0.0.1:{port}")

        def numbers() -> dict[str, Any] | None:
            cluster = (console.get("/api/cluster").json["cluster"]) or {"groups": ()}
            found = [
                row for each in cluster["groups"] for row in each["partitions"] if each["group"] == "queue"
            ]
            return found[0] if found and found[0]["archived"] and found[0]["held"] == 2 else None

        row = wait_until(numbers, "the console knows what is in flight")
        assert row is not None
        assert (row["archived"], row["delivered"], row["lag"]) == (1, 3, 2)
        page = Page(chromium, console.address).open("#/cluster")
        page.wait_for("#groups", "queue")
        page.click("[data-key='group queue']")
        page.wait_for("#groups .nested:not(.members)", "Oldest lock")
        (cells,) = page.rows("#groups .nested:not(.members)")
        held, oldest, delivered, archived = cells[5:]
        assert (held, delivered, archived) == ("2", "3", "1")
        assert oldest.endswith(" s")
        assert page.text("#groups .numbers") == ""
    finally:
        if worker is not None:
            worker.kill()
            worker.communicate(timeout=30)
        broker.kill()


@pytest.mark.skipif(chosen_kind() != KAFKACOMPAT, reason="Apache Kafka has no mirrors")
def test_a_mirror_is_listed_with_its_source_and_state(page: Page, shown_broker: BrokerProcess) -> None:
    writer, source = Writer(shown_broker.bootstrap), "elsewhere:9092"
    settings = {
        "mirror.name": "site-b",
        "mirror.source.bootstrap.servers": source,
        "mirror.source.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "mirror.leader.epoch": str(1 << 20),
        "mirror.state": "paused",
    }
    writer.create("followed", partitions=2, **settings)
    try:
        page.open("#/cluster").wait_for("#mirrors", "followed")
        assert page.rows("#mirrors") == [["followed", "site-b", "paused", source, "2"]]
    finally:
        writer.delete("followed")


def test_the_node_is_shown(page: Page, shown_broker: BrokerProcess) -> None:
    page.open("#/cluster").wait_for("#nodes", shown_broker.bootstrap)
    (row,) = page.rows("#nodes")
    assert row[0].split() == ["1", "controller"]
    assert row[1:3] == [shown_broker.bootstrap, "alive"]
    assert "1 of 1" in page.text("#cluster-tiles")


def test_partitions_that_are_behind_are_marked(
    chromium: webdriver.Chrome, make_console: Callable[[str], ConsoleProcess], tmp_path: Path
) -> None:
    """Three nodes, one of which is killed: the header, the node and its partitions show it, and later the recovery."""
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
    cluster = Cluster(chosen_kind(), tmp_path / "cluster", settings=quick).start()
    try:
        Writer(cluster.bootstrap).create("shared", partitions=2, replicas=3)
        console = make_console(cluster.bootstrap)
        page = Page(chromium, console.address).open("#/cluster")
        page.wait_for("#health", "healthy")
        page.wait_for("#nodes", "alive")
        assert [row[0].split()[0] for row in page.rows("#nodes")] == ["1", "2", "3"]
        lost = next(id for id in cluster.nodes if id != cluster.active_controller())
        cluster.nodes[lost].kill()
        page.wait_for("#health", "under-replicated")
        page.wait_for("#trouble", "shared-0", "shared-1", "under-replicated")
        page.wait_for("#nodes", "away")
        assert [row[2] for row in page.rows("#nodes")][lost - 1] == "away"
        assert "2 of 3" in page.text("#cluster-tiles")
        cluster.nodes[lost].start()
        page.wait_for("#health", "healthy")
        assert page.boxes("#trouble-card") == []
    finally:
        cluster.close()
