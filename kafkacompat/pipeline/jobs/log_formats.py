"""Formats of access-log lines: the servers' standard formats by name, and any other format in the syntax of nginx or
Apache httpd.

A format becomes one regular expression without backtracking: each field ends at the first character that cannot be
part of it. So a hostile line costs one pass in any format. A regular expression by the user could not guarantee that.
Pure, without Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

AUTO: Final = "auto"
"""The name of the format that accepts common, combined and vhost_combined lines, and keeps the rest of such lines."""

NAMED: Final = {
    "common": '%h %l %u %t "%r" %>s %b',
    "combined": '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"',
    "vhost_combined": '%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"',
    "main": '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent" "$http_x_forwarded_for"',
}
"""Formats as in their servers' configuration files: those of Apache httpd, and `main` of the nginx packages."""

FIELDS_MAX: Final = 40
FORMAT_CHARACTERS_MAX: Final = 2000

EVENT_PARTS: Final = (
    "client",
    "user",
    "time",
    "request",
    "method",
    "path",
    "protocol",
    "status",
    "bytes",
    "referrer",
    "user_agent",
    "virtual_host",
)
"""The parts with their own column in an event. All other fields are kept by name."""

REST: Final = "rest"
"""The name of the text after a known format."""

_NGINX: Final = {
    "remote_addr": "client",
    "remote_user": "user",
    "time_local": "time",
    "time_iso8601": "time",
    "request": "request",
    "request_method": "method",
    "request_uri": "path",
    "server_protocol": "protocol",
    "status": "status",
    "body_bytes_sent": "bytes",
    "bytes_sent": "bytes",
    "http_referer": "referrer",
    "http_user_agent": "user_agent",
    "host": "virtual_host",
    "server_name": "virtual_host",
    "http_host": "virtual_host",
}
_APACHE: Final = {
    "h": "client",
    "a": "client",
    "u": "user",
    "t": "time",
    "r": "request",
    "m": "method",
    "U": "path",
    "H": "protocol",
    "s": "status",
    "b": "bytes",
    "B": "bytes",
    "O": "bytes",
    "v": "virtual_host",
    "V": "virtual_host",
    "{referer}i": "referrer",
    "{user-agent}i": "user_agent",
    "{host}i": "virtual_host",
}
_NGINX_FIELD: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_APACHE_FIELD: Final = re.compile(r"%[<>!,\d]*(?:(\{[^}]*\})?([A-Za-z])|(%))")

IN_QUOTES: Final = r'(?:[^"\\]++|\\.)*+'
IN_BRACKETS: Final = r"[^\]]++"
WORD: Final = r"\S++"
LOCAL_TIME: Final = "dd/MMM/yyyy:HH:mm:ss Z"
ISO_TIME: Final = "yyyy-MM-dd'T'HH:mm:ssXXX"

_QUOTED: Final = f'"({IN_QUOTES})"'
# A truncated line must not be accepted as a shorter format. So only whole fields may follow, and after the common
# format no quotes.
_FIELD: Final = rf'(?:"{IN_QUOTES}"|[^"\s]\S*+)'
_AUTO_PATTERN: Final = (
    r"^(?:([^\s:]++|\[[^\]\s]++\]):\d{1,5} (?=\S++ \S++ \S++ \[))?+"
    rf"(\S++) \S++ (\S++) \[({IN_BRACKETS})\] {_QUOTED} (\d{{3}}) (\d{{1,12}}|-)"
    rf'(?: {_QUOTED} {_QUOTED}|(?= [^"]|\s*+$))((?: {_FIELD})*+)\s*+$'
)
_AUTO_PARTS: Final = (
    "virtual_host",
    "client",
    "user",
    "time",
    "request",
    "status",
    "bytes",
    "referrer",
    "user_agent",
    REST,
)


class FormatProblem(ValueError):
    """The text is not a usable format. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`pattern` is a Java regular expression with one group for each of `parts`: EVENT_PARTS, or names of other fields."""

    pattern: str
    parts: tuple[str, ...]
    time_format: str = LOCAL_TIME
    """In the syntax of Spark's DateTimeFormatter."""

    @property
    def extra(self) -> tuple[str, ...]:
        """The parts without their own column."""
        return tuple(part for part in self.parts if part not in EVENT_PARTS)


def line_format(text: str) -> LineFormat:
    """Return the format for a name (AUTO, NAMED) or a text in the syntax of log_format (nginx) or LogFormat (Apache).
    FormatProblem."""
    if text == AUTO:
        return LineFormat(_AUTO_PATTERN, _AUTO_PARTS)
    text = NAMED.get(text, text)
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    # In a configuration file, quotes within quotes have backslashes.
    return _compiled(_tokens(text.replace('\\"', '"')))


@dataclass(frozen=True, slots=True)
class _Token:
    """Literal text, or a field with its server's name."""

    text: str
    part: str | None = None
    is_bracketed: bool = False
    """The server itself writes brackets around the field, as Apache does for %t."""


def _tokens(text: str) -> list[_Token]:
    is_nginx = "$" in text
    field = _NGINX_FIELD if is_nginx else _APACHE_FIELD
    tokens: list[_Token] = []
    at = 0
    for found in field.finditer(text):
        if found.start() > at:
            tokens.append(_Token(text[at : found.start()]))
        tokens.append(_nginx_token(found) if is_nginx else _apache_token(found))
        at = found.end()
    if at < len(text):
        tokens.append(_Token(text[at:]))
    if not any(token.part for token in tokens):
        names = ", ".join([AUTO, *NAMED])
        raise FormatProblem(
            f"{text!r} is neither one of {names} nor a format of nginx ($request) or Apache httpd (%r)"
        )
    return tokens


def _nginx_token(found: re.Match[str]) -> _Token:
    name = found[1] or found[2]
    return _Token(name, _NGINX.get(name, name))


def _apache_token(found: re.Match[str]) -> _Token:
    argument, letter, percent = found.groups()
    if percent:
        return _Token("%")
    if letter == "t" and argument:
        raise FormatProblem(f"{found[0]}: custom time formats are not supported; use %t")
    argument = (argument or "").lower()
    name = argument[1:-1] or letter
    return _Token(name, _APACHE.get(argument + letter, name), is_bracketed=letter == "t")


def _compiled(tokens: list[_Token]) -> LineFormat:
    pattern, parts, time_format = "^", [], LOCAL_TIME
    opened = ""
    for number, token in enumerate(tokens):
        if token.part is None:
            pattern += re.escape(token.text)
            opened = _still_open(opened, token.text)
            continue
        following = tokens[number + 1] if number + 1 < len(tokens) else None
        if following is not None and following.part is not None:
            raise FormatProblem(f"there is no separator between {token.text} and {following.text}")
        field = _field_pattern(token, opened, following.text[0] if following is not None else "")
        if token.part in parts and token.part in EVENT_PARTS:
            # The first field has this meaning. The second keeps its server's name.
            token = _Token(token.text, token.text)
        if token.part in parts:
            raise FormatProblem(f"{token.text} appears in it twice")
        parts.append(str(token.part))
        if token.text == "time_iso8601":
            time_format = ISO_TIME
        pattern += field
    if len(parts) > FIELDS_MAX:
        raise FormatProblem(f"it has {len(parts)} fields, more than {FIELDS_MAX}")
    for needed in ("time", "status"):
        if needed not in parts:
            raise FormatProblem(f"it has no {needed}, which every event needs")
    return LineFormat(pattern + r"\s*+$", tuple(parts), time_format)


def _still_open(opened: str, text: str) -> str:
    """Return the quote or bracket that surrounds the next field."""
    for character in text:
        if opened:
            if character == {"[": "]"}.get(opened, opened):
                opened = ""
        elif character in '"[':
            opened = character
    return opened


def _field_pattern(token: _Token, opened: str, following: str) -> str:
    """Return a group of the characters that the field may contain, up to the character that follows it in the format."""
    if token.is_bracketed:
        return rf"\[({IN_BRACKETS})\]"
    if following == '"' == opened:
        return f"({IN_QUOTES})"
    if following == "]" and opened == "[":
        return f"({IN_BRACKETS})"
    if following not in ("", " "):
        return f"([^{re.escape(following)}]*+)"
    if token.text == "time_local":
        return r"(\S++ \S++)"
    return r'([^\s"]++)' if opened == '"' else f"({WORD})"
