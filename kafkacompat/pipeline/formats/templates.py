"""Formats as templates: text with fields in braces. One's own patterns, and what HAProxy, Squid and AWS's load balancers write.

A template has no wildcard, no repetition and no alternative: its fields have kinds. So no line makes it slow.
"""

from __future__ import annotations

import re
from typing import Final

from kafkacompat.pipeline.formats.patterns import (
    FORMAT_CHARACTERS_MAX,
    FormatProblem,
    LineFormat,
    PartKind,
    Token,
    compiled,
)

BEGINNING: Final = "pattern:"
"""How the text of a pattern of one's own begins."""

KINDS: Final = {
    "word": PartKind.WORD,
    "text": PartKind.TEXT,
    "list": PartKind.LIST,
    "status": PartKind.STATUS,
    "size": PartKind.SIZE,
    "port": PartKind.PORT,
    "local": PartKind.LOCAL,
    "iso": PartKind.ISO,
    "utc": PartKind.UTC,
    "seconds": PartKind.SECONDS,
    "milliseconds": PartKind.MILLISECONDS,
    "microseconds": PartKind.MICROSECONDS,
}
"""The kinds of fields in a pattern of one's own, by name."""

_TIMES: Final = ("local", "iso", "utc", "seconds", "milliseconds", "microseconds")
_OWN_KINDS: Final = KINDS | {
    "unzoned": PartKind.UNZONED,
    "maybe_status": PartKind.MAYBE_STATUS,
    "growing_size": PartKind.GROWING_SIZE,
    "padded": PartKind.PADDED,
    "captures": PartKind.CAPTURES,
}
_USUAL_KINDS: Final = {
    "status": PartKind.STATUS,
    "bytes": PartKind.SIZE,
    "request": PartKind.TEXT,
    "path": PartKind.TEXT,
    "referrer": PartKind.TEXT,
    "user_agent": PartKind.TEXT,
    "user": PartKind.TEXT,
}
"""The kinds of parts for which the template names none. All others are words."""

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD: Final = re.compile(r"([A-Za-z][\w.-]{0,63})(?::(\w+))?")


def template(
    text: str,
    escape: str = "default",
    *,
    kinds: dict[str, PartKind] = KINDS,
    has_time: bool = False,
    goes_on: bool = False,
) -> LineFormat:
    """Return the format for a text with fields `{NAME}` or `{NAME:KIND}`. `{{` and `}}` are braces. FormatProblem.

    escape, has_time and goes_on are as in `compiled`.
    """
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    if "\n" in text.strip("\n"):
        raise FormatProblem("it has more than one line, but each line of a log is an event")
    tokens: list[Token] = []
    at, between = 0, ""
    for found in _PIECE.finditer(text):
        between += text[at : found.start()]
        at = found.end()
        if found[0] in ("{{", "}}"):
            between += found[0][0]
            continue
        if found[1] is None:
            raise FormatProblem(
                f"there is a single {found[0]} at character {found.start() + 1}: write it twice"
            )
        if between:
            tokens.append(Token(between))
        tokens.append(_token(found[1], kinds))
        between = ""
    if between + text[at:].rstrip("\r\n"):
        tokens.append(Token(between + text[at:].rstrip("\r\n")))
    if not any(token.kind for token in tokens):
        raise FormatProblem(f"{text!r} has no field: write {{time:iso}}, {{status}} or {{NAME:KIND}}")
    return compiled(tokens, escape, has_time=has_time, goes_on=goes_on)


def _token(text: str, kinds: dict[str, PartKind]) -> Token:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise FormatProblem(f"{{{text}}} is not {{NAME}} or {{NAME:KIND}}")
    name, kind = found[1], found[2]
    if kind is None and name == "time":
        raise FormatProblem(f"{{time}} needs a kind: one of {', '.join(_TIMES)}")
    if kind is not None and kind not in kinds:
        raise FormatProblem(f"{{{text}}}: the kind {kind} is none of {', '.join(KINDS)}")
    return Token(name, name, kinds[kind] if kind is not None else _USUAL_KINDS.get(name, PartKind.WORD))


_HAPROXY: Final = (
    "{client}:{client_port:port} [{time:unzoned}] {frontend} {backend}/{server} {timers} {status:maybe_status} "
    "{bytes:growing_size} {request_cookie} {response_cookie} {termination_state} {connections} {queues} "
    '{captured_headers:captures}"{request}"'
)
_ALB: Final = (
    "{type} {time:iso} {elb} {client}:{client_port:port} {target} {request_processing_time} "
    "{target_processing_time} {response_processing_time} {status:maybe_status} {target_status_code} "
    '{received_bytes:size} {bytes:size} "{request}" "{user_agent}" {ssl_cipher} {ssl_protocol} {target_group_arn} '
    '"{trace_id}" "{virtual_host}" "{chosen_cert_arn}" {matched_rule_priority} {request_creation_time} '
    '"{actions_executed}" "{redirect_url}" "{error_reason}" "{target_port_list}" "{target_status_code_list}" '
    '"{classification}" "{classification_reason}"'
)
_SQUID: Final = (
    "{time:seconds} {elapsed_ms:padded} {client} {cache_result}/{status:maybe_status} {bytes:size} {method} {path:word} "
    "{user:word} {hierarchy} {content_type:text}"
)


TEMPLATE_FORMATS: Final = {
    "haproxy": template(_HAPROXY, "hash", kinds=_OWN_KINDS),
    "alb": template(_ALB, kinds=_OWN_KINDS, goes_on=True),
    "squid": template(_SQUID, "percent", kinds=_OWN_KINDS),
}
"""HAProxy's HTTP log (`option httplog`), access logs of AWS's Application Load Balancers, and Squid's native format."""
