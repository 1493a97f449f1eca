"""Formats of access-log lines: the servers' standard formats by name, and any other format in the syntax of nginx or
Apache httpd.

A format becomes one regular expression without backtracking: each field ends where the text that follows it in the
format begins. So a hostile line costs one pass in any format, or one pass for each word that follows a field with
blanks. A regular expression by the user could not guarantee that. Pure, without Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

AUTO: Final = "auto"
"""The name of the format that accepts common, combined and vhost_combined lines, and keeps the rest of such lines."""

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

MALFORMED_LINE: Final = "malformed line"
"""The beginning of the reason for a line that does not have the format. The rest says at which field, and why."""

SHOWN_CHARACTERS_MAX: Final = 40
"""Maximum number of characters of a name or a separator in a reason. The format is the user's, and may be long."""


class Time(Enum):
    """How a format writes the time of an event."""

    LOCAL = r"[0-9]{2}/[A-Za-z]{3}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?+ [+-][0-9]{4}"
    ISO = (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?+"
        r"(?:Z|[+-][0-9]{2}:?+[0-9]{2})"
    )
    SECONDS = r"[0-9]{1,11}+(?:\.[0-9]{1,9})?+"
    MILLISECONDS = r"[0-9]{1,14}+"
    MICROSECONDS = r"[0-9]{1,17}+"


class Escapes(Enum):
    """How the server writes characters that could be taken for the format's own: a quote, a backslash, a control character."""

    BACKSLASH = "backslash"
    r"""`\xHH` (nginx), `\"`, `\\`, `\n`, `\t` (Apache httpd, JSON), `\u00HH` (JSON)."""
    NONE = "none"
    """As they are (escape=none of nginx)."""


class _Kind(Enum):
    WORD = "a word"
    """Never contains blanks, and is never empty unless the server writes nothing for what is absent."""
    LIST = "a word, or a list with commas"
    """One value for each upstream server: with ", " between servers and " : " between groups of them."""
    TEXT = "text"
    """May contain blanks, or be empty."""
    OTHER = "a word or nothing"
    """A variable of the user. Before a blank it is a word, because most are. Elsewhere it may be text."""
    LOCAL = "a time such as 21/Sep/2026:14:13:20 +0000"
    ISO = "a time such as 2026-09-21T14:13:20.250+00:00"
    SECONDS = "a time in seconds since 1970"
    MILLISECONDS = "a time in milliseconds since 1970"
    MICROSECONDS = "a time in microseconds since 1970"
    STATUS = "a number of 3 digits"
    SIZE = "a number of at most 12 digits, or -"
    PORT = "a number of at most 5 digits"


_SHAPES: Final = {kind: Time[kind.name].value for kind in _Kind if kind.name in Time.__members__} | {
    # What is too long is not a shorter number with something after it.
    _Kind.STATUS: r"[0-9]{3}(?!\w)",
    _Kind.SIZE: r"(?:[0-9]{1,12}+(?!\w)|-)",
    _Kind.PORT: r"[0-9]{1,5}+(?!\w)",
}
_TIMES: Final = {_Kind[time.name]: time for time in Time}
_JOINED: Final = (_Kind.WORD, _Kind.TEXT, _Kind.OTHER)
_MARKS: Final = "$%<>!,0123456789"
"""What may stand before the name of a field."""

_NGINX_PARTS: Final = {
    "remote_addr": "client",
    "remote_user": "user",
    "time_local": "time",
    "time_iso8601": "time",
    "msec": "time",
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
_NGINX_WORDS: Final = (
    *("binary_remote_addr", "connection", "connection_requests", "connection_time", "connections_active"),
    *(
        "gzip_ratio",
        "host",
        "hostname",
        "https",
        "nginx_version",
        "pid",
        "pipe",
        "protocol",
        "proxy_protocol_addr",
    ),
    *(
        "proxy_protocol_port",
        "realip_remote_addr",
        "realip_remote_port",
        "remote_addr",
        "req_id",
        "request_id",
    ),
    *("request_length", "request_method", "request_time", "scheme", "server_addr", "server_name"),
    *(
        "server_protocol",
        "session_time",
        "ssl_cipher",
        "ssl_protocol",
        "ssl_session_id",
        "ssl_session_reused",
    ),
    "tcpinfo_rtt",
)
_NGINX_TEXT_NAMES: Final = (
    *("args", "document_uri", "query_string", "realpath_root", "remote_user", "request", "request_body"),
    *("request_filename", "request_uri", "ssl_client_i_dn", "ssl_client_s_dn", "uri"),
)
_NGINX_KINDS: Final = {
    **dict.fromkeys(_NGINX_WORDS, _Kind.WORD),
    **dict.fromkeys(_NGINX_TEXT_NAMES, _Kind.TEXT),
    "time_local": _Kind.LOCAL,
    "time_iso8601": _Kind.ISO,
    "msec": _Kind.SECONDS,
    "status": _Kind.STATUS,
    "body_bytes_sent": _Kind.SIZE,
    "bytes_sent": _Kind.SIZE,
    "remote_port": _Kind.PORT,
    "server_port": _Kind.PORT,
    "proxy_add_x_forwarded_for": _Kind.LIST,
}
_NGINX_TEXTS: Final = (
    "http_",
    "sent_http_",
    "sent_trailer_",
    "cookie_",
    "arg_",
    "upstream_http_",
    "upstream_trailer_",
    "upstream_cookie_",
)
"""How the names of variables begin that have what a client or an application sent."""
_NGINX_TEXT_ENDS: Final = ("_args", "_referer", "_request", "_uri", "_user", "_user_agent")
"""How the names of variables end that a `map` makes of such a variable."""
_PATH_BEGINS: Final = ("$request_uri", "$uri", "$document_uri", "%U")
_PATH_GOES_ON: Final = ("$is_args", "$args", "$query_string", "%q")

_APACHE_PARTS: Final = {
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
    "{sec}t": "time",
    "{msec}t": "time",
    "{usec}t": "time",
}
_APACHE_KINDS: Final = {
    "t": _Kind.LOCAL,
    "{sec}t": _Kind.SECONDS,
    "{msec}t": _Kind.MILLISECONDS,
    "{usec}t": _Kind.MICROSECONDS,
    "s": _Kind.STATUS,
    "b": _Kind.SIZE,
    "B": _Kind.SIZE,
    "O": _Kind.SIZE,
    "p": _Kind.PORT,
} | dict.fromkeys("ahlmvADHIKLPRSTVXk", _Kind.WORD)
_STRFTIME: Final = {
    "%d/%b/%Y:%H:%M:%S %z": _Kind.LOCAL,
    "%Y-%m-%dT%H:%M:%S%z": _Kind.ISO,
    "%Y-%m-%d %H:%M:%S%z": _Kind.ISO,
}
"""The formats of time that can be read, with %F, %T and %e written out."""

_NGINX_FIELD: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_APACHE_FIELD: Final = re.compile(r"%[<>!,\d]*(?:(\{[^}]*\})?(\^[A-Za-z]{2}|[A-Za-z])|(%))")

_CONFIGURATION_WORD: Final = re.compile(
    r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'](?:[^\s;\\]|\\.)*)""", re.DOTALL
)
_CONFIGURATION_ESCAPE: Final = re.compile(r"""\\(["'\\tnr])""")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r"}

IN_QUOTES: Final = r'(?:[^"\\]++|\\[\s\S])*+'
_WORD_IN_QUOTES: Final = r'(?:[^\s"\\]|\\\S)'
_LIST: Final = r"[^\s,]*+(?:(?:, ?+| : )[^\s,]*+)*+"
# Up to the end of the line, without the blanks there.
_LAST: Final = r"(?:\S++|\s++(?=\S))*+"
# A file that was truncated under a server that does not append has a hole there: the server continues at its offset.
_START: Final = r"^\x00*+"
_END: Final = r"\s*+$"


class FormatProblem(ValueError):
    """The text is not a usable format. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`pattern` is a Java regular expression with one group for each of `parts`: EVENT_PARTS, or names of other fields.

    reached: an expression that matches every line, with one group for each field. All groups up to the field at which
    `pattern` fails are not empty. refusals: the reason for a line with that number of groups.
    """

    pattern: str
    parts: tuple[str, ...]
    time: Time
    escapes: Escapes
    reached: str
    refusals: tuple[str, ...]

    @property
    def extra(self) -> tuple[str, ...]:
        """The parts without their own column."""
        return tuple(part for part in self.parts if part not in EVENT_PARTS)


@dataclass(frozen=True, slots=True)
class _Token:
    """Text between fields, or a field: its server's name for it, its part and its kind."""

    text: str
    part: str = ""
    kind: _Kind | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """One field: the text before it, and what it may be."""

    before: str
    name: str
    pattern: str
    expected: str
    reached: str
    """The pattern for a line that is refused: nothing after the next field decides where this one ends."""


def line_format(text: str) -> LineFormat:
    """Return the format for a name (FORMATS) or a text in the syntax of log_format (nginx) or LogFormat (Apache),
    as in a configuration file, with or without the directive's name. FormatProblem."""
    return FORMATS[text] if text in FORMATS else _of_configuration(text)


def _of_configuration(text: str) -> LineFormat:
    body, is_nginx, escape = _as_configured(text)
    return _compiled(_joined(_tokens(body, is_nginx)), escape)


def _as_configured(text: str) -> tuple[str, bool, str]:
    """Return what the server makes of the text of its configuration file: the format, whether it is nginx's, and its
    parameter `escape`."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    given = text.strip()
    escape = "default"
    directive = re.match(r"(log_format|LogFormat|CustomLog)\s+(?=\S)", given)
    if directive is not None and directive[1] != "log_format":
        words = _words(given[directive.end() :])
        body = words[0] if directive[1] == "LogFormat" else words[1] if len(words) > 1 else ""
        return _one_line(body), False, escape
    if directive is not None:
        given = re.sub(r"\A\S+\s*", "", given[directive.end() :])
    if (named := re.match(r"escape=(\w+)\s+", given)) is not None:
        escape = named[1]
        if escape not in ("default", "json", "none"):
            raise FormatProblem(f"escape={escape} is none of escape=default, escape=json and escape=none")
        given = given[named.end() :]
    if directive is not None or re.fullmatch(r"'.*'\s*;?", given, re.DOTALL):
        body = "".join(_words(given))
    else:
        body = _unescaped(given)
    return _one_line(body), "$" in body, escape


def _words(text: str) -> list[str]:
    return [
        _unescaped(next(filter(None, found.groups()), "")) for found in _CONFIGURATION_WORD.finditer(text)
    ]


def _unescaped(text: str) -> str:
    return _CONFIGURATION_ESCAPE.sub(lambda found: _CONTROL.get(found[1], found[1]), text)


def _one_line(body: str) -> str:
    body = body.rstrip("\r\n")
    if "\n" in body:
        raise FormatProblem("it has more than one line, but each line of a log is an event")
    return body


def _tokens(text: str, is_nginx: bool) -> list[_Token]:
    field = _NGINX_FIELD if is_nginx else _APACHE_FIELD
    tokens: list[_Token] = []

    def add_text(more: str) -> None:
        if tokens and tokens[-1].kind is None:
            more = tokens.pop().text + more
        if more:
            tokens.append(_Token(more))

    at = 0
    for found in field.finditer(text):
        add_text(text[at : found.start()])
        at = found.end()
        if is_nginx:
            tokens.append(_nginx_token(found[1] or found[2]))
        elif found[3]:
            add_text("%")
        elif found[2] == "t" and not found[1]:
            # The server itself writes brackets around this field.
            add_text("[")
            tokens.append(_apache_token(found))
            add_text("]")
        else:
            tokens.append(_apache_token(found))
    add_text(text[at:])
    if not any(token.kind for token in tokens):
        raise FormatProblem(
            f"{text!r} is neither one of {', '.join(FORMATS)} nor a format of nginx ($request) or Apache httpd (%r)"
        )
    return tokens


def _nginx_token(name: str) -> _Token:
    kind = _NGINX_KINDS.get(name)
    if kind is None:
        kind = _Kind.LIST if name.startswith("upstream_") else _Kind.OTHER
        if name.startswith(_NGINX_TEXTS) or (kind is _Kind.OTHER and name.endswith(_NGINX_TEXT_ENDS)):
            kind = _Kind.TEXT
    return _Token(f"${name}", _NGINX_PARTS.get(name, name), kind)


def _apache_token(found: re.Match[str]) -> _Token:
    argument, letter = found[1] or "", found[2]
    lower = argument.lower()
    name = lower[1:-1] or letter
    if letter == "t" and argument and lower + letter not in _APACHE_KINDS:
        written = argument[1:-1].removeprefix("begin:").replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")
        if written not in _STRFTIME:
            raise FormatProblem(
                f"{found[0]}: this format of time cannot be read. Use %t, %{{msec}}t, %{{%d/%b/%Y:%T %z}}t or "
                "%{%FT%T%z}t"
            )
        return _Token(found[0], "time", _STRFTIME[written])
    kind = _APACHE_KINDS.get(lower + letter, _Kind.TEXT)
    if argument and kind is _Kind.TEXT and letter in "aapPT":
        kind = _Kind.WORD
    return _Token(found[0], _APACHE_PARTS.get(lower + letter, name), kind)


def _joined(tokens: Sequence[_Token]) -> list[_Token]:
    """Make one field of texts without a separator, such as %U%q and $host$request_uri."""
    joined: list[_Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last is not None and last.kind in _JOINED and token.kind in _JOINED:
            is_path = last.text.startswith(_PATH_BEGINS) and token.text in _PATH_GOES_ON
            text = last.text + token.text
            joined[-1] = _Token(text, "path" if is_path else text.lstrip(_MARKS), _Kind.TEXT)
        else:
            joined.append(token)
    return joined


def _compiled(tokens: Sequence[_Token], escape: str) -> LineFormat:
    steps: list[_Step] = []
    parts: list[str] = []
    times: list[Time] = []
    before, in_quotes = "", False
    for number, token in enumerate(tokens):
        if token.kind is None:
            before = token.text
            in_quotes ^= bool(before.count('"') % 2)
            continue
        following = tokens[number + 1] if number + 1 < len(tokens) else None
        if following is not None and following.kind is not None:
            raise FormatProblem(f"there is no separator between {token.text} and {following.text}")
        if any(step.name == token.text for step in steps):
            raise FormatProblem(f"{token.text} appears in it twice")
        part = token.part
        if part in parts and part in EVENT_PARTS:
            # The first field has this meaning. The second keeps its server's name.
            part = token.text.lstrip(_MARKS)
        if part in parts:
            part = token.text
        parts.append(part)
        if part == "time":
            times.append(_TIMES[token.kind])
        pattern, reached = _field_patterns(
            tokens, number, in_quotes and escape != "none", escape == "default"
        )
        steps.append(_Step(before, token.text, pattern, token.kind.value, reached))
        before = ""
    if len(parts) > FIELDS_MAX:
        raise FormatProblem(f"it has {len(parts)} fields, more than {FIELDS_MAX}")
    for needed in ("time", "status"):
        if needed not in parts:
            raise FormatProblem(f"it has no {needed}, which every event needs")
    pattern = "".join(f"{re.escape(step.before)}({step.pattern})" for step in steps) + re.escape(before)
    all_reached, refusals = _refusals(steps)
    escapes = Escapes.NONE if escape == "none" else Escapes.BACKSLASH
    return LineFormat(_START + pattern + _END, tuple(parts), times[0], escapes, all_reached, refusals)


def _field_patterns(
    tokens: Sequence[_Token], number: int, in_quotes: bool, absent_as_dash: bool
) -> tuple[str, str]:
    """Return an expression for what the field may be, up to the text that follows it, and the one of a refused line
    (_Step.reached).

    in_quotes: the field is in quotes, and the server escapes quotes in it. absent_as_dash: the server writes `-` for
    what is absent, and not nothing.
    """
    kind = tokens[number].kind
    assert kind is not None
    following = tokens[number + 1].text if number + 1 < len(tokens) else ""
    one = _WORD_IN_QUOTES if in_quotes else r"\S"
    word = one + ("++" if absent_as_dash else "*+")
    alone = ""
    if kind in _SHAPES:
        shape = _SHAPES[kind]
        alone = f"(?:{shape})?+" if kind is _Kind.SIZE and not absent_as_dash else shape
    elif not following:
        least = r"(?=\S)" if absent_as_dash and kind is _Kind.LIST else ""
        alone = word if kind is _Kind.WORD else least + _LAST
    elif in_quotes and following[0] == '"':
        alone = IN_QUOTES
    elif kind is _Kind.WORD and following[0] == " ":
        alone = word
    elif kind is _Kind.OTHER and following[0] == " ":
        alone = one + "*+"
    elif kind is _Kind.LIST and not following.strip(" "):
        alone = _LIST
    if alone:
        return alone, alone
    end, brief_end = _end_of(tokens, number + 1), _end_of(tokens, number + 1, is_brief=True)
    if end is None or brief_end is None:
        # Where a field with blanks ends cannot be known if another one follows.
        alone = one + "*+" if in_quotes else _LIST
        return alone, alone
    first = re.escape(following[0])
    escaped = r'"\\' if in_quotes else ""
    other = r"\\[\s\S]|" if in_quotes else ""

    def up_to(end: str) -> str:
        return rf"(?:[^{first}{escaped}]++|{other}(?!{end}){first})*+"

    reached = up_to(end) if brief_end == end else f"(?:{up_to(end)}(?={end})|{up_to(brief_end)})"
    if tokens[number].part != "user":
        return up_to(end), reached
    # A name may contain blanks. But what begins with the `-` of an absent name is another format with one field more.
    return rf"(?!-(?!{end})\ )" + up_to(end), rf"(?:-(?=\ )|{reached})"


def _end_of(tokens: Sequence[_Token], number: int, *, is_brief: bool = False) -> str | None:
    """Return an expression for what follows a field with blanks: as much as is needed to know that the field has
    ended. None if that cannot be known. The token of this number is the text after the field. With `is_brief`, a time
    alone tells it: no other field looks like one."""
    end = ""
    for at in range(number, len(tokens)):
        token = tokens[at]
        if token.kind is None:
            end += re.escape(token.text)
            if at + 1 == len(tokens):
                break
            if token.text.strip(" "):
                shape = _SHAPES.get(tokens[at + 1].kind or _Kind.TEXT)
                if shape is None:
                    return end
                if is_brief and tokens[at + 1].kind in (_Kind.LOCAL, _Kind.ISO):
                    return end + shape
                # The value itself may contain what looks like the next field, as `:1` in `[::1]:80`.
                return end + shape + (re.escape(tokens[at + 2].text) if at + 2 < len(tokens) else _END)
        elif token.kind in _SHAPES:
            end += f"(?:{_SHAPES[token.kind]})"
        elif token.kind in (_Kind.WORD, _Kind.OTHER):
            following = tokens[at + 1].text[0] if at + 1 < len(tokens) else " "
            if following == " ":
                end += r"\S++"
                continue
            after = _end_of(tokens, at + 1, is_brief=is_brief)
            return (
                None if after is None else end + rf"(?:[^\s{re.escape(following)}]++|(?!{after})\S)*+{after}"
            )
        else:
            return None
    return end + _END


def _refusals(steps: Sequence[_Step]) -> tuple[str, tuple[str, ...]]:
    """Return `reached` and `refusals` of a format with these fields."""
    reached = ""
    for step in reversed(steps):
        reached = f"(?:({re.escape(step.before)}{step.reached}){reached})?+"
    reasons = []
    for number, step in enumerate(steps, 1):
        expected = f"{_shown(step.before)} and then {step.expected}" if step.before.strip() else step.expected
        reasons.append(f"{MALFORMED_LINE}: field {number} ({_cut(step.name)}): expected {expected}")
    reasons.append(f"{MALFORMED_LINE}: it does not end after field {len(steps)} ({_cut(steps[-1].name)})")
    return f"{_START}{reached}[\\s\\S]*+$", tuple(reasons)


def _shown(text: str) -> str:
    return f"`{_cut(text)}`"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."


_COMMON: Final = '%h %l %u %t "%r" %>s %b'


def _automatic() -> LineFormat:
    """Return AUTO: the fields of the common format as a named format reads them, with what may stand around them."""
    common = _tokens(_COMMON, is_nginx=False)
    fields = [number for number, token in enumerate(common) if token.kind is not None]
    patterns = [_field_patterns(common, number, common[number].text == "%r", True) for number in fields]
    names = ("client", "ident", "user", "time", "request", "status", "bytes")
    before = ("", " ", " ", " [", '] "', '" ', " ")
    kinds = [common[number].kind or _Kind.TEXT for number in fields]
    steps = [
        _Step(text, name, pattern, kind.value, reached)
        for text, name, (pattern, reached), kind in zip(before, names, patterns, kinds, strict=True)
    ]
    # An address with a port, of a client, is no virtual host: there are two words up to the user.
    host = r"(?:([^\s:]++|\[[^\]\s]++\]):[0-9]{1,5} (?=(?!- )\S++ \S++ [^\s\[]))?+"
    wanted = [
        f"({pattern})" if name != "ident" else pattern
        for name, (pattern, _) in zip(names, patterns, strict=True)
    ]
    pattern = "".join(re.escape(text) + field for text, field in zip(before, wanted, strict=True))
    # A truncated line must not be accepted as a shorter format. So only whole fields may follow, and after the common
    # format no quotes.
    field = rf'(?:"{IN_QUOTES}"|[^"\s]\S*+)'
    quoted = f'"({IN_QUOTES})"'
    pattern += rf'(?: {quoted} {quoted}|(?= [^"]|\s*+$))((?: {field})*+)'
    reached, refusals = _refusals(steps)
    reached = reached.replace(_START, _START + host.replace("([", "(?:["), 1)
    end = f"{MALFORMED_LINE}: after field 7 (bytes): expected the end, a referrer and a user agent in quotes, or other whole fields"
    return LineFormat(
        _START + host + pattern + _END,
        ("virtual_host", *(name for name in names if name != "ident"), "referrer", "user_agent", REST),
        Time.LOCAL,
        Escapes.BACKSLASH,
        reached,
        (*refusals[:-1], end),
    )


FORMATS: Final = {
    AUTO: _automatic(),
    "common": _of_configuration(_COMMON),
    "combined": _of_configuration(_COMMON + ' "%{Referer}i" "%{User-Agent}i"'),
    "vhost_combined": _of_configuration('%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"'),
    "main": _of_configuration(
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" "$http_x_forwarded_for"'
    ),
    "upstreaminfo": _of_configuration(
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" $request_length $request_time [$proxy_upstream_name] '
        "[$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time "
        "$upstream_status $req_id"
    ),
}
"""The formats that have a name: AUTO, and others as in their servers' configuration files. Those are Apache httpd's,
`main` of the nginx packages, and `upstreaminfo`, the default of ingress-nginx."""
