"""The programs and commands that the documents show, to be run without changes."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def text_of(page: str) -> str:
    """A page by its path in the checkout."""
    return (CHECKOUT / page).read_text("utf-8")


def section(text: str, heading: str) -> str:
    """The text from a heading to the next heading of any level."""
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, heading
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def blocks(text: str, language: str = "") -> list[str]:
    return [
        block
        for named, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if named == language
    ]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command with the output lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found
