"""Invalid topic names, with Kafka's texts."""

from __future__ import annotations

import re

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_flaw(name: str) -> str | None:
    """Kafka's text for what is wrong with a topic's name. None for a valid name."""
    flaw: str | None = None
    if not name:
        flaw = "the empty string is not allowed"
    elif name in (".", ".."):
        flaw = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        flaw = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not _LEGAL.match(name):
        flaw = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None if flaw is None else f"Topic name is invalid: {flaw}"
