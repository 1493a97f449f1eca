"""Compiles a format of log lines, given as fields and the text between them, to one regular expression.

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
    UTC = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T\t ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?+"
    """Without an offset."""
    UNZONED = r"[0-9]{2}/[A-Za-z]{3}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?+"
    """LOCAL without an offset. It is read as UTC."""


class Escapes(Enum):
    """How the server writes characters that could be taken for the format's own: a quote, a backslash, a control character."""

    BACKSLASH = "backslash"
    r"""`\xHH` (nginx), `\"`, `\\`, `\n`, `\t` (Apache httpd, JSON), `\u00HH` (JSON)."""
    NONE = "none"
    """As they are (escape=none of nginx)."""
    HASH = "hash"
    """`#HH` (HAProxy)."""
    PLUS = "plus"
    """`+` is a blank in the user agent (IIS)."""
    PERCENT = "percent"
    """`%HH` in the user agent (CloudFront)."""


STATUS_TEXT: Final = "a number of 3 digits"
SIZE_TEXT: Final = "a number of at most 12 digits, or -"


class PartKind(Enum):
    """What a field may be, and how a reason says it."""

    WORD = "a word"
    """Never contains blanks, and is never empty unless the server writes nothing for what is absent."""
    TOKEN = "a word without blanks"
    """What a blank or a tab ends, whatever follows."""
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
    UTC = "a time such as 2026-09-21 14:13:20, in UTC"
    UNZONED = "a time such as 21/Sep/2026:14:13:20.250"
    STATUS = STATUS_TEXT
    SIZE = SIZE_TEXT
    PORT = "a number of at most 5 digits"
    MAYBE_STATUS = "a number of 3 digits, - or -1"
    """Without a response there is no status."""
    GROWING_SIZE = "a number of at most 12 digits, with a + if it was still growing"
    PADDED = "a number, with blanks before it"
    CAPTURES = "headers in braces, if any"


_SHAPES: Final = {kind: Time[kind.name].value for kind in PartKind if kind.name in Time.__members__} | {
    # What is too long is not a shorter number with something after it.
    PartKind.STATUS: r"[0-9]{3}(?!\w)",
    PartKind.SIZE: r"(?:[0-9]{1,12}+(?!\w)|-)",
    PartKind.PORT: r"[0-9]{1,5}+(?!\w)",
    PartKind.TOKEN: r"\S++",
    PartKind.MAYBE_STATUS: r"(?:[0-9]{3}|-1|-)(?!\w)",
    PartKind.GROWING_SIZE: r"\+?+[0-9]{1,12}+(?!\w)",
    PartKind.PADDED: r" *+-?[0-9]{1,12}+(?!\w)",
    PartKind.CAPTURES: r'(?:\{[^}"]*+\} )?+(?:\{[^}"]*+\} )?+',
}
_TIMES: Final = {PartKind[time.name]: time for time in Time}
MARKS: Final = "$%<>!,0123456789"
"""What may stand before the name of a field."""

IN_QUOTES: Final = r'(?:[^"\\]++|\\[\s\S])*+'
_WORD_IN_QUOTES: Final = r'(?:[^\s"\\]|\\\S)'
_LIST: Final = r"[^\s,]*+(?:(?:, ?+| : )[^\s,]*+)*+"
# Up to the end of the line, without the blanks there.
_LAST: Final = r"(?:\S++|\s++(?=\S))*+"
# A file that was truncated under a server that does not append has a hole there: the server continues at its offset.
START: Final = r"^\x00*+"
END: Final = r"\s*+$"
_ANYTHING: Final = r"[\s\S]*+$"
FIELDS_AFTER: Final = rf'(?: (?:"{IN_QUOTES}"|[^"\s]\S*+))*+'
"""Whole fields after the end of a known format. A line that was truncated in quotes has none."""
_ESCAPES: Final = {"default": Escapes.BACKSLASH, "json": Escapes.BACKSLASH} | {
    each.value: each for each in Escapes
}


NO_TIME: Final = f"{MALFORMED_LINE}: time: there is no such date or time of day"
MARK: Final = "\u0001"
"""The character between the parts of a line while a job reads it."""

MARKED: Final = f"{MALFORMED_LINE}: it contains the character U+0001"
REQUEST_PATTERN: Final = r"(?s)^([^ ]*+) ([^ ]*|.*(?= [A-Z]{1,9}/[0-9][0-9.]{0,9}$)) ([^ ]*+)$"
"""Method, path and protocol. Some clients do not escape the blanks in a path."""

ESCAPED: Final = (
    ('"', "%22"),
    ("n", "%0A"),
    ("t", "%09"),
    ("r", "%0D"),
    ("b", "%08"),
    ("f", "%0C"),
    ("v", "%0B"),
    ("/", "%2F"),
)
"""The other escapes of Apache httpd and JSON, and the codes of their characters."""


class FormatProblem(ValueError):
    """The text is not a usable format. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`pattern` is a Java regular expression with one group for each of `parts`: EVENT_PARTS, or names of other fields.

    reached: an expression that matches every line, with one group for each field. All groups up to the field at which
    `pattern` fails are not empty. refusals: the reason for a line with that number of groups. time: how the part `time`
    is written. None if there is no such part, because what is around the line has the time.
    """

    pattern: str
    parts: tuple[str, ...]
    time: Time | None
    escapes: Escapes
    reached: str
    refusals: tuple[str, ...]
    # The part that stands after the path and a question mark.
    query: str | None = None
    # The first line of a file that names these fields, without what is not needed to compare it. Lines that begin with
    # `#` are then no events.
    fields_line: str | None = None
    # A status below 1 is none.
    status_may_be_absent: bool = False

    @property
    def reached_and_rest(self) -> str:
        """`reached` with one more group for the text from which the line is refused."""
        return with_rest(self.reached)

    @property
    def extra(self) -> tuple[str, ...]:
        """The parts without their own column."""
        return tuple(part for part in self.parts if part not in EVENT_PARTS)


@dataclass(frozen=True, slots=True)
class Token:
    """Text between fields, or a field: its server's name for it, its part and its kind."""

    text: str
    part: str = ""
    kind: PartKind | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One field: the text before it, and what it may be."""

    before: str
    name: str
    pattern: str
    expected: str
    reached: str
    """The pattern for a line that is refused: nothing after the next field decides where this one ends."""


def compiled(
    tokens: Sequence[Token],
    escape: str,
    *,
    has_time: bool = False,
    goes_on: bool = False,
    query: str | None = None,
    fields_line: str | None = None,
) -> LineFormat:
    """Return the format with these fields. FormatProblem.

    escape: nginx's parameter, or the value of another member of Escapes. has_time: what is around the line has a time,
    so the line needs none. goes_on: other whole fields may follow. query, fields_line: as in LineFormat.
    """
    steps: list[Step] = []
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
            part = token.text.lstrip(MARKS)
        if part in parts:
            part = token.text
        parts.append(part)
        if part == "time":
            times.append(_TIMES[token.kind])
        pattern, reached = field_patterns(
            tokens, number, in_quotes and escape in ("default", "json"), escape not in ("json", "none")
        )
        steps.append(Step(before, token.text, pattern, token.kind.value, reached))
        before = ""
    if len(parts) > FIELDS_MAX:
        raise FormatProblem(f"it has {len(parts)} fields, more than {FIELDS_MAX}")
    for needed in ("status",) if has_time else ("time", "status"):
        if needed not in parts:
            raise FormatProblem(f"it has no {needed}, which every event needs")
    pattern = "".join(f"{re.escape(step.before)}({step.pattern})" for step in steps) + re.escape(before)
    all_reached, refusals = refusals_of(steps)
    if goes_on:
        parts.append(REST)
        pattern += f"({FIELDS_AFTER})"
        refusals = (*refusals[:-1], f"{refusals[-1]} with other whole fields")
    escapes = _ESCAPES[escape]
    time = times[0] if times else None
    status_may_be_absent = any(token.kind is PartKind.MAYBE_STATUS for token in tokens)
    return LineFormat(
        START + pattern + END,
        tuple(parts),
        time,
        escapes,
        all_reached,
        refusals,
        query,
        fields_line,
        status_may_be_absent,
    )


def field_patterns(
    tokens: Sequence[Token], number: int, in_quotes: bool, absent_as_dash: bool
) -> tuple[str, str]:
    """Return an expression for what the field may be, up to the text that follows it, and the one of a refused line
    (Step.reached).

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
        alone = f"(?:{shape})?+" if kind is PartKind.SIZE and not absent_as_dash else shape
    elif not following:
        least = r"(?=\S)" if absent_as_dash and kind is PartKind.LIST else ""
        alone = word if kind is PartKind.WORD else least + _LAST
    elif in_quotes and following[0] == '"':
        alone = IN_QUOTES
    elif kind is PartKind.WORD and following[0] == " ":
        alone = word
    elif kind is PartKind.OTHER and following[0] == " ":
        alone = one + "*+"
    elif kind is PartKind.LIST and not following.strip(" "):
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


def _end_of(tokens: Sequence[Token], number: int, *, is_brief: bool = False) -> str | None:
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
                shape = _SHAPES.get(tokens[at + 1].kind or PartKind.TEXT)
                if shape is None:
                    return end
                if is_brief and tokens[at + 1].kind in (PartKind.LOCAL, PartKind.ISO):
                    return end + shape
                # The value itself may contain what looks like the next field, as `:1` in `[::1]:80`.
                return end + shape + (re.escape(tokens[at + 2].text) if at + 2 < len(tokens) else END)
        elif token.kind in _SHAPES:
            end += f"(?:{_SHAPES[token.kind]})"
        elif token.kind in (PartKind.WORD, PartKind.OTHER):
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
    return end + END


def refusals_of(steps: Sequence[Step], beginning: str = MALFORMED_LINE) -> tuple[str, tuple[str, ...]]:
    """Return `reached` and `refusals` of a format with these fields. `beginning` is that of the reasons."""
    reached = ""
    for step in reversed(steps):
        reached = f"(?:({re.escape(step.before)}{step.reached}){reached})?+"
    reasons = []
    for number, step in enumerate(steps, 1):
        expected = f"{_shown(step.before)} and then {step.expected}" if step.before.strip() else step.expected
        reasons.append(f"{beginning}: field {number} ({cut(step.name)}): expected {expected}")
    reasons.append(f"{beginning}: it does not end after field {len(steps)} ({cut(steps[-1].name)})")
    return f"{START}{reached}{_ANYTHING}", tuple(reasons)


def with_rest(reached: str) -> str:
    """Return an expression as of `refusals_of` with one more group for all that follows."""
    return f"{reached.removesuffix(_ANYTHING)}({_ANYTHING.removesuffix('$')})$"


def _shown(text: str) -> str:
    return f"`{cut(text)}`"


def cut(text: str) -> str:
    """Return the text of a format as it is shown in a reason."""
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."
