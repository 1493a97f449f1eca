"""The rules of legal topic names, as in Kafka's class Topic. Independent of requests."""

from __future__ import annotations

import re

MAX_LENGTH = 249
LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_LENGTH}}}")


def is_legal_topic_name(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")
