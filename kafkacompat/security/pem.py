"""PEM: certificates and private keys as text, in files and in settings.

Pure. Blanks may replace line ends, because a value in server.properties may be one line. Text around the entries is
ignored, and so are lines `Name: value` in them.
"""

from __future__ import annotations

import base64
import binascii
import re

CERTIFICATE = "CERTIFICATE"
PRIVATE_KEY = "PRIVATE KEY"
ENCRYPTED_PRIVATE_KEY = "ENCRYPTED PRIVATE KEY"
_BEGIN = re.compile(r"-+BEGIN\s+([A-Z0-9 \t]+?)\s*-+\s")
_END = re.compile(r"-+END\s+([A-Z0-9 \t]+?)\s*-+\s")
_HEADERS = re.compile(r"(?:[^\r\n:-]*:[^\r\n]*[\r\n]+\s*)*")


class PemError(Exception):
    """The text is not PEM. The message has the position, but never the text."""


def entries(text: str) -> list[tuple[str, bytes]]:
    """(label, DER) of each entry, in order. Raises PemError."""
    found: list[tuple[str, bytes]] = []
    text += "\n"
    position = 0
    while begin := _BEGIN.search(text, position):
        label = " ".join(begin[1].split())
        headers = _HEADERS.match(text, begin.end())
        start = begin.end() if headers is None else headers.end()
        stop = text.find("-", start)
        end = _END.match(text, max(stop, start))
        where = f"entry {len(found) + 1} ({label})"
        if stop < 0 or end is None or " ".join(end[1].split()) != label:
            raise PemError(f"{where} has no END line where its base64 ends")
        try:
            found.append((label, base64.b64decode("".join(text[start:stop].split()), validate=True)))
        except binascii.Error:
            raise PemError(f"{where} is not base64") from None
        position = end.end()
    return found
