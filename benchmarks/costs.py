"""What metrics and quotas cost that nobody feels: one-record requests without them, with a metrics listener that is
scraped, and under quotas that are never reached.

A virtual machine drifts by more than that from second to second, and two processes of one build differ by a few
percent, by where their memory happens to lie. So quotas are set and removed in the same broker many times, for a tenth
of a second each. A metrics listener lasts as long as its process, so several pairs of processes are compared, in turns
of a second.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from benchmarks.client import value_of
from benchmarks.measure import client, cpu_seconds, create_topic, one_record_burst, running
from benchmarks.raw import Stream, fetch_frame, produce_frame, record_batch
from benchmarks.turns import REQUESTS, TOPIC, Figures, Turn, medians, ratios, taken
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

PHASES, PHASE_REQUESTS, UNMEASURED_REQUESTS = 300, 1_000, 100
PAIRS = 4
TURNS_OF_A_PAIR = 6
SCRAPED_EVERY_S = 5
SIZE = 100
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
    batch = record_batch(value_of(SIZE), 1)
    requests = {"produce": produce_frame(TOPIC, 0, -1, batch), "fetch": fetch_frame(TOPIC, 0, 2 * SIZE)}
    with running(kind) as broker:
        warmed(broker)
        stream = Stream(broker.bootstrap)

        def sent(count: int) -> None:
            for _ in range(count):
                stream.send(requests[load])
                stream.reply()

        def phase(has_quotas: bool) -> Figures:
            set_quotas(broker, has_quotas)
            sent(UNMEASURED_REQUESTS)
            began_s, cpu_s = time.perf_counter(), cpu_seconds(broker)
            sent(PHASE_REQUESTS)
            used_s, took_s = cpu_seconds(broker) - cpu_s, time.perf_counter() - began_s
            return {
                "requests/s": PHASE_REQUESTS / took_s,
                "broker CPU us/request": used_s / PHASE_REQUESTS * 1e6,
            }

        ways = {"plain": partial(phase, False), "quotas": partial(phase, True)}
        return told(taken(ways, PHASES))


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
