"""What nodes tell in their metrics of records in flight with share groups. No sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from kafkacompat.console.core.snapshot import ShareKey, ShareNumbers

PREFIX = "kafkacompat_share_partition_"
"""Of the series in docs/reference/metrics.md."""
MAX_SAMPLES = 50_000
"""Of one node."""

_FIELDS: dict[str, Callable[[ShareNumbers, float], ShareNumbers]] = {
    f"{PREFIX}held_records": lambda known, value: replace(known, held=int(value)),
    f"{PREFIX}oldest_lock_seconds": lambda known, value: replace(known, oldest_lock_ms=round(value * 1000)),
    f"{PREFIX}delivered_records_total": lambda known, value: replace(known, delivered=int(value)),
    f"{PREFIX}archived_records_total": lambda known, value: replace(known, archived=int(value)),
}


class BadMetrics(ValueError):
    """These are no metrics in Prometheus' text format."""


def parse_numbers(body: bytes) -> dict[ShareKey, ShareNumbers]:
    """Read the series of share-partitions in an answer to /metrics, and nothing else of it. Raises BadMetrics."""
    lines = [line for line in body.split(b"\n") if line.startswith(PREFIX.encode())][:MAX_SAMPLES]
    found: dict[ShareKey, ShareNumbers] = {}
    try:
        text = b"\n".join(lines).decode()
        for family in text_string_to_metric_families(text + "\n"):
            for sample in family.samples:
                put = _FIELDS.get(sample.name)
                if put is not None:
                    labels = sample.labels
                    key = labels["group"], labels["topic"], int(labels["partition"])
                    found[key] = put(found.get(key, ShareNumbers()), sample.value)
    # A value may be infinite, and the library's parser raises what it stumbles over.
    except (ValueError, KeyError, IndexError, OverflowError, TypeError, AttributeError) as error:
        raise BadMetrics("these are no metrics of a node") from error
    return found
