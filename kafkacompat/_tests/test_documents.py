"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

from kafkacompat.cli import reference

CHECKOUT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_TEST = re.compile(r"`((?:kafkacompat|interop_tests)/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_a_document_names_is_there() -> None:
    named = {
        found
        for document in (CHECKOUT / "docs").rglob("*.md")
        for found in NAMED_TEST.findall(document.read_text(encoding="utf-8"))
    }
    assert named, "the notes of the field name tests"
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not re.search(rf"def {test}\b", (CHECKOUT / file).read_text(encoding="utf-8"))
    ]
    assert not missing


def documents() -> list[Path]:
    return [*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")]


def anchors_of(document: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for document in documents():
        for link in LINK.findall(document.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if path.startswith(("http:", "https:", "mailto:")):
                continue
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{document.relative_to(CHECKOUT)}: {link}")
    assert not broken


def test_the_page_of_commands_says_what_the_commands_say() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        "python -m kafkacompat.cli.reference"
    )


def test_every_argument_of_a_command_has_a_meaning() -> None:
    assert "|  |" not in reference.page()


def test_the_site_has_every_document() -> None:
    listed = re.findall(
        r": ([\w./-]+\.md)$", (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    documents = {str(path.relative_to(CHECKOUT / "docs")) for path in (CHECKOUT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(documents)
