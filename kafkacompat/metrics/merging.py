"""The metrics of several nodes as one text: the series of each have the label `node_id`. Pure: texts in, pieces out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafkacompat.metrics.families import Metrics, gauges

LABEL = "node_id"
HELP, TYPE = "# HELP ", "# TYPE "
LINES_A_PIECE = 500


BROKERS: Metrics[Mapping[int, bool]] = Metrics(
    "All brokers of a machine (`start --brokers`), whose other series have the label too",
    gauges(
        "kafkacompat_broker_up",
        "Whether the broker answers with its metrics: 1 or 0.",
        (LABEL,),
        lambda up: [({LABEL: str(node_id)}, answers) for node_id, answers in up.items()],
    ),
)
"""Of whether each broker answers."""


def merged(texts: Mapping[int, str]) -> Iterator[bytes]:
    """Yield the text in pieces, each of which takes one step of the loop. b'' is a pause.

    `texts`: what each node serves, by node id, in Prometheus' text format. A name has its HELP and TYPE once, and its
    series of all nodes follow.
    """
    heads: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for node_id, text in sorted(texts.items()):
        name = ""
        # A label's value has any other character that ends a line for Python: clients name groups.
        for count, line in enumerate(text.split("\n")):
            if count % LINES_A_PIECE == LINES_A_PIECE - 1:
                yield b""
            if line.startswith((HELP, TYPE)):
                name = line.split(" ", 3)[2]
                if name not in series:
                    heads[name], series[name] = [], []
                if len(heads[name]) < 2 and not any(
                    each.startswith(line[: len(HELP)]) for each in heads[name]
                ):
                    heads[name].append(line)
            elif line and not line.startswith("#"):
                series.setdefault(name, []).append(with_label(line, node_id))
    for name, lines in series.items():
        whole = [*heads.get(name, ()), *lines]
        for start in range(0, len(whole), LINES_A_PIECE):
            yield "".join(f"{line}\n" for line in whole[start : start + LINES_A_PIECE]).encode()


def with_label(line: str, node_id: int) -> str:
    """Return a line of a series with the label in front of its others. A name has neither braces nor blanks."""
    braced, blank = line.find("{"), line.find(" ")
    if braced != -1 and (blank == -1 or braced < blank):
        return f'{line[:braced]}{{{LABEL}="{node_id}",{line[braced + 1 :]}'
    return f'{line[:blank]}{{{LABEL}="{node_id}"}}{line[blank:]}'
