"""The console's data about the cluster as Prometheus metrics. Uses snapshots and rates, no HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafkacompat.console.core.cluster_view import View

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def metrics_text(cluster: View, reading: View, queries: Sequence[View] = ()) -> bytes:
    """Return the metrics of a cluster view, a reading view and the views of queries, in Prometheus' text format."""
    return generate_latest(Seen(cluster, reading, queries))


class Seen(Collector):
    """The metrics of one look at the cluster. The values come from the views, so no registry keeps them between two looks."""

    def __init__(self, cluster: View, reading: View, queries: Sequence[View]) -> None:
        self._cluster = cluster
        self._reading = reading
        self._queries = queries

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
            yield from _queries(self._queries)
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


def _queries(queries: Sequence[View]) -> Iterator[Metric]:
    """The sums start anew with each run of a job, as those of a process do."""
    for name, text in (
        ("records", "Records read by a query."),
        ("late", "Events dropped as late by a query."),
    ):
        counter = CounterMetricFamily(f"kafkacompat_pipeline_query_{name}", text, labels=("query",))
        for query in queries:
            counter.add_metric((query["query"],), query[name])
        yield counter
    for metric, field, text, share in (
        ("lag_records", "behind", "Records that wait for a query.", 1),
        (
            "behind_seconds",
            "behind_ms",
            "Age of the newest event that a query has read, while records wait.",
            1000,
        ),
        ("watermark_timestamp_seconds", "watermark_ms", "Watermark of a query, in seconds since 1970.", 1000),
    ):
        values = [(query["query"], query[field]) for query in queries]
        shown = ((query, None if value is None else value / share) for query, value in values)
        yield _gauge(f"kafkacompat_pipeline_query_{metric}", text, "query", shown)
    running = ((query["query"], float(query["state"] == "running")) for query in queries)
    yield _gauge("kafkacompat_pipeline_query_up", "1 if a query runs.", "query", running)


def _gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    """Return one series for each known value."""
    gauge = GaugeMetricFamily(name, text, labels=(label,))
    for content, value in values:
        if value is not None:
            gauge.add_metric((content,), value)
    return gauge
