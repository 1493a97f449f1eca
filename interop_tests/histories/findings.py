"""The results of a checker: anomalies, each with its kind and its place, and counts of the judged operations."""

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
    """Anomalies that serializability forbids but Kafka permits: counted, not judged."""
    seen: Counter[str] = field(default_factory=Counter)
    """The number of judged operations. A short history proves little."""

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
