"""What the console knows of the cluster in Prometheus' text format. Knows snapshots and rates, no HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from kafkacompat.console.core.cluster_view import View

Sample = tuple[dict[str, str], float]


def metrics_text(cluster: View, reading: View) -> str:
    """The metrics of a cluster view and a reading view."""
    lines: list[str] = []
    up = 1 if cluster["broker"]["state"] == "reachable" else 0
    _gauge(lines, "kafkacompat_console_broker_up", "1 if the broker answered the last look.", [({}, up)])
    for name in ("records", "repeats", "malformed"):
        text = f"Result records read: {name}."
        _metric(lines, f"kafkacompat_console_results_{name}_total", "counter", text, [({}, reading[name])])
    seen = cluster["cluster"]
    if seen is None or not up:
        # What was true when the broker answered last is not told as if it were now: the series end.
        return _joined(lines)
    topics, groups = seen["topics"], seen["groups"]
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
        samples = [({"topic": topic["topic"]}, topic[field]) for topic in topics if topic[field] is not None]
        _gauge(lines, metric, text, samples)
    lags = [({"group": group["group"]}, group["lag"]) for group in groups if group["lag"] is not None]
    _gauge(lines, "kafka_group_lag_records", "Records that a group has yet to read.", lags)
    members = [({"group": group["group"]}, group["members"]) for group in groups]
    _gauge(lines, "kafka_group_members", "Members of a group.", members)
    alive = [({"node": str(node["node"])}, int(node["alive"])) for node in seen["nodes"]]
    _gauge(lines, "kafka_node_up", "1 if the cluster's metadata names the node as alive.", alive)
    return _joined(lines)


def _gauge(lines: list[str], name: str, text: str, samples: Iterable[Sample]) -> None:
    _metric(lines, name, "gauge", text, samples)


def _metric(lines: list[str], name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.17g}" if inside else f"{name} {value:.17g}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
