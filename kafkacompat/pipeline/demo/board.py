"""The demo's output on the terminal: records and rates of each topic, and the last line of each process. Pure."""

from __future__ import annotations

from typing import Final

from kafkacompat.pipeline.topics import CONFIGS, INPUTS, PIPELINE_PROGRESS

INPUT_TOPICS: Final = frozenset(INPUTS)


class Rates:
    """Records per second of each topic, from its sizes at two times."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = dict.fromkeys(CONFIGS, 0)
        self.per_s: dict[str, float] = dict.fromkeys(CONFIGS, 0.0)
        self._asked_s: float | None = None

    def add(self, sizes: dict[str, int], now_s: float) -> None:
        """Add the current sizes."""
        if self._asked_s is not None and now_s > self._asked_s:
            elapsed_s = now_s - self._asked_s
            self.per_s = {topic: (size - self.sizes[topic]) / elapsed_s for topic, size in sizes.items()}
        self.sizes, self._asked_s = dict(sizes), now_s


def clock(elapsed_s: float) -> str:
    """Format as h:mm:ss."""
    seconds = int(elapsed_s)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def line(rates: Rates, elapsed_s: float) -> str:
    """Return everything in one line, for output that is not a terminal."""
    events = [topic for topic in CONFIGS if topic in INPUT_TOPICS]
    results = [topic for topic in CONFIGS if topic not in INPUT_TOPICS and topic != PIPELINE_PROGRESS]

    def total(topics: list[str]) -> str:
        return f"{sum(rates.sizes[topic] for topic in topics):,} ({sum(rates.per_s[topic] for topic in topics):,.0f}/s)"

    parts = ", ".join(f"{topic} {rates.sizes[topic]:,}" for topic in CONFIGS if rates.sizes[topic])
    return f"demo {clock(elapsed_s)}: events {total(events)}, results {total(results)}: {parts}"


def board(rates: Rates, words: dict[str, str], page: str, elapsed_s: float, width: int) -> list[str]:
    """Return a table for a terminal with this many columns. A longer line would wrap, and the next table would be misplaced."""
    lines = [f"kafkacompat demo {clock(elapsed_s)}   page: {page}   Ctrl-C ends it", ""]
    lines.append(f"{'topic':22} {'records':>12} {'records/s':>10}")
    for topic in CONFIGS:
        mark = ">" if topic in INPUT_TOPICS else " "
        lines.append(f"{mark} {topic:20} {rates.sizes[topic]:>12,} {rates.per_s[topic]:>10,.0f}")
    lines.append("")
    lines += [f"{name:10} {said}" for name, said in words.items()]
    return [text[: width - 1] for text in lines]
