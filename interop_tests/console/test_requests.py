"""The page of requests in Chromium: what a client does is shown, live, with reasons, at both widths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from selenium import webdriver

from interop_tests.console.page import DESKTOP, Page
from interop_tests.console.process import ConsoleProcess
from interop_tests.harness.broker import APACHE, BrokerProcess, chosen_kind
from interop_tests.harness.ports import free_port

pytestmark = pytest.mark.skipif(
    chosen_kind() == APACHE, reason="it reads a listener that only kafkacompat has"
)
NARROW = (420, 844)
TOKEN = "a-token-of-the-tests-1"
SECRET = b"the secret of this record"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, ConsoleProcess]]:
    """A broker that may be watched, and a console that does."""
    folder = tmp_path_factory.mktemp("watched")
    port = free_port()
    settings = {"metrics.listener.port": str(port), "watch.token.file": str(folder / "watch")}
    broker = BrokerProcess(chosen_kind(), folder / "broker", settings)
    broker.start()
    (folder / "token").write_text(TOKEN)
    options = ["--metrics", f"http://127.0.0.1:{port}", "--watch-token-file", str(folder / "watch")]
    options += ["--token-file", str(folder / "token")]
    console = ConsoleProcess(broker.bootstrap, folder / "console.log", options=options)
    try:
        console.start()
        yield broker, console
    finally:
        console.kill()
        broker.kill()


@pytest.fixture
def requests(
    watched: tuple[BrokerProcess, ConsoleProcess], chromium: webdriver.Chrome
) -> Iterator[tuple[Page, str]]:
    """The page of somebody who has logged in, and the address of the broker."""
    broker, console = watched
    page = Page(chromium, console.address)
    page.open()
    page.element("input[name=token]").send_keys(TOKEN)
    page.click("button")
    page.wait_for("nav", "Requests")
    page.complaints()
    yield page, broker.bootstrap
    complaints = page.complaints()
    page.driver.delete_all_cookies()  # of the console, whose page is still there
    page.driver.get("about:blank")
    assert complaints == []


def sent(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "orders-app"})
    producer.produce(topic, SECRET)
    assert producer.flush(20) == 0


def refused(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "client.id": "reader"})
    assert consumer.list_topics("missing", 20).topics["missing"].error is not None
    consumer.close()


@pytest.mark.parametrize("size", [DESKTOP, NARROW])
def test_requests_are_shown_with_reasons_and_fit(requests: tuple[Page, str], size: tuple[int, int]) -> None:
    page, bootstrap = requests
    page.open("watch", size)
    page.wait_for("#watched", "watching 1 node")
    sent(bootstrap, "orders")
    refused(bootstrap)
    page.wait_for("#exchanges", "Produce v", "orders-app", "orders")
    page.wait_for("#exchanges .refused", "UNKNOWN_TOPIC_OR_PARTITION: node 1 knows no topic 'missing'")
    assert page.text("#problems") == ""
    script = """const item = [...document.querySelectorAll('#exchanges details')]
        .find(each => each.innerText.includes('Produce v')); item.open = true;"""
    page.script(script)
    shown = page.wait_for("#exchanges", '"records": 1')
    assert "kafkacompat-console" not in shown
    assert SECRET.decode() not in shown
    width = page.script("return document.documentElement.scrollWidth")
    assert width <= size[0]
    assert all(box["x"] + box["width"] <= size[0] for box in page.boxes("#exchanges li, #filter label"))


def test_a_filter_a_pause_and_what_a_node_refuses(requests: tuple[Page, str]) -> None:
    page, bootstrap = requests
    page.open("watch")
    page.write("#api", "Produce")
    page.write("#topic", "orders-of-one")
    page.click("#values")
    page.click("#filter button[type=submit]")
    page.wait_for("#watched", "watching 1 node")
    sent(bootstrap, "orders-of-others")
    sent(bootstrap, "orders-of-one")
    page.wait_for("#exchanges", "orders-of-one")
    assert "orders-of-others" not in page.text("#exchanges")
    page.script("document.querySelector('#exchanges details').open = true;")
    page.wait_for("#exchanges", SECRET.decode())
    page.click("#pause")
    page.wait_for("#watched", "paused")
    page.write("#api", "Prduce")
    page.click("#filter button[type=submit]")
    page.wait_for("#problems", "there is no API 'Prduce'")
    page.wait_for("#watched", "not watching")


def test_a_console_that_does_not_watch_says_so(page: Page) -> None:
    page.open("watch")
    page.wait_for("#problems", "started without --watch-token-file")
    page.driver.get("about:blank")
    assert {"503" in each for each in page.complaints()} == {True}
