"""What a checker says of a history: anomalies, each with its kind and its place, and counts of what it looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SHOWN = 5


@dataclass(frozen=True)
class Anomaly:
    kind: str
    text: str


@dataclass
class Findings:
    anomalies: list[Anomaly] = field(default_factory=list)
    permitted: Counter[str] = field(default_factory=Counter)
    """What serializability forbids and Kafka does not promise: counted, not judged."""
    seen: Counter[str] = field(default_factory=Counter)
    """What there was to judge: a history of little shows little."""

    @property
    def is_well(self) -> bool:
        return not self.anomalies

    @property
    def kinds(self) -> set[str]:
        return {each.kind for each in self.anomalies}

    def add(self, kind: str, text: str) -> None:
        self.anomalies.append(Anomaly(kind, text))

    def __str__(self) -> str:
        lines = ["looked at " + ", ".join(f"{count} {name}" for name, count in sorted(self.seen.items()))]
        if self.permitted:
            lines.append(
                "permitted " + ", ".join(f"{count} {name}" for name, count in sorted(self.permitted.items()))
            )
        by_kind: dict[str, list[str]] = {}
        for each in self.anomalies:
            by_kind.setdefault(each.kind, []).append(each.text)
        for kind, texts in sorted(by_kind.items()):
            lines.append(f"{kind}: {len(texts)}")
            lines += [f"    {text}" for text in texts[:SHOWN]]
        return "\n".join(lines)
