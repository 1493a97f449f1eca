"""Stock clients under each quota: they are told and slowed down, never disconnected. `make soak` measures their rates
beside Apache Kafka, over at least 30 s."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess, chosen_bootstrap
from interop_tests.harness.exporting import scraped_text
from interop_tests.harness.jmx_exporter import exporting
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.quotas.clients import (
    FETCH,
    JAVA,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    PRODUCE,
    REQUEST,
    Client,
    started,
)
from interop_tests.quotas.rates import rate_of_bursts

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts brokers of its own"),
]

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
CLIENTS = (LIBRDKAFKA, KAFKA_PYTHON, JAVA)
KEYS = {PRODUCE: "producer_byte_rate", FETCH: "consumer_byte_rate", REQUEST: "request_percentage"}
SIZE, SMALL = 1000, 10
SHORT_WINDOWS = 3
"""quota.window.num of the short test. A new client may use the quota of so many seconds at once."""
SHORT_QUOTAS = {PRODUCE: 100_000.0, FETCH: 100_000.0, REQUEST: 0.2}
SHORT_S = 4
"""More bytes than the quota of so many seconds beyond the windows are moved."""
QUOTAS = {PRODUCE: 200_000.0, FETCH: 200_000.0, REQUEST: 0.2}
"""A client must be able to use more. A request takes so little time that 1 % would be hundreds of them a second, which
a client that is held up after each does not send."""
SETTLES_S, MEASURED_S = 15.0, 33.0
WINDOW_S = 11.0
"""By Kafka's defaults for quota.window.num and quota.window.size.seconds."""
TOLERANCE = 0.05
FULL_TOPIC = "full"


class Limited:
    """A broker with the quotas, and with a topic that is full."""

    def __init__(self, kind: str, root: Path, windows: int | None) -> None:
        self.kind = kind
        self.root = root
        self.port = free_port()
        settings = {} if windows is None else {"quota.window.num": str(windows)}
        if kind == KAFKACOMPAT:
            settings["metrics.listener.port"] = str(self.port)
        self.broker = BrokerProcess(kind, root / kind, settings)
        if kind == APACHE:
            self.broker.jvm_options = exporting(self.port)

    def start(self, records: int) -> Limited:
        self.broker.start()
        create_topic(self.broker.bootstrap, FULL_TOPIC)
        # A batch that is larger than what a quota ever allows would never be sent, by Apache Kafka either.
        options = {"linger.ms": 50, "batch.size": 16_384, "enable.metrics.push": False}
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **options})
        for _ in range(records):
            while True:
                try:
                    producer.produce(FULL_TOPIC, bytes(SIZE), partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        return self

    def limit(self, client_id: str, key: str, value: float) -> None:
        entity = [{"EntityType": "client-id", "EntityName": client_id}]
        operation = {"Key": key, "Value": value, "Remove": False}
        with Connection(self.broker.bootstrap, 60.0, "administrator") as connection:
            body = {"Entries": [{"Entity": entity, "Ops": [operation]}], "ValidateOnly": False}
            (entry,) = connection.call("AlterClientQuotas", 1, body)["Entries"]
            assert entry["ErrorCode"] == 0, entry
            component = {"EntityType": "client-id", "MatchType": 0, "Match": client_id}
            wait_until(
                lambda: connection.call(
                    "DescribeClientQuotas", 1, {"Components": [component], "Strict": True}
                )["Entries"],
                "the quota is described",
            )
        time.sleep(0.2)  # quotas may be described a moment before they apply

    def client(self, name: str, kind: str, quota: float) -> Client:
        """A client under a quota of its own."""
        client_id = f"{name}-{kind}"
        self.limit(client_id, KEYS[kind], quota)
        topic = FULL_TOPIC
        if kind != FETCH:
            topic = client_id
            create_topic(self.broker.bootstrap, topic)
        size = SMALL if kind == REQUEST else SIZE
        log = self.root / f"{client_id}.log"
        return started(name, self.broker.bootstrap, client_id, topic, kind, size, log)

    def request_percentage(self, client_id: str) -> float:
        """What the broker measures. NaN before the client has its quota."""
        for family in text_string_to_metric_families(scraped_text(f"http://127.0.0.1:{self.port}/metrics")):
            for each in family.samples:
                if (
                    each.name == "kafka_server_quota_request_time"
                    and each.labels.get("clientId") == client_id
                ):
                    return float(each.value)
        return float("nan")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    made = Limited(KAFKACOMPAT, tmp_path_factory.mktemp("limited"), SHORT_WINDOWS)
    try:
        yield made.start(int(SHORT_QUOTAS[FETCH] * (SHORT_WINDOWS + SHORT_S) * 3) // SIZE)
    finally:
        made.broker.kill()


def test_clients_are_told_and_slowed_down(limited: Limited) -> None:
    """All of them at once: each has a quota of its own."""
    clients: dict[tuple[str, str], Client] = {}
    began_s: dict[tuple[str, str], float] = {}
    try:
        for name in CLIENTS:
            for kind in KEYS:
                began_s[name, kind] = time.monotonic()
                clients[name, kind] = limited.client(name, kind, SHORT_QUOTAS[kind])
        for (name, kind), client in clients.items():
            quota = SHORT_QUOTAS[kind]
            if kind == REQUEST:
                wait_until(lambda client=client: client.seen().throttle_ms > 0, f"{name} is throttled")  # type: ignore[misc]
                before = client.seen().moved
                wait_until(lambda: client.seen().moved > before, f"{name} goes on")  # noqa: B023
                continue
            wanted = quota * (SHORT_WINDOWS + SHORT_S)
            wait_until(lambda client=client: client.seen().moved >= wanted, f"{name} goes on with {kind}")  # type: ignore[misc] # noqa: B023
            # A busy machine makes this longer, never shorter.
            assert time.monotonic() - began_s[name, kind] >= SHORT_S - 1, (name, kind)
            assert client.seen().throttle_ms > 0, (name, kind)
    finally:
        for client in clients.values():
            client.close()


@pytest.mark.skipif(not SOAK, reason="takes a minute for each client and quota; KAFKACOMPAT_SOAK")
@pytest.mark.parametrize("quota_kind", [*KEYS])
def test_rates_are_within_five_percent(tmp_path: Path, quota_kind: str) -> None:
    """Of the quota, or of what the same client moves under Apache Kafka's: a client that is muted for a window's length
    begins its next burst a moment after that, so some stay 7 % below their quota there. All clients at once. What a
    client may use at once at its beginning does not count."""
    ours = shares(KAFKACOMPAT, tmp_path, quota_kind)
    try:
        theirs = shares(APACHE, tmp_path, quota_kind)
    except MissingTool as missing:
        pytest.skip(str(missing))
    for name, share in ours.items():
        assert min(abs(share - 1), abs(share - theirs[name])) <= TOLERANCE, (name, ours, theirs)


def shares(broker_kind: str, root: Path, quota_kind: str) -> dict[str, float]:
    """The rate of each client over its quota."""
    made = Limited(broker_kind, root, None)
    quota = QUOTAS[quota_kind]
    clients: dict[str, Client] = {}
    seconds = 11 + SETTLES_S + MEASURED_S + WINDOW_S
    try:
        made.start(int(quota * seconds * 1.3) // SIZE if quota_kind == FETCH else 0)
        for name in CLIENTS:
            clients[name] = made.client(name, quota_kind, quota)
        time.sleep(SETTLES_S)
        found = percentages(made, quota_kind, quota) if quota_kind == REQUEST else byte_shares(clients, quota)
        print(broker_kind, quota_kind, {name: f"{100 * share:.1f} %" for name, share in found.items()})
        assert all(client.seen().throttle_ms > 0 for client in clients.values())
        return found
    finally:
        for client in clients.values():
            client.close()
        made.broker.kill()


def byte_shares(clients: dict[str, Client], quota: float) -> dict[str, float]:
    """The rate of each client over the quota."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    ends_s = time.monotonic() + MEASURED_S + WINDOW_S + 1
    while time.monotonic() < ends_s:
        for name, client in clients.items():
            samples[name].append((time.monotonic(), client.seen().moved))
        time.sleep(0.1)
    return {name: rate_of_bursts(each, MEASURED_S, WINDOW_S) / quota for name, each in samples.items()}


def percentages(made: Limited, quota_kind: str, quota: float) -> dict[str, float]:
    """The mean of what the broker measures of each client, over the quota."""
    samples: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(int(MEASURED_S)):
        for name, values in samples.items():
            values.append(made.request_percentage(f"{name}-{quota_kind}"))
        time.sleep(1)
    return {name: sum(values) / len(values) / quota for name, values in samples.items()}
