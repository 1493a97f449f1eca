"""The names in a certificate: DER, and a subject as text in Java's form of RFC 2253, which principals and mapping rules use.

Pure. Lengths are checked against the available bytes, so a wrong length in a file or from a peer has no effect. The last name
comes first. Attribute types without a keyword in RFC 2253 are written as their number with the encoded value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
SET = 0x31
VERSION = 0xA0
"""The tag before a certificate's version. Certificates of the first version do not have it."""


class DerError(Exception):
    """The bytes are not DER of the expected form."""


class Element(NamedTuple):
    tag: int
    content: bytes
    encoded: bytes
    """With tag and length."""


def elements(data: bytes) -> Iterator[Element]:
    """The consecutive elements in `data`, which they must fill. Raises DerError."""
    position = 0
    while position < len(data):
        element = _element(data, position)
        yield element
        position += len(element.encoded)


def sole(data: bytes, tag: int) -> bytes:
    """The content of `data`, which must be a single element. Raises DerError."""
    found = list(elements(data))
    if len(found) != 1:
        raise DerError(f"{len(found)} elements where one is expected")
    return content(found[0], tag)


def content(element: Element, tag: int) -> bytes:
    """Raises DerError for an element with another tag."""
    if element.tag != tag:
        raise DerError(f"an element of tag {element.tag:#x} where {tag:#x} is expected")
    return element.content


def subject(certificate: bytes) -> bytes:
    """The encoded subject name of an X.509 certificate. Raises DerError."""
    return _name(certificate, 4)


def issuer(certificate: bytes) -> bytes:
    """The encoded name of an X.509 certificate's issuer. Raises DerError."""
    return _name(certificate, 2)


def _name(certificate: bytes, field: int) -> bytes:
    signed = next(elements(sole(certificate, SEQUENCE)), None)
    if signed is None:
        raise DerError("an empty certificate")
    fields = [each for each in elements(content(signed, SEQUENCE)) if each.tag != VERSION]
    # Serial number, signature algorithm, issuer, validity, subject.
    if len(fields) < 5:
        raise DerError("a certificate without a subject")
    return fields[field].encoded


def dotted(identifier: bytes) -> str:
    """The text of an object identifier's content, '2.5.4.3'. Raises DerError."""
    arcs: list[int] = []
    arc = 0
    for octet in identifier:
        arc = arc << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs or identifier[-1] & 0x80:
        raise DerError("an object identifier that does not end")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _element(data: bytes, start: int) -> Element:
    if start + 2 > len(data):
        raise DerError("the bytes end within an element")
    tag, length, position = data[start], data[start + 1], start + 2
    if tag & 0x1F == 0x1F:
        raise DerError("a tag of more than one byte")
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or position + count > len(data):
            raise DerError("a length that is none")
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    end = position + length
    if end > len(data):
        raise DerError("the bytes end within an element")
    return Element(tag, data[position:end], data[start:end])


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
