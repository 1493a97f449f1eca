"""The W3C extended log format: the `#Fields` line of a file names the fields. IIS writes it with blanks, CloudFront with tabs.

A format may be one such line. Or each line has the names that its own file had for it: whoever reads the file learns them with
`fields_after`, and they go with the line.
"""

from __future__ import annotations

import re
from typing import Final

from kafkacompat.pipeline.formats.named_fields import FieldsFormat, Place, Syntax
from kafkacompat.pipeline.formats.patterns import (
    FIELDS_MAX,
    FORMAT_CHARACTERS_MAX,
    MALFORMED_LINE,
    FormatProblem,
    LineFormat,
    PartKind,
    Time,
    Token,
    compiled,
)

BEGINNING: Final = "#Fields:"
"""How the text of the format begins, as the line in the file does."""

_PARTS: Final = {
    "c-ip": "client",
    "cs-username": "user",
    "cs-method": "method",
    "cs-uri-stem": "path",
    "cs-version": "protocol",
    "cs-protocol-version": "protocol",
    "sc-status": "status",
    "sc-bytes": "bytes",
    "cs(Referer)": "referrer",
    "cs(User-Agent)": "user_agent",
}
_HOSTS: Final = ("x-host-header", "cs-host", "cs(Host)")
"""The fields with the host that the client asked for. CloudFront's cs(Host) is the name of the distribution."""
_KINDS: Final = {"sc-status": PartKind.MAYBE_STATUS, "sc-bytes": PartKind.SIZE}
_QUERY: Final = "cs-uri-query"

OTHER_FIELDS: Final = f"{MALFORMED_LINE}: its fields are not those of the format: give this line as the format, from #Fields: on"
"""The reason for a `#Fields` line that is not the format's. What follows it in its file must not be read by the format."""


NAME: Final = "w3c"
NAMES: Final = r"^[\x21-\x7e]++(?:[ \t]++[\x21-\x7e]++)*+$"
"""The names of a `#Fields` line, as they go with a line."""
TRAILING: Final = " \t\r\n\v\f"
"""What is left out at the end of a line."""
EDGE: Final = "x-edge-"
"""How names of CloudFront begin. It separates values by tabs, and names by blanks."""
DATE_AND_TIME: Final = "date time"
"""The name of the value that the fields date and time are together."""
NO_FIELDS: Final = (
    f"{MALFORMED_LINE}: no #Fields line tells its fields: the record has no header `fields`, or one with other names than "
    f"{FIELDS_MAX} different words"
)
BEGINNING_BYTES: Final = BEGINNING.encode()


def of_fields(text: str, *, has_time: bool = False) -> LineFormat:
    """Return the format for a `#Fields` line. FormatProblem. has_time is as in `compiled`."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    names = text.removeprefix(BEGINNING).split()
    is_cloudfront = any(name.startswith(EDGE) for name in names)
    separator = "\t" if is_cloudfront or "\t" in text.strip() else " "
    host = next((name for name in _HOSTS if name in names), None)
    tokens: list[Token] = []
    for number, name in enumerate(names):
        if re.fullmatch(r"[\x21-\x7e]+", name) is None:
            raise FormatProblem(f"{name!r} is no name of a field")
        if name == "time" and number > 0 and names[number - 1] == "date":
            continue
        if tokens:
            tokens.append(Token(separator))
        if name == "date" and names[number + 1 : number + 2] == ["time"]:
            tokens.append(Token("date time", "time", PartKind.UTC))
        elif name in ("date", "time"):
            raise FormatProblem("date and time must stand side by side, in this order")
        else:
            part = "virtual_host" if name == host else _PARTS.get(name, name)
            tokens.append(Token(name, part, _KINDS.get(name, PartKind.TOKEN)))
    query = _QUERY if _QUERY in names and "cs-uri-stem" in names else None
    return compiled(
        tokens,
        "percent" if is_cloudfront else "plus",
        has_time=has_time,
        query=query,
        fields_line=" ".join(names),
    )


W3C_FORMATS: Final = {
    "iis": of_fields(
        "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) "
        "cs(Referer) sc-status sc-substatus sc-win32-status time-taken"
    ),
    "cloudfront": of_fields(
        "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) "
        "cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol "
        "cs-bytes time-taken x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type "
        "cs-protocol-version fle-status fle-encrypted-fields c-port time-to-first-byte "
        "x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end"
    ),
}
"""What IIS and CloudFront's standard logs write unless they are told otherwise."""

# Lines with the fields of their own file.


def fields_after(line: bytes, before: bytes) -> bytes:
    """Return the names that are in force after a line of a file. before: those before it.

    b"" stands for none. So it does after a `#Fields` line that cannot be used, because the lines after it do not have the names
    before it.
    """
    line = line.lstrip(b"\0")
    if not line.startswith(BEGINNING_BYTES):
        return before
    told = line[len(BEGINNING_BYTES) :].strip()
    return told if names_of(told) is not None else b""


def names_of(told: bytes) -> list[str] | None:
    """Return the names in the header of a line. None if they cannot be used."""
    if len(told) > FORMAT_CHARACTERS_MAX or re.match(NAMES.encode(), told) is None:
        return None
    names = told.decode("ascii").split()
    return names if len(set(names)) == len(names) <= FIELDS_MAX else None


def separator_of(told: bytes, names: list[str]) -> str:
    """Return what stands between the values of a line."""
    return "\t" if b"\t" in told or any(name.startswith(EDGE) for name in names) else " "


def _place(name: str, time: Time | None = None) -> Place:
    return Place((name,), name, time)


_OWN: Final = {
    "time": (_place(DATE_AND_TIME, Time.UTC),),
    **{
        part: tuple(_place(name) for name, meant in _PARTS.items() if meant == part)
        for part in _PARTS.values()
    },
    "virtual_host": tuple(map(_place, _HOSTS)),
    _QUERY: (_place(_QUERY),),
}
OWN_FIELDS: Final = FieldsFormat(
    Syntax.W3C,
    tuple(_OWN),
    tuple(_OWN.values()),
    query=_QUERY,
)
"""Lines of any files in the W3C format."""
