"""What metrics and quotas cost that nobody feels: one-record requests without them, with a metrics listener that is
scraped, and under quotas that are never reached.

Two processes of one build differ by a few percent, by where their memory happens to lie. So quotas are set and removed
in the same broker from turn to turn. A metrics listener lasts as long as its process, so several pairs of processes
are compared.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from benchmarks.measure import client, create_topic, one_record_burst, running
from benchmarks.turns import REQUESTS, TOPIC, Figures, Turn, medians, ratios, taken
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

TURNS = 20
PAIRS = 4
TURNS_OF_A_PAIR = 6
SCRAPED_EVERY_S = 5
SIZE = 100
APPLIED_S = 0.2
"""A change of quotas has reached the broker by then."""
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}

Load = Callable[[BrokerProcess], Figures]


def one_record_fetches(broker: BrokerProcess, count: int) -> Figures:
    """Fetch requests that each bring a record of 100 B, of those that were produced."""
    job = {"size": SIZE, "batch_bytes": SIZE, "max_bytes": 2 * SIZE, "records": count // 2}
    figures = client(broker, work="raw_fetch", topic=TOPIC, requests=count, **job)
    return {
        "requests/s": figures["requests_per_s"],
        "broker CPU us/request": figures["broker_cpu_s"] / count * 1e6,
    }


LOADS: Mapping[str, Load] = {
    "produce": partial(one_record_burst, in_flight=1, count=REQUESTS),
    "fetch": partial(one_record_fetches, count=REQUESTS),
}


def quotas(load: str, kind: str) -> Figures:
    with running(kind) as broker:
        warmed(broker)

        def burst(has_quotas: bool) -> Figures:
            set_quotas(broker, has_quotas)
            return LOADS[load](broker)

        ways = {"plain": partial(burst, False), "quotas": partial(burst, True)}
        return told(taken(ways, TURNS))


def metrics(load: str, kind: str) -> Figures:
    if kind != KAFKACOMPAT:
        return {}
    found: dict[str, list[float]] = {}
    for _ in range(PAIRS):
        with running(kind) as plain, scraped(kind) as measured:
            warmed(plain)
            warmed(measured)
            ways = {"plain": partial(LOADS[load], plain), "metrics": partial(LOADS[load], measured)}
            for name, value in told(taken(ways, TURNS_OF_A_PAIR)).items():
                found.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


def told(turns: list[Turn]) -> Figures:
    """Medians of each way's figures, and of the ratio to the plain ones of the same turn."""
    plain, other = turns[0]
    figures = {
        f"{way}: {figure}": value for way in (plain, other) for figure, value in medians(turns, way).items()
    }
    times = ratios(turns, other, plain)
    return figures | {f"{other}: {figure}, times the plain": value for figure, value in times.items()}


def warmed(broker: BrokerProcess) -> None:
    create_topic(broker, TOPIC, 1)
    for load in LOADS.values():
        load(broker)


def set_quotas(broker: BrokerProcess, has_quotas: bool) -> None:
    """Of every client by default."""
    entry = {
        "Entity": [{"EntityType": "client-id", "EntityName": None}],
        "Ops": [
            {"Key": key, "Value": value, "Remove": not has_quotas} for key, value in NEVER_REACHED.items()
        ],
    }
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})
        assert not any(each["ErrorCode"] for each in reply["Entries"]), reply
    time.sleep(APPLIED_S)


@contextmanager
def scraped(kind: str) -> Iterator[BrokerProcess]:
    port = free_port()
    with running(kind, {"metrics.listener.port": str(port)}) as broker:
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
