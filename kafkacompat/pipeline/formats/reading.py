"""Reads a line in plain Python, as the job's Spark expressions read it: for `pipeline try`, and to say where a line is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import unquote

from kafkacompat.pipeline.formats.envelopes import DOCKER_MALFORMED, DOCKER_PART, TIME, Envelope
from kafkacompat.pipeline.formats.named_fields import (
    ADDRESS_WITH_PORT,
    PAIR,
    PAIRS,
    PAIRS_BEGUN,
    SIZE_SHAPE,
    STATUS_SHAPE,
    TWICE,
    FieldsFormat,
    Syntax,
)
from kafkacompat.pipeline.formats.patterns import (
    ESCAPED,
    MARK,
    MARKED,
    NO_TIME,
    REQUEST_PATTERN,
    Escapes,
    LineFormat,
    Time,
)
from kafkacompat.pipeline.formats.registry import Enveloped, LogFormat
from kafkacompat.pipeline.formats.w3c import (
    BEGINNING,
    DATE_AND_TIME,
    EDGE,
    NO_FIELDS,
    OTHER_FIELDS,
    TRAILING,
    names_of,
    separator_of,
)
from kafkacompat.pipeline.topics import LINE_BYTES_MAX, OVERSIZED

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = re.compile(
    r"(\d{2})/([A-Za-z]{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?: ([+-])(\d{2})(\d{2}))?",
    re.ASCII,
)
_ISO: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[T\t ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?(?:Z|([+-])(\d{2}):?(\d{2}))?",
    re.ASCII,
)
_OFFSET_MAX: Final = timedelta(hours=18)

DECIMAL_DIGITS_MAX: Final = 38
"""A number with more digits, or with an exponent, is a double."""
NUMBER_CHARACTERS_MAX: Final = 1000
"""A line with a longer number is refused."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a line is: an event, with the columns that have a value; nothing, if it only tells about its file; or refused.

    column: the first character, from 1, that does not have the format, if that is known.
    """

    event: Mapping[str, Any] | None = None
    reason: str | None = None
    column: int | None = None


def read_line(form: LogFormat, line: bytes, fields: bytes = b"") -> Reading:
    """Read one line without its newline. Only what needs the time of arrival is not checked. fields: the names that its file
    gives for it, as of `w3c.fields_after`. Only the format w3c needs them."""
    if len(line) > LINE_BYTES_MAX:
        return Reading(reason=OVERSIZED)
    text = line.decode("utf-8", errors="replace")
    body = form.body if isinstance(form, Enveloped) else form
    counted, outer_ms = len(text), None
    outer: list[tuple[str, str]] = []
    if (
        isinstance(body, LineFormat)
        and body.fields_line is not None
        and _is_directive(text, body.fields_line)
    ):
        return Reading()
    if isinstance(body, FieldsFormat) and body.syntax is Syntax.W3C:
        return _of_its_file(body, text, fields)
    for envelope in form.envelopes if isinstance(form, Enveloped) else ():
        if MARK in text:
            return Reading(reason=MARKED)
        opened = _opened(envelope, text, counted)
        if isinstance(opened, Reading):
            return opened
        found, text = opened
        if not envelope.pattern:
            counted = len(text)
        if TIME in found:
            milliseconds = _moment(found[TIME], Time.ISO)
            outer_ms = outer_ms if milliseconds is None else milliseconds
        outer += [(name, found.get(name, "")) for name in envelope.kept]
    if MARK in text:
        return Reading(reason=MARKED)
    if isinstance(body, FieldsFormat):
        return _named(
            body, text, counted, outer_ms, outer, is_enveloped=isinstance(form, Enveloped) and form.has_time
        )
    return _pattern(body, text, counted, outer_ms, outer)


def _is_directive(text: str, fields_line: str) -> bool:
    told = " ".join(text.removeprefix(BEGINNING).split())
    return text.startswith("#") and (not text.startswith(BEGINNING) or told == fields_line)


def _opened(envelope: Envelope, text: str, counted: int) -> tuple[dict[str, str], str] | Reading:
    if envelope.pattern:
        match = re.match(envelope.pattern, text, re.ASCII)
        if match is None:
            return _refused(envelope.reached_and_rest, envelope.refusals, text, counted)
        found = {name: value or "" for name, value in zip(envelope.parts, match.groups(), strict=True)}
        return found, match.groups()[-1]
    tree = _object(text)
    if tree is None:
        return Reading(reason=DOCKER_MALFORMED)
    line = _text_of(tree.get("log"))
    if line is None or not line.endswith("\n"):
        return Reading(reason=DOCKER_PART)
    return {name: _text_of(tree.get(name)) or "" for name in (TIME, *envelope.kept)}, line[:-1]


def _refused(reached_and_rest: str, refusals: Sequence[str], text: str, counted: int) -> Reading:
    match = re.match(reached_and_rest, text, re.ASCII)
    assert match is not None, "the expression matches every text"
    *fields, rest = match.groups()
    return Reading(reason=refusals[sum(map(bool, fields))], column=counted - len(rest) + 1)


def _pattern(
    form: LineFormat, text: str, counted: int, outer_ms: int | None, outer: list[tuple[str, str]]
) -> Reading:
    match = re.match(form.pattern, text, re.ASCII)
    if match is None:
        if form.fields_line is not None and text.startswith(BEGINNING):
            return Reading(reason=OTHER_FIELDS, column=1)
        return _refused(form.reached_and_rest, form.refusals, text, counted)
    raw = {name: value or "" for name, value in zip(form.parts, match.groups(), strict=True)}
    words = _words(raw.get("request"))
    part = {name: _without_escapes(value, form.escapes) for name, value in raw.items()}
    words = [_without_escapes(word, form.escapes) for word in words]
    milliseconds = outer_ms if form.time is None else _moment(part["time"], form.time)
    if form.query is not None and (query := _absent(part.get(form.query))) is not None:
        part["path"] += f"?{query}"
    if "user_agent" in part:
        part["user_agent"] = _user_agent(part["user_agent"], form.escapes)
    own = [(name, part[name].strip(" ")) for name in form.extra if name != form.query]
    names = [name for name, _ in own]
    extra = [*own, *((name, value) for name, value in outer if name not in names)]
    return _event(part, words, milliseconds, extra, is_absent_below_1=form.status_may_be_absent)


def _named(
    form: FieldsFormat,
    text: str,
    counted: int,
    outer_ms: int | None,
    outer: list[tuple[str, str]],
    *,
    is_enveloped: bool,
) -> Reading:
    if form.syntax is Syntax.JSON:
        tree = _object(text)
        if tree is None:
            return Reading(reason=form.malformed)
    else:
        if re.match(PAIRS, text, re.ASCII) is None:
            match = re.match(PAIRS_BEGUN, text, re.ASCII)
            assert match is not None, "the expression matches every text"
            return Reading(reason=form.malformed, column=counted - len(match[1]) + 1)
        pairs = [(key, value or "") for key, value in re.findall(PAIR, text, re.ASCII)]
        tree = {key: _value_of(value) for key, value in pairs}
        if len(tree) < len(pairs):
            return Reading(reason=TWICE)

    return _of_tree(form, tree, outer_ms, outer, is_enveloped=is_enveloped)


def _of_its_file(form: FieldsFormat, text: str, fields: bytes) -> Reading:
    names = names_of(fields)
    text = text.lstrip("\0")
    if text.startswith("#") and (names is not None or not text.startswith(BEGINNING)):
        return Reading()
    if MARK in text:
        return Reading(reason=MARKED)
    if names is None:
        return Reading(reason=NO_FIELDS)
    values = text.rstrip(TRAILING).split(separator_of(fields, names))
    if len(values) != len(names):
        return Reading(reason=form.malformed)
    tree = dict(zip(names, values, strict=True))
    if "date" in tree and "time" in tree:
        tree[DATE_AND_TIME] = f"{tree.pop('date')} {tree.pop('time')}"
    escapes = Escapes.PERCENT if any(name.startswith(EDGE) for name in names) else Escapes.PLUS
    return _of_tree(form, tree, None, [], is_enveloped=False, escapes=escapes)


def _of_tree(
    form: FieldsFormat,
    tree: dict[str, Any],
    outer_ms: int | None,
    outer: list[tuple[str, str]],
    *,
    is_enveloped: bool,
    escapes: Escapes = Escapes.NONE,
) -> Reading:
    def value(steps: Sequence[str | int]) -> str | None:
        return _text_of(_at(tree, steps))

    part: dict[str, str] = {}
    counted = []
    for name, places in zip(form.parts, form.places, strict=True):
        for place in places:
            if (found := value(place.steps)) is not None:
                part[name] = found
                counted.append(str(place.steps[0]))
                break
    if "client" in part:
        part["client"] = re.sub(ADDRESS_WITH_PORT, r"\1\2", part["client"], flags=re.ASCII)
    milliseconds, is_time = outer_ms, is_enveloped and "time" not in part
    for place in reversed(form.places_of("time")):
        assert place.time is not None
        found = value(place.steps)
        if found is not None and re.fullmatch(place.time.value, found, re.ASCII):
            is_time = True
            here = _moment(found, place.time)
            milliseconds = milliseconds if here is None else here
    if "time" in form.parts and not is_time:
        return Reading(reason=form.wanted("time"))
    if re.match(STATUS_SHAPE, part.get("status", "")) is None:
        return Reading(reason=form.wanted("status"))
    if re.match(SIZE_SHAPE, part.get("bytes", "")) is None:
        return Reading(reason=form.wanted("bytes"))
    request = part.get("request", "")
    own = [(name, part.get(name, "").strip(" ")) for name in form.extra if name != form.query]
    left_out = {*(counted if form.syntax is Syntax.W3C else form.used), *(name for name, _ in outer)}
    rest = [(name, _text_of(value) or "") for name, value in tree.items() if name not in left_out]
    names = [name for name, _ in own]
    extra = [*own, *((name, value) for name, value in outer if name not in names), *rest]
    if _absent(part.get("client")) is None:
        part.pop("client", None)
    if form.query is not None and (query := _absent(part.get(form.query))) is not None:
        part["path"] = f"{part.get('path', '')}?{query}"
    if "user_agent" in part:
        part["user_agent"] = _user_agent(part["user_agent"], escapes)
    return _event(
        part, _words("" if MARK in request else request), milliseconds, extra, is_absent_below_1=True
    )


def _event(
    part: Mapping[str, str],
    words: Sequence[str],
    milliseconds: int | None,
    extra: Sequence[tuple[str, str]],
    *,
    is_absent_below_1: bool,
) -> Reading:
    if milliseconds is None:
        return Reading(reason=NO_TIME)
    status = int(part["status"]) if re.fullmatch(r"-?[0-9]+", part["status"]) else None
    if status is not None and status < 1 and is_absent_below_1:
        status = None
    size = part.get("bytes", "")
    user = _absent(part.get("user"))
    method, path, protocol = words if len(words) == 3 else (None, part.get("request"), None)
    kept: dict[str, str] = {}
    for name, value in extra:
        if value not in ("", "-"):
            kept.setdefault(name, value)
    event = {
        "event_time_ms": milliseconds,
        "client": part.get("client"),
        "user": None if user == '""' else user,
        "method": part.get("method", method),
        "path": part.get("path", path),
        "protocol": part.get("protocol", protocol),
        "status": status,
        "bytes": int(size) if re.fullmatch(r"\+?[0-9]+", size) else 0,
        "referrer": _absent(part.get("referrer")),
        "user_agent": _absent(part.get("user_agent")),
        "virtual_host": _absent(part.get("virtual_host")),
        "extra": kept or None,
    }
    return Reading(event={name: value for name, value in event.items() if value is not None})


def _words(request: str | None) -> list[str]:
    match = re.match(REQUEST_PATTERN, request or "", re.ASCII)
    return [] if match is None else list(match.groups())


def _absent(text: str | None) -> str | None:
    return None if text in (None, "", "-") else text


def _without_escapes(text: str, escapes: Escapes) -> str:
    if escapes is Escapes.HASH and "#" in text:
        return unquote(re.sub("#([0-9A-Fa-f]{2})", r"%\1", text.replace("%", "%25")), errors="replace")
    return _unescaped(text) if escapes is Escapes.BACKSLASH else text


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    made = text.replace("%", "%25").replace("\\\\", "%5C")
    made = re.sub(r"\\(?:x|u00)([0-9A-Fa-f]{2})", r"%\1", made)
    for letter, code in ESCAPED:
        made = made.replace("\\" + letter, code)
    return unquote(made, errors="replace")


def _user_agent(text: str, escapes: Escapes) -> str:
    if escapes is Escapes.PLUS:
        return text.replace("+", " ")
    if escapes is Escapes.PERCENT and re.search(r"%(?![0-9A-Fa-f]{2})", text) is None:
        return unquote(text, errors="replace")
    return text


def _value_of(text: str) -> str:
    return _unescaped(text[1:-1]) if text.startswith('"') else text


def _moment(text: str, time: Time) -> int | None:
    """Return the milliseconds since 1970. None if there is no such time."""
    try:
        if time in (Time.LOCAL, Time.UNZONED):
            match = _LOCAL.fullmatch(text)
            if match is None or match[2] not in _MONTHS:
                return None
            day, _, year = match.group(1, 2, 3)
            return _milliseconds((year, _MONTHS.index(match[2]) + 1, day), match)
        if time in (Time.ISO, Time.UTC):
            match = _ISO.fullmatch(text)
            return None if match is None else _milliseconds(match.group(1, 2, 3), match)
        number = Decimal(text)
        if time is Time.SECONDS:
            return int(number.quantize(Decimal("0.000001"), ROUND_HALF_UP) * 1000)
        return int(number) if time is Time.MILLISECONDS else int(number) // 1000
    except (ValueError, OverflowError, InvalidOperation):
        return None


def _milliseconds(date: Sequence[Any], match: re.Match[str]) -> int | None:
    hour, minute, second, fraction, sign, hours, minutes = match.group(4, 5, 6, 7, 8, 9, 10)
    year, month, day = map(int, date)
    moment = datetime(year, month, day, int(hour), int(minute), int(second), tzinfo=UTC)
    offset = timedelta()
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        if offset > _OFFSET_MAX or int(minutes) > 59:
            return None
    whole = (moment - _EPOCH) - (offset if sign != "-" else -offset)
    return int(whole.total_seconds()) * 1000 + int((fraction or "0").ljust(3, "0")[:3])


class _Refused(ValueError):
    """The text is not JSON as the job reads it."""


def _object(text: str) -> dict[str, Any] | None:
    """Return a JSON object with text for each number. None if the text is anything else."""

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _Refused("a name appears twice")
        return found

    def refuse(text: str) -> Any:
        raise _Refused(text)

    try:
        tree = json.loads(
            text, object_pairs_hook=of_pairs, parse_float=_number, parse_int=_number, parse_constant=refuse
        )
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _at(tree: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            if not isinstance(tree, list) or step >= len(tree):
                return None
            tree = tree[step]
        elif isinstance(tree, dict):
            tree = tree.get(step)
        else:
            return None
    return tree


def _text_of(value: Any) -> str | None:
    """Return a value of JSON as text, as Spark casts a variant."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value if isinstance(value, str) else _json(value)
    return text.encode("utf-8", "replace").decode()


class _AsItIs(str):
    """Text that stands without quotes in JSON: a number, or what is between values."""

    __slots__ = ()


def _number(text: str) -> _AsItIs:
    """Return a number as Spark casts it to text: a decimal of 38 digits, or else a double."""
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise _Refused("a number is too long")
    if re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text, re.ASCII):
        exact = Decimal(text)
        _, digits, exponent = exact.as_tuple()
        if len(digits) <= DECIMAL_DIGITS_MAX and -int(exponent) <= DECIMAL_DIGITS_MAX:
            plain = format(exact, "f")
            plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
            return _AsItIs("0" if plain == "-0" else plain)
    return _AsItIs(_double(float(text)))


def _double(value: float) -> str:
    """Return a number as Java does."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(Decimal(repr(value))) if "e" not in repr(value) else format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or 0}E{power}"


def _json(value: Any) -> str:
    """Return a value as JSON, without recursion: it may be as deep as it was parsed."""
    made: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _AsItIs):
            made.append(each)
        elif isinstance(each, dict):
            made.append("{")
            waiting.append(_AsItIs("}"))
            for number, name in reversed(list(enumerate(sorted(each)))):
                before = "," if number else ""
                waiting += [each[name], _AsItIs(f"{before}{json.dumps(name, ensure_ascii=False)}:")]
        elif isinstance(each, list):
            made.append("[")
            waiting.append(_AsItIs("]"))
            for number, item in reversed(list(enumerate(each))):
                waiting += [item, _AsItIs("," if number else "")]
        else:
            made.append(json.dumps(each, ensure_ascii=False))
    return "".join(made)
