"""What the documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
NAMED_TEST = re.compile(r"`((?:kafkacompat|interop_tests)/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_a_document_names_is_there() -> None:
    named = {
        found
        for document in (CHECKOUT / "docs").glob("*.md")
        for found in NAMED_TEST.findall(document.read_text(encoding="utf-8"))
    }
    assert named, "the notes of the field name tests"
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named)
        if not re.search(rf"def {test}\b", (CHECKOUT / file).read_text(encoding="utf-8"))
    ]
    assert not missing
