"""The formats of log lines by name, and formats as text. The jobs and commands get formats only from here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kafkacompat.pipeline.formats import named_fields, templates, w3c
from kafkacompat.pipeline.formats.envelopes import ENVELOPES, ENVELOPES_MAX, Envelope
from kafkacompat.pipeline.formats.named_fields import FIELDS_FORMATS, FieldsFormat, Syntax
from kafkacompat.pipeline.formats.patterns import FormatProblem, LineFormat
from kafkacompat.pipeline.formats.server_formats import SERVER_FORMATS, of_configuration
from kafkacompat.pipeline.formats.templates import TEMPLATE_FORMATS, template
from kafkacompat.pipeline.formats.w3c import W3C_FORMATS

Body = LineFormat | FieldsFormat


@dataclass(frozen=True, slots=True)
class Enveloped:
    """Lines of a format in envelopes, the outermost first."""

    envelopes: tuple[Envelope, ...]
    body: Body

    @property
    def has_time(self) -> bool:
        """Whether an envelope has a time."""
        return any(envelope.has_time for envelope in self.envelopes)


LogFormat = LineFormat | FieldsFormat | Enveloped

LOG_FORMATS: Final[dict[str, Body]] = {
    **SERVER_FORMATS,
    **FIELDS_FORMATS,
    **TEMPLATE_FORMATS,
    **W3C_FORMATS,
    w3c.NAME: w3c.OWN_FIELDS,
}
"""The formats that have a name."""

_ENVELOPE: Final = re.compile(rf"\s*({'|'.join(ENVELOPES)})\+")


def log_format(text: str) -> LogFormat:
    """Return the format for a name of LOG_FORMATS or a text: one of nginx or Apache httpd as in their configuration files,
    `json PART=PATH ...`, `logfmt PART=KEY ...`, `pattern:TEXT with {FIELDS}`, or the `#Fields:` line of a file. Names of
    ENVELOPES may stand before it, with a `+` after each. FormatProblem."""
    envelopes: list[Envelope] = []
    rest = text
    while (found := _ENVELOPE.match(rest)) is not None:
        envelopes.append(ENVELOPES[found[1]])
        rest = rest[found.end() :]
    if len(envelopes) > ENVELOPES_MAX:
        raise FormatProblem(f"it has {len(envelopes)} envelopes, more than {ENVELOPES_MAX}")
    body = _body(rest, has_time=any(envelope.has_time for envelope in envelopes))
    if envelopes and body is w3c.OWN_FIELDS:
        raise FormatProblem(
            f"{w3c.NAME} is for lines as they stand in their file, whose #Fields line is at its beginning"
        )
    return Enveloped(tuple(envelopes), body) if envelopes else body


def _body(text: str, *, has_time: bool) -> Body:
    if text in LOG_FORMATS:
        return LOG_FORMATS[text]
    if text.startswith(templates.BEGINNING):
        return template(text.removeprefix(templates.BEGINNING), has_time=has_time)
    if text.startswith(w3c.BEGINNING):
        return w3c.of_fields(text, has_time=has_time)
    syntax = re.match(r"(json|logfmt)\s+(?=\S)", text)
    if syntax is not None:
        return named_fields.of_fields(Syntax(syntax[1]), text[syntax.end() :], has_time=has_time)
    if text.strip() in ENVELOPES:
        raise FormatProblem(f"{text.strip()} is around lines of a format: write {text.strip()}+FORMAT")
    return of_configuration(text, tuple(LOG_FORMATS), has_time=has_time)
