"""Formats whose fields have names: JSON objects, by paths, logfmt (key=value), by keys, and the W3C format, whose names come
with the record."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from kafkacompat.pipeline.formats.patterns import (
    EVENT_PARTS,
    FIELDS_MAX,
    FORMAT_CHARACTERS_MAX,
    MALFORMED_LINE,
    SIZE_TEXT,
    STATUS_TEXT,
    FormatProblem,
    PartKind,
    Time,
    cut,
)

STEPS_MAX: Final = 8
"""Maximum number of names and indexes in a path."""
PLACES_MAX: Final = 8
"""Maximum number of places where the value of one part may be."""


STATUS_SHAPE: Final = r"^(?:[0-9]{3}|0|-1|-)$"
SIZE_SHAPE: Final = r"^(?:[0-9]{1,12}|-|)$"
ADDRESS_WITH_PORT: Final = r"^(?:\[([^\]]*+)\]|([^:]*+)):[0-9]{1,5}$"
"""An address with a port, in brackets if it has colons. Without the port it is the two groups."""


class Syntax(Enum):
    JSON = "json"
    LOGFMT = "logfmt"
    W3C = "w3c"
    """Values alone. What goes with the line has the names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value may be: names of fields and indexes of arrays, from the outside. `text` is how the format has it.

    time: how a time is written there.
    """

    steps: tuple[str | int, ...]
    text: str
    time: Time | None = None

    @property
    def json_path(self) -> str:
        """The path from `$`, as Spark has it."""
        return "".join(f"[{step}]" if isinstance(step, int) else f'["{step}"]' for step in self.steps)


@dataclass(frozen=True, slots=True)
class FieldsFormat:
    """`parts` are EVENT_PARTS, or names of other fields. Of the `places` of a part the first one that has a value counts."""

    syntax: Syntax
    parts: tuple[str, ...]
    places: tuple[tuple[Place, ...], ...]
    # The part that stands after the path and a question mark.
    query: str | None = None

    @property
    def extra(self) -> tuple[str, ...]:
        """The parts without their own column."""
        return tuple(part for part in self.parts if part not in EVENT_PARTS)

    @property
    def used(self) -> tuple[str, ...]:
        """The names of fields of the line that are not kept in `extra` by themselves: a place begins with them, or a
        part without a column has their name."""
        first = [str(place.steps[0]) for places in self.places for place in places]
        return tuple(dict.fromkeys([*first, *self.extra]))

    def places_of(self, part: str) -> tuple[Place, ...]:
        """The places of a part. None if the format lacks it."""
        return self.places[self.parts.index(part)] if part in self.parts else ()

    @property
    def malformed(self) -> str:
        """The reason for a line without the syntax."""
        if self.syntax is Syntax.JSON:
            return f"{MALFORMED_LINE}: it is not one JSON object"
        if self.syntax is Syntax.W3C:
            return f"{MALFORMED_LINE}: expected as many values as its #Fields line has names"
        return f'{MALFORMED_LINE}: expected KEY=VALUE or KEY="VALUE", separated by blanks'

    def wanted(self, part: str) -> str:
        """The reason for a line in which a part is absent, or something else."""
        places = self.places_of(part)
        where = "|".join(place.text for place in places)
        times = [PartKind[place.time.name].value for place in places if place.time is not None]
        expected = {"status": STATUS_TEXT, "bytes": SIZE_TEXT}.get(part) or " or ".join(dict.fromkeys(times))
        return f"{MALFORMED_LINE}: field {part} ({cut(where)}): expected {expected}"


TWICE: Final = f"{MALFORMED_LINE}: a key appears in it twice"
"""The reason for a line of logfmt with two values for a key. JSON like that is no JSON object."""

KEY: Final = r'[^\s="]++'
PAIR: Final = rf'({KEY})(?:=("(?:[^"\\]++|\\[\s\S])*+"|[^\s"]*+))?+(?=\s|$)'
"""A key and its value, which may be in quotes, or absent."""
PAIRS: Final = rf"^[\x00\s]*+(?:{PAIR.replace('(' + KEY, '(?:' + KEY).replace('=(', '=(?:')}\s*+)++$"
PAIRS_BEGUN: Final = PAIRS.removesuffix("++$") + r"*+([\s\S]*+)$"
"""With a group for the text from which a line is refused."""

_TIMES: Final = {
    "iso": Time.ISO,
    "utc": Time.UTC,
    "local": Time.LOCAL,
    "seconds": Time.SECONDS,
    "milliseconds": Time.MILLISECONDS,
    "microseconds": Time.MICROSECONDS,
}
_PART: Final = re.compile(r"([A-Za-z][\w.-]{0,63})=(\S(?:[^\s\"]|\"[^\"]*\")*)")
_STEP: Final = re.compile(r"(?:^|\.)(?:\"([^\"?\\]+)\"|([^\s.\[\]\"|:?'\\=]+))|\[([0-9]{1,4})\]")


def of_fields(syntax: Syntax, text: str, *, has_time: bool = False) -> FieldsFormat:
    """Return the format for a text such as `time=ts:seconds status=status client=request.client_ip|request.remote_ip`.
    FormatProblem. has_time is as in `compiled`."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatProblem(f"it has {len(text)} characters, more than {FORMAT_CHARACTERS_MAX}")
    parts: dict[str, tuple[Place, ...]] = {}
    at = 0
    for found in re.finditer(r"\s*(?:(\S(?:[^\s\"]|\"[^\"]*\")*)|\Z)", text):
        at = found.end()
        if not found[1]:
            continue
        part = _PART.fullmatch(found[1])
        if part is None:
            raise FormatProblem(f"{found[1]!r} is not PART={'PATH' if syntax is Syntax.JSON else 'KEY'}")
        if part[1] in parts:
            raise FormatProblem(f"{part[1]} appears in it twice")
        parts[part[1]] = _places(syntax, part[1], part[2])
    if at < len(text):
        raise FormatProblem(f"{text[at:]!r} is not PART={'PATH' if syntax is Syntax.JSON else 'KEY'}")
    if len(parts) > FIELDS_MAX:
        raise FormatProblem(f"it has {len(parts)} fields, more than {FIELDS_MAX}")
    for needed in ("status",) if has_time else ("time", "status"):
        if needed not in parts:
            raise FormatProblem(f"it has no {needed}, which every event needs")
    return FieldsFormat(syntax, tuple(parts), tuple(parts.values()))


def _places(syntax: Syntax, part: str, text: str) -> tuple[Place, ...]:
    given = re.findall(r"(?:[^|\"]|\"[^\"]*\")+", text)
    if len(given) > PLACES_MAX:
        raise FormatProblem(f"{part} has {len(given)} places, more than {PLACES_MAX}")
    return tuple(_place(syntax, part, each) for each in given)


def _place(syntax: Syntax, part: str, text: str) -> Place:
    path, time = text, None
    if part == "time":
        path, mark, kind = text.rpartition(":")
        if not mark or kind not in _TIMES:
            raise FormatProblem(f"time={text} needs a kind at its end: one of :{', :'.join(_TIMES)}")
        time = _TIMES[kind]
    if syntax is Syntax.LOGFMT:
        if re.fullmatch(KEY, path) is None:
            raise FormatProblem(f"{part}={text}: {path!r} is no key")
        return Place((path,), path, time)
    try:
        place = json_place(path)
    except FormatProblem as problem:
        raise FormatProblem(f"{part}={text}: {problem}") from None
    return replace(place, time=time)


def json_place(path: str) -> Place:
    """Return the place for a path such as `request.headers.User-Agent[0]`. FormatProblem."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (found[3] is not None and not steps):
            raise FormatProblem(f'it is no path at character {at + 1}: write a.b[0] or a."b c"')
        steps.append(int(found[3]) if found[3] is not None else found[1] or found[2])
        at = found.end()
    if not 0 < len(steps) <= STEPS_MAX:
        raise FormatProblem(f"the path has {len(steps)} steps, more than {STEPS_MAX} or none")
    return Place(tuple(steps), path)


_COMMON_NAMES: Final = (
    "client=remote_addr|client_ip|remote_ip|client|remote|ip user=remote_user|user|username request=request "
    "method=request_method|method path=request_uri|uri|path|url protocol=server_protocol|protocol|proto "
    "status=status|status_code|code bytes=body_bytes_sent|bytes_sent|bytes|size referrer=http_referer|referer|referrer "
    "user_agent=http_user_agent|user_agent|agent|ua virtual_host=host|http_host|server_name"
)
_TIME_NAMES: Final = (
    "time=time_iso8601:iso|time:iso|ts:iso|t:iso|timestamp:iso|ts:seconds|time_local:local|msec:seconds "
)

FIELDS_FORMATS: Final = {
    "nginx-json": of_fields(Syntax.JSON, _TIME_NAMES + _COMMON_NAMES),
    "caddy": of_fields(
        Syntax.JSON,
        "time=ts:seconds|ts:iso|ts:local client=request.client_ip|request.remote_ip user=user_id "
        "method=request.method path=request.uri protocol=request.proto status=status bytes=size "
        "referrer=request.headers.Referer[0] user_agent=request.headers.User-Agent[0] virtual_host=request.host",
    ),
    "traefik": of_fields(
        Syntax.JSON,
        "time=StartUTC:iso|time:iso client=ClientHost user=ClientUsername method=RequestMethod path=RequestPath "
        "protocol=RequestProtocol status=DownstreamStatus bytes=DownstreamContentSize "
        "referrer=request_Referer user_agent=request_User-Agent virtual_host=RequestHost",
    ),
    "envoy": of_fields(
        Syntax.JSON,
        "time=start_time:iso client=downstream_remote_address method=method "
        "path=x_envoy_original_path|path protocol=protocol status=response_code bytes=bytes_sent "
        "referrer=referer user_agent=user_agent virtual_host=authority",
    ),
    "logfmt": of_fields(Syntax.LOGFMT, _TIME_NAMES + _COMMON_NAMES),
}
"""nginx-json and logfmt have the names that nginx's variables and most programs give. The others are as their servers
write them: Caddy's and Traefik's JSON access logs, and Envoy's with the names of Istio's text."""
