"""The W3C extended log format: the `#Fields` line of a file names the fields. IIS writes it with blanks, CloudFront with tabs."""

from __future__ import annotations

import re
from typing import Final

from kafkacompat.pipeline.formats.patterns import (
    FORMAT_CHARACTERS_MAX,
    MALFORMED_LINE,
    FormatProblem,
    Kind,
    LineFormat,
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
    "sc-status": "status",
    "sc-bytes": "bytes",
    "cs(Referer)": "referrer",
    "cs(User-Agent)": "user_agent",
    "cs-version": "protocol",
    "cs-protocol-version": "protocol",
}
_HOSTS: Final = ("x-host-header", "cs-host", "cs(Host)")
"""The fields with the host that the client asked for. CloudFront's cs(Host) is the name of the distribution."""
_KINDS: Final = {"sc-status": Kind.MAYBE_STATUS, "sc-bytes": Kind.SIZE}
_QUERY: Final = "cs-uri-query"

OTHER_FIELDS: Final = f"{MALFORMED_LINE}: its fields are not those of the format: give this line as the format, from #Fields: on"
"""The reason for a `#Fields` line that is not the format's. What follows it in its file must not be read by the format."""


def of_fields(text: str, *, has_time: bool = False) -> LineFormat:
    """Return the format for a `#Fields` line. FormatProblem. has_time is as in `compiled`."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    names = text.removeprefix(BEGINNING).split()
    is_cloudfront = any(name.startswith("x-edge-") for name in names)
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
            tokens.append(Token("date time", "time", Kind.UTC))
        elif name in ("date", "time"):
            raise FormatProblem("date and time must stand side by side, in this order")
        else:
            part = "virtual_host" if name == host else _PARTS.get(name, name)
            tokens.append(Token(name, part, _KINDS.get(name, Kind.TOKEN)))
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
