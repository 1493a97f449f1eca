"""The tables of docs/reference/metrics.md, from the declarations of the metrics. Writes them anew:
`python -m kafkacompat.metrics.reference`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kafkacompat.metrics import (
    broker,
    clients,
    coordinators,
    merging,
    mirror,
    network,
    partitions,
    process,
    quorum,
    remote,
    requests,
    shares,
)
from kafkacompat.metrics.families import COUNTER, Metric, Metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
BEGIN, END = "<!-- From the declarations: python -m kafkacompat.metrics.reference -->\n", "<!-- End -->\n"
MODULES: tuple[ModuleType, ...] = (
    process,
    network,
    requests,
    broker,
    partitions,
    remote,
    mirror,
    coordinators,
    shares,
    quorum,
    clients,
    merging,
)


def declared() -> Iterator[Metrics[Any]]:
    """All metrics of a node but those that clients send."""
    for module in MODULES:
        for value in vars(module).values():
            yield from (
                each
                for each in (value.values() if isinstance(value, dict) else (value,))
                if isinstance(each, Metrics)
            )


def series(metric: Metric[Any]) -> str:
    """As a scrape has it. `*` stands for what depends on the node."""
    name = re.sub(r"\{\w+\}", "*", metric.name) + ("_total" if metric.kind == COUNTER else "")
    return f"{name}{{{','.join(metric.labels)}}}" if metric.labels else name


def tables() -> str:
    lines: list[str] = []
    for each in declared():
        lines += [f"### {each.title}", "", "| series | meaning |", "| --- | --- |"]
        lines += [f"| `{series(metric)}` | {metric.text} |" for metric in each.metrics]
        lines.append("")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
