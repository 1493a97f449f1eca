"""Scrapes while everything that has series comes and goes, between any two pieces of an answer.

No series is there twice, no name has two types, and no counter goes down while what it counts for is there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from kafkacompat._tests.fuzz.node import FuzzedNode
from kafkacompat.api.meters import RequestMeters
from kafkacompat.metrics import clients, coordinators, endpoint, families, partitions, quorum, shares
from kafkacompat.metrics._tests.exposition import Shown, parsed
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.families import COUNTER
from kafkacompat.records.compression import compress
from kafkacompat.server._tests.shown_node import ShownNode, fetched, produced
from kafkacompat.server.node_metrics import NodeMetrics
from kafkacompat.sim.processes import CoroutineRun
from kafkacompat.telemetry._tests.test_otlp import message
from kafkacompat.telemetry.client_metrics_manager import ACCEPTED_CODECS, ClientMetricsManager
from kafkacompat.telemetry.otlp import OtlpReceiver
from kafkacompat.telemetry.series import ClientSeries
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.push_telemetry_request import PushTelemetryRequest

TOPICS = ("a.b", "a_b", "a-b", "t" * 249)
GROUPS = ("g", 'g "quoted"', "g\\back\nline", "gr\u00fcn \U0001f680", "x" * 299)
CLIENTS = ("c", 'c "*?"', "c\\\n\t", "cl\u00ed", "i" * 5_000, "")
ATTRIBUTES = (
    "topic",
    "le",
    "__name__",
    "instance",
    "client-id",
    "client_id",
    "\U0001f680",
    "9",
    "a-b",
    "a_b",
    "",
)
NAMES = ("sent", "sent.total", "sent_total", "sent_total_gauge", "latency.avg", "\U0001f680")
SCRAPES = 12
STEP = "COUNTED_A_STEP"
STOPS_WITHIN_MS = 60_000
OF_TOPICS = re.compile(r'topic="([^"]*)"')


class Churn:
    """Somebody who changes something at random."""

    def __init__(self, shown: ShownNode, chance: random.Random) -> None:
        self._shown = shown
        self._chance = chance
        self.ended: set[str] = set()
        """Topics that were deleted, since it was emptied last."""
        self._works: tuple[Callable[[], None], ...] = (
            self._create,
            self._delete,
            self._produce,
            self._fetch,
            self._commit,
            self._delete_group,
            self._limit,
            self._subscribe,
            self._push,
            self._fail,
            self._ask_something_else,
            lambda: shown.node.pass_time(chance.choice((1, 100, 3_000, 70_000))),
        )

    def go_on(self) -> None:
        self._chance.choice(self._works)()

    def _topic(self) -> str:
        return self._chance.choice(TOPICS)

    def _create(self) -> None:
        self._shown.create(self._topic(), self._chance.randint(1, 3))

    def _delete(self) -> None:
        topic = self._topic()
        self._shown.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
        self.ended.add(topic)

    def _produce(self) -> None:
        produced(self._shown, self._topic(), *[b"x"] * self._chance.randint(1, 5))

    def _fetch(self) -> None:
        fetched(self._shown, self._topic())

    def _commit(self) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name=self._topic(), partitions=[partition])
        request = OffsetCommitRequest(group_id=self._chance.choice(GROUPS), topics=[topic])
        self._shown.ask(request, 8)

    def _delete_group(self) -> None:
        self._shown.ask(DeleteGroupsRequest(groups_names=[self._chance.choice(GROUPS)]), 2)

    def _limit(self) -> None:
        kind = self._chance.choice(("user", "client-id"))
        entity = EntityData(entity_type=kind, entity_name=self._chance.choice((None, *CLIENTS[:-1])))
        key = self._chance.choice(("producer_byte_rate", "consumer_byte_rate", "request_percentage"))
        op = OpData(key=key, value=1e6, remove=self._chance.random() < 0.3)
        self._shown.ask(AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=[op])]), 1)
        self._shown.ask(MetadataRequest(topics=None), 9, self._chance.choice(CLIENTS))

    def _subscribe(self) -> None:
        values = {"metrics": self._chance.choice(("*", "sent", "")), "interval.ms": "100"}
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.CLIENT_METRICS),
            resource_name=self._chance.choice(("one", "two")),
            configs=[AlterableConfig(name=name, value=value) for name, value in values.items()],
        )
        self._shown.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def _push(self) -> None:
        chance, client = self._chance, bytes([self._chance.randint(1, 9)]) * 16
        client_id = chance.choice(CLIENTS)
        self._shown.ask(GetTelemetrySubscriptionsRequest(client_instance_id=client), 0, client_id)
        manager = self._shown.node.client_metrics
        assert manager is not None
        known = manager.instances.get(client)
        body = b"".join(self._message() for _ in range(chance.randint(1, 9)))
        codec = chance.choice((0, *ACCEPTED_CODECS))
        request = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=0 if known is None else known.subscription_id,
            compression_type=codec,
            metrics=compress(codec, body),
        )
        self._shown.ask(request, 0, client_id)

    def _message(self) -> bytes:
        """Messages that follow one another are one."""
        chance = self._chance
        attributes = {chance.choice(ATTRIBUTES): chance.choice(CLIENTS) for _ in range(chance.randint(0, 3))}
        return message(
            chance.choice(NAMES),
            chance.choice((0.0, 1.5, -1.0, float("nan"), float("inf"), -float("inf"), 1e308)),
            kind=chance.choice(("gauge", "sum")),
            is_monotonic=chance.random() < 0.5,
            temporality=chance.randint(0, 2),
            **attributes,
        )

    def _fail(self) -> None:
        """The directory without the metadata log, once."""
        server = self._shown.node.server.broker
        assert server is not None
        directory = server.logs.directories[-1]
        if directory.online and self._chance.random() < 0.2:
            server.logs.directory_failed(directory, OSError(5, "broken"))

    def _ask_something_else(self) -> None:
        request, version = self._chance.choice(
            (
                (ListGroupsRequest(), 4),
                (DescribeGroupsRequest(groups=list(GROUPS)), 5),
                (HeartbeatRequest(group_id="nobody"), 4),
            )
        )
        self._shown.ask(request, version)


@pytest.fixture
def node() -> FuzzedNode:
    made = FuzzedNode(1)
    made.meters = RequestMeters()
    made.client_series = ClientSeries()
    ids = random.Random(1)
    made.client_metrics = ClientMetricsManager(
        100_000,
        OtlpReceiver(made.client_series),
        lambda: ids.randbytes(16),  # type: ignore[arg-type, return-value]
    )
    return made


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What collectors have reported."""
    found: list[BaseException] = []
    monkeypatch.setattr("kafkacompat.server.node_metrics.report", lambda what, error: found.append(error))
    return found


@pytest.fixture(autouse=True)
def steps_of_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a scrape has as many places as there can be where the node may change."""
    monkeypatch.setattr(endpoint, "SAMPLES_A_PIECE", 1)
    for module in (clients, coordinators, families, partitions, quorum, shares):
        if hasattr(module, STEP):
            monkeypatch.setattr(module, STEP, 1)


def scraped(shown: ShownNode, between: Callable[[], None], pace: Callable[[], bool]) -> Shown:
    found: list[bytes] = []
    for piece in rendered(shown.metrics.families()):
        found.append(piece)
        if pace():
            between()
    return parsed(b"".join(found).decode())


@pytest.mark.parametrize("seed", range(6))
def test_scrapes_are_right_while_the_node_changes(
    node: FuzzedNode, seed: int, faults: list[BaseException]
) -> None:
    chance = random.Random(seed)
    node.start()
    shown = ShownNode(node)
    churn = Churn(shown, chance)
    for _ in range(20):
        churn.go_on()
    before = Shown({}, {})
    for _ in range(SCRAPES):
        now = scraped(shown, churn.go_on, lambda: chance.random() < 0.02)
        assert not faults
        lower = [
            f"{series} went from {was} to {now.values[series]}"
            for series, was in before.values.items()
            if before.types[series.partition("{")[0]] == COUNTER
            and now.values.get(series, was) < was
            and not series.startswith("kafka_client_")
            and not churn.ended.intersection(OF_TOPICS.findall(series))
        ]
        assert not lower
        before = now
        churn.ended.clear()
    assert not node.findings


class LookedAt(FuzzedNode):
    """A node that is scraped after each of its steps."""

    shown: list[Shown] | None = None

    def step(self, what: str, call: Callable[[], None]) -> None:
        is_inner = self._is_stepping
        super().step(what, call)
        if self.shown is not None and not is_inner:
            metrics = NodeMetrics(self.server._services, self.server, list)
            metrics.why_not_ready()
            self.shown.append(parsed(b"".join(rendered(metrics.families())).decode()))


def test_scrapes_are_right_at_each_step_of_a_start_and_of_a_stop(faults: list[BaseException]) -> None:
    node = LookedAt(1)
    node.start()
    ShownNode(node).create("orders", 3)
    node.kill()
    node.shown = []
    node.start()
    started = len(node.shown)
    stopped: list[object] = []
    node.step("stop", lambda: CoroutineRun(node.server.stop(), stopped.append) and None)
    for _ in range(STOPS_WITHIN_MS // 10):
        if stopped:
            break
        node.pass_time(10)
    assert stopped
    assert not faults
    assert not node.findings
    sizes = [len(each.values) for each in node.shown]
    assert sizes[0] < max(sizes)
    assert 10 < started < len(sizes)
