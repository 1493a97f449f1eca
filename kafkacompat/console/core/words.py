"""Makes text from a record safe to send: afterwards every character can be encoded. No imports."""

from __future__ import annotations

import re

UNKNOWN_LETTER = "\ufffd"
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """Replace each lone surrogate by UNKNOWN_LETTER. JSON can escape a lone surrogate, but UTF-8 cannot encode it."""
    return _HALF_PAIR.sub(UNKNOWN_LETTER, text)
