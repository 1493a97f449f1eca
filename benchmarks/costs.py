"""What metrics and quotas cost that nobody feels: the same requests without them, with a metrics listener that is
scraped, and under quotas that are never reached."""

from __future__ import annotations

import statistics
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.measure import client, create_topic, running
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

Figures = dict[str, float]
TURNS = 20
COUNT = 10_000
SCRAPED_EVERY_S = 5
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
CPU, RATE = "broker CPU us/request", "requests/s"


def requests(kind: str) -> Figures:
    """A few percent are less than what a virtual machine drifts by within a minute. So a broker of each way runs all
    the time, they take turns of a second, and each turn is compared with the plain one beside it: medians."""
    ways = ["plain", "quotas"] + (["metrics"] if kind == KAFKACOMPAT else [])
    turns: list[dict[str, Figures]] = []
    with ExitStack() as stack:
        brokers = {way: stack.enter_context(served(kind, way)) for way in ways}
        for broker in brokers.values():
            create_topic(broker, "bench", 1)
            burst(broker)
        for number in range(TURNS):
            turns.append({way: burst(brokers[way]) for way in (ways if number % 2 == 0 else ways[::-1])})
    found = {
        f"plain: {name}": statistics.median(turn["plain"][name] for turn in turns) for name in (CPU, RATE)
    }
    for way in ways[1:]:
        for name in (CPU, RATE):
            found[f"{way}: {name}, times the plain"] = statistics.median(
                turn[way][name] / turn["plain"][name] for turn in turns
            )
    return found


def burst(broker: BrokerProcess) -> Figures:
    job = {"topic": "bench", "size": 100, "acks": "all", "in_flight": 1}
    found = client(broker, work="raw_produce", requests=COUNT, **job)
    return {CPU: found["broker_cpu_s"] / COUNT * 1e6, RATE: found["requests_per_s"]}


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
