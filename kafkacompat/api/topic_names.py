"""Which topic names are legal. Knows no request. Kafka's Topic rules."""

from __future__ import annotations

import re

MAX_LENGTH = 249
LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_LENGTH}}}")


def is_legal_topic_name(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")
