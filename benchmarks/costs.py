"""What metrics and quotas cost that nobody feels: the same requests without them, with a metrics listener that is
scraped, and under quotas that are never reached."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measure import client, create_topic, running
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

Figures = dict[str, float]
TURNS = 3
COUNT = 20_000
SCRAPED_EVERY_S = 5
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}


def requests(kind: str) -> Figures:
    """Medians would hide a drift of the machine, so the ways take turns and each figure is their best."""
    best: dict[str, float] = {}
    ways = ["plain", "quotas"] + (["metrics"] if kind == KAFKACOMPAT else [])
    for turn in range(TURNS):
        for way in ways if turn % 2 == 0 else ways[::-1]:
            with served(kind, way) as broker:
                create_topic(broker, "bench", 1)
                job = {"topic": "bench", "size": 100, "acks": "all", "in_flight": 1}
                client(broker, work="raw_produce", requests=COUNT, **job)
                found = client(broker, work="raw_produce", requests=COUNT, **job)
            name = f"{way}: broker CPU us/request"
            cpu_us = found["broker_cpu_s"] / COUNT * 1e6
            best[name] = min(best.get(name, cpu_us), cpu_us)
            name = f"{way}: requests/s"
            best[name] = max(best.get(name, 0.0), found["requests_per_s"])
    return best


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
