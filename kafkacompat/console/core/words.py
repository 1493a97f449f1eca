"""Text that came with a record, made fit to be sent on: every letter of it can be encoded. Knows nothing."""

from __future__ import annotations

import re

UNKNOWN_LETTER = "\ufffd"
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with UNKNOWN_LETTER for each half of a surrogate pair, which JSON can escape and UTF-8 cannot say."""
    return _HALF_PAIR.sub(UNKNOWN_LETTER, text)
