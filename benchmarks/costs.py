"""What metrics and quotas cost that nobody feels: one-record requests without them, with a metrics listener that is
scraped, and under quotas that are never reached.

A virtual machine drifts by more than that from second to second, and two processes of one build differ by a few
percent, by where their memory happens to lie. So the ways take turns of a tenth of a second. Quotas are set and removed
in the same broker. A metrics listener lasts as long as its process, so several pairs of processes are compared.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.client import value_of
from benchmarks.measure import cpu_seconds, create_topic, running
from benchmarks.raw import Stream, fetch_frame, produce_frame, record_batch
from benchmarks.turns import TOPIC, Figures, Turn, medians, ratios, taken
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.wire import Connection

TURNS, TURN_REQUESTS, UNMEASURED_REQUESTS = 300, 1_000, 100
PAIRS, TURNS_OF_A_PAIR = 8, 40
WARM_REQUESTS = 30_000
SCRAPED_EVERY_S = 5
SIZE = 100
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
RECORD = record_batch(value_of(SIZE), 1)
LOADS = {"produce": produce_frame(TOPIC, [0], -1, RECORD), "fetch": fetch_frame(TOPIC, 0, 2 * SIZE)}


class Requests:
    """Requests of one record to a warm broker, one after the other."""

    def __init__(self, broker: BrokerProcess, load: str) -> None:
        self._broker = broker
        self._request = LOADS[load]
        create_topic(broker, TOPIC, 1)
        self._stream = Stream(broker.bootstrap)
        self._send(LOADS["produce"], 1)
        self._send(self._request, WARM_REQUESTS)

    def turn(self) -> Figures:
        self._send(self._request, UNMEASURED_REQUESTS)
        began_s, cpu_s = time.perf_counter(), cpu_seconds(self._broker)
        self._send(self._request, TURN_REQUESTS)
        used_s, took_s = cpu_seconds(self._broker) - cpu_s, time.perf_counter() - began_s
        return {
            "requests/s": TURN_REQUESTS / took_s,
            "broker CPU us/request": used_s / TURN_REQUESTS * 1e6,
        }

    def _send(self, request: bytes, count: int) -> None:
        for _ in range(count):
            self._stream.send(request)
            self._stream.reply()


def quotas(load: str, kind: str) -> Figures:
    with running(kind) as broker:
        requests = Requests(broker, load)

        def turn(has_quotas: bool) -> Figures:
            set_quotas(broker, has_quotas)
            return requests.turn()

        return told(taken({"plain": partial(turn, False), "quotas": partial(turn, True)}, TURNS))


def metrics(load: str, kind: str) -> Figures:
    if kind != KAFKACOMPAT:
        return {}
    found: dict[str, list[float]] = {}
    for _ in range(PAIRS):
        with running(kind) as plain, scraped(kind) as measured:
            ways = {"plain": Requests(plain, load).turn, "metrics": Requests(measured, load).turn}
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
