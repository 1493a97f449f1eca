"""Formats of web servers: the standard formats by name, and any other format in the syntax of nginx or Apache httpd."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kafkacompat.pipeline.formats.patterns import (
    END,
    FIELDS_AFTER,
    FORMAT_CHARACTERS_MAX,
    IN_QUOTES,
    MALFORMED_LINE,
    MARKS,
    REST,
    START,
    Escapes,
    FormatProblem,
    LineFormat,
    PartKind,
    Step,
    Time,
    Token,
    compiled,
    field_patterns,
    refusals_of,
)

AUTO: Final = "auto"
"""The name of the format that accepts common, combined and vhost_combined lines, and keeps the rest of such lines."""

_JOINED: Final = (PartKind.WORD, PartKind.TEXT, PartKind.OTHER)
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
    **dict.fromkeys(_NGINX_WORDS, PartKind.WORD),
    **dict.fromkeys(_NGINX_TEXT_NAMES, PartKind.TEXT),
    "time_local": PartKind.LOCAL,
    "time_iso8601": PartKind.ISO,
    "msec": PartKind.SECONDS,
    "status": PartKind.STATUS,
    "body_bytes_sent": PartKind.SIZE,
    "bytes_sent": PartKind.SIZE,
    "remote_port": PartKind.PORT,
    "server_port": PartKind.PORT,
    "proxy_add_x_forwarded_for": PartKind.LIST,
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
    "t": PartKind.LOCAL,
    "{sec}t": PartKind.SECONDS,
    "{msec}t": PartKind.MILLISECONDS,
    "{usec}t": PartKind.MICROSECONDS,
    "s": PartKind.STATUS,
    "b": PartKind.SIZE,
    "B": PartKind.SIZE,
    "O": PartKind.SIZE,
    "p": PartKind.PORT,
} | dict.fromkeys("ahlmvADHIKLPRSTVXk", PartKind.WORD)
_STRFTIME: Final = {
    "%d/%b/%Y:%H:%M:%S %z": PartKind.LOCAL,
    "%Y-%m-%dT%H:%M:%S%z": PartKind.ISO,
    "%Y-%m-%d %H:%M:%S%z": PartKind.ISO,
}
"""The formats of time that can be read, with %F, %T and %e written out."""

_NGINX_FIELD: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_APACHE_FIELD: Final = re.compile(r"%[<>!,\d]*(?:(\{[^}]*\})?(\^[A-Za-z]{2}|[A-Za-z])|(%))")

_CONFIGURATION_WORD: Final = re.compile(
    r""""((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'](?:[^\s;\\]|\\.)*)""", re.DOTALL
)
_CONFIGURATION_ESCAPE: Final = re.compile(r"""\\(["'\\tnr])""")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r"}


def of_configuration(text: str, names: Sequence[str] = (), *, has_time: bool = False) -> LineFormat:
    """Return the format for a text in the syntax of log_format (nginx) or LogFormat (Apache httpd), as in a configuration
    file, with or without the directive's name. FormatProblem, which says that the text is none of `names` either.

    has_time: what is around the line has a time, so the line needs none.
    """
    body, is_nginx, escape = _as_configured(text)
    return compiled(_joined(_tokens(body, is_nginx, names)), escape, has_time=has_time)


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


def _tokens(text: str, is_nginx: bool, names: Sequence[str] = ()) -> list[Token]:
    field = _NGINX_FIELD if is_nginx else _APACHE_FIELD
    tokens: list[Token] = []

    def add_text(more: str) -> None:
        if tokens and tokens[-1].kind is None:
            more = tokens.pop().text + more
        if more:
            tokens.append(Token(more))

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
            f"{text!r} is neither one of {', '.join(names)} nor a format of nginx ($request) or Apache httpd (%r)"
        )
    return tokens


def _nginx_token(name: str) -> Token:
    kind = _NGINX_KINDS.get(name)
    if kind is None:
        kind = PartKind.LIST if name.startswith("upstream_") else PartKind.OTHER
        if name.startswith(_NGINX_TEXTS) or (kind is PartKind.OTHER and name.endswith(_NGINX_TEXT_ENDS)):
            kind = PartKind.TEXT
    return Token(f"${name}", _NGINX_PARTS.get(name, name), kind)


def _apache_token(found: re.Match[str]) -> Token:
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
        return Token(found[0], "time", _STRFTIME[written])
    kind = _APACHE_KINDS.get(lower + letter, PartKind.TEXT)
    if argument and kind is PartKind.TEXT and letter in "aapPT":
        kind = PartKind.WORD
    return Token(found[0], _APACHE_PARTS.get(lower + letter, name), kind)


def _joined(tokens: Sequence[Token]) -> list[Token]:
    """Make one field of texts without a separator, such as %U%q and $host$request_uri."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last is not None and last.kind in _JOINED and token.kind in _JOINED:
            is_path = last.text.startswith(_PATH_BEGINS) and token.text in _PATH_GOES_ON
            text = last.text + token.text
            joined[-1] = Token(text, "path" if is_path else text.lstrip(MARKS), PartKind.TEXT)
        else:
            joined.append(token)
    return joined


_COMMON: Final = '%h %l %u %t "%r" %>s %b'


def _automatic() -> LineFormat:
    """Return AUTO: the fields of the common format as a named format reads them, with what may stand around them."""
    common = _tokens(_COMMON, is_nginx=False)
    fields = [number for number, token in enumerate(common) if token.kind is not None]
    patterns = [field_patterns(common, number, common[number].text == "%r", True) for number in fields]
    names = ("client", "ident", "user", "time", "request", "status", "bytes")
    before = ("", " ", " ", " [", '] "', '" ', " ")
    kinds = [common[number].kind or PartKind.TEXT for number in fields]
    steps = [
        Step(text, name, pattern, kind.value, reached)
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
    quoted = f'"({IN_QUOTES})"'
    pattern += rf'(?: {quoted} {quoted}|(?= [^"]|\s*+$))({FIELDS_AFTER})'
    reached, refusals = refusals_of(steps)
    reached = reached.replace(START, START + host.replace("([", "(?:["), 1)
    end = f"{MALFORMED_LINE}: after field 7 (bytes): expected the end, a referrer and a user agent in quotes, or other whole fields"
    return LineFormat(
        START + host + pattern + END,
        ("virtual_host", *(name for name in names if name != "ident"), "referrer", "user_agent", REST),
        Time.LOCAL,
        Escapes.BACKSLASH,
        reached,
        (*refusals[:-1], end),
    )


SERVER_FORMATS: Final = {
    AUTO: _automatic(),
    "common": of_configuration(_COMMON),
    "combined": of_configuration(_COMMON + ' "%{Referer}i" "%{User-Agent}i"'),
    "vhost_combined": of_configuration('%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"'),
    "main": of_configuration(
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" "$http_x_forwarded_for"'
    ),
    "upstreaminfo": of_configuration(
        '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
        '"$http_referer" "$http_user_agent" $request_length $request_time [$proxy_upstream_name] '
        "[$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time "
        "$upstream_status $req_id"
    ),
}
"""The formats that have a name: AUTO, and others as in their servers' configuration files. Those are Apache httpd's,
`main` of the nginx packages, and `upstreaminfo`, the default of ingress-nginx."""
