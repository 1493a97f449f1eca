"""What metrics and quotas cost that nobody feels: the same requests without them, with a metrics listener that is
scraped, and under quotas that are never reached."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.measure import one_record_burst, running
from benchmarks.turns import REQUESTS, Figures, Turns
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

TURNS = 20
SCRAPED_EVERY_S = 5
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}


def requests(kind: str) -> Figures:
    ways = ["plain", "quotas"] + (["metrics"] if kind == KAFKACOMPAT else [])
    with ExitStack() as stack:
        brokers = {way: stack.enter_context(served(kind, way)) for way in ways}
        turns = Turns(brokers, partial(one_record_burst, in_flight=1, count=REQUESTS), TURNS)
    found = {f"plain: {name}": value for name, value in turns.figures("plain").items()}
    for way in ways[1:]:
        for name, value in turns.times(way, "plain").items():
            found[f"{way}: {name}, times the plain"] = value
    return found


@contextmanager
def served(kind: str, way: str) -> Iterator[BrokerProcess]:
    port = free_port()
    with running(kind, {"metrics.listener.port": str(port)} if way == "metrics" else None) as broker:
        if way == "quotas":
            limit(broker)
        if way != "metrics":
            yield broker
            return
        is_over = threading.Event()

        def scrape() -> None:
            while not is_over.wait(SCRAPED_EVERY_S):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                    answer.read()

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield broker
        finally:
            is_over.set()
            thread.join()


def limit(broker: BrokerProcess) -> None:
    """Every client by default."""
    entry = {
        "Entity": [{"EntityType": "client-id", "EntityName": None}],
        "Ops": [{"Key": key, "Value": value, "Remove": False} for key, value in NEVER_REACHED.items()],
    }
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})
        assert not any(each["ErrorCode"] for each in reply["Entries"]), reply
