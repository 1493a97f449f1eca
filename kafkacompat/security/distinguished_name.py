"""A certificate's subject as text, in Java's form of RFC 2253, which principals and mapping rules use.

Pure. The last name comes first. Attribute types without a keyword in RFC 2253 are written as their number with the
value in hexadecimal: `1.2.840.113549.1.9.1=#1603612e62` is an e-mail address.
"""

from __future__ import annotations

from kafkacompat.security.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    DerError,
    Element,
    content,
    dotted,
    elements,
    sole,
)

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""UTF8, Printable, T61, IA5, General and BMP strings. Java decodes all of them as UTF-8."""
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANKS = " \r"


def rfc2253(name: bytes) -> str:
    """The text of an encoded X.500 name. Raises DerError."""
    relative = list(elements(sole(name, SEQUENCE)))
    return ",".join("+".join(map(_attribute, elements(content(each, SET)))) for each in reversed(relative))


def _attribute(attribute: Element) -> str:
    parts = list(elements(content(attribute, SEQUENCE)))
    if len(parts) != 2:
        raise DerError("an attribute that is no kind and value")
    kind = dotted(content(parts[0], OBJECT_IDENTIFIER))
    keyword, value = _KEYWORDS.get(kind), parts[1]
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or kind}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    found = "".join("\\" + each if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    inner = found.lstrip(_BLANKS)
    before = found[: len(found) - len(inner)]
    kept = inner.rstrip(_BLANKS)
    after = inner[len(kept) :]
    return "".join("\\" + each for each in before) + kept + "".join("\\" + each for each in after)
