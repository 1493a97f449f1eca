"""The console's data about the cluster as Prometheus metrics. Uses snapshots and rates, no HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafkacompat.console.core.cluster_view import View

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def metrics_text(cluster: View, reading: View) -> bytes:
    """Return the metrics of a cluster view and a reading view, in Prometheus' text format."""
    return generate_latest(Seen(cluster, reading))


class Seen(Collector):
    """The metrics of one look at the cluster. The values come from the views, so no registry keeps them between two looks."""

    def __init__(self, cluster: View, reading: View) -> None:
        self._cluster = cluster
        self._reading = reading

    def collect(self) -> Iterator[Metric]:
        up = self._cluster["broker"]["state"] == "reachable"
        yield GaugeMetricFamily(
            "kafkacompat_console_broker_up", "1 if the broker answered the last look.", up
        )
        for name in ("records", "repeats", "malformed"):
            counter, text = f"kafkacompat_console_results_{name}", f"Result records read: {name}."
            yield CounterMetricFamily(counter, text, self._reading[name])
        seen = self._cluster["cluster"]
        # While the broker is away, old values are not exported as current ones: the series end.
        if seen is not None and up:
            yield from _topics(seen["topics"])
            yield from _groups(seen["groups"])
            alive = [(str(node["node"]), node["alive"]) for node in seen["nodes"]]
            text = "1 if the cluster's metadata names the node as alive."
            yield _gauge("kafka_node_up", text, "node", alive)


def _topics(topics: list[View]) -> Iterator[Metric]:
    for metric, field, text in (
        ("kafka_topic_records", "records", "Offsets between a topic's start and end."),
        ("kafka_topic_records_per_second", "records_per_s", "Records written a second."),
        ("kafka_topic_size_bytes", "size_bytes", "Bytes on disk over all replicas."),
        (
            "kafka_topic_under_replicated_partitions",
            "under_replicated",
            "Partitions with replicas not in sync.",
        ),
        ("kafka_topic_offline_partitions", "offline", "Partitions without a leader."),
    ):
        yield _gauge(metric, text, "topic", ((topic["topic"], topic[field]) for topic in topics))


def _groups(groups: list[View]) -> Iterator[Metric]:
    lags = ((group["group"], group["lag"]) for group in groups)
    yield _gauge("kafka_group_lag_records", "Records that a group has yet to read.", "group", lags)
    members = ((group["group"], group["members"]) for group in groups)
    yield _gauge("kafka_group_members", "Members of a group.", "group", members)


def _gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    """Return one series for each known value."""
    gauge = GaugeMetricFamily(name, text, labels=(label,))
    for content, value in values:
        if value is not None:
            gauge.add_metric((content,), value)
    return gauge
