"""The arguments of the control API: what they are, how they are checked, and what a caller is told who gives others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkacompat.dataclass import dataclass

Values = Mapping[str, Any]
Schema = Mapping[str, Any]
WAIT_S, WAIT_MAX_S = 30.0, 600.0
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


class Problem(Exception):
    """What a caller is told in place of an answer."""

    def __init__(
        self, status: int, message: str, *, error: str | None = None, argument: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        """Kafka's name of the error, where there is one."""
        self.argument = argument
        """Which one is wrong."""

    def as_json(self) -> dict[str, Any]:
        return {"message": str(self), "error": self.error, "argument": self.argument}


# Arguments.


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    text: str
    schema: Schema
    is_required: bool = False
    takes_null: bool = False
    """null says something. For the others it says as much as their absence."""


def string(name: str, text: str, *, required: bool = False, among: Sequence[str] | None = None) -> Argument:
    schema = {"type": "string"} if among is None else {"type": "string", "enum": [*among]}
    return Argument(name, text, schema, required)


def whole(
    name: str,
    text: str,
    least: int = 0,
    most: int = INT32_MAX,
    *,
    required: bool = False,
    takes_null: bool = False,
) -> Argument:
    return Argument(name, text, {"type": "integer", "minimum": least, "maximum": most}, required, takes_null)


def real(name: str, text: str, least: float, most: float) -> Argument:
    return Argument(name, text, {"type": "number", "minimum": least, "maximum": most})


def flag(name: str, text: str) -> Argument:
    return Argument(name, text, {"type": "boolean"})


def many(name: str, text: str, items: Schema, *, required: bool = False) -> Argument:
    return Argument(name, text, {"type": "array", "items": items}, required)


def mapping(name: str, text: str, values: Schema, *, required: bool = False) -> Argument:
    return Argument(name, text, {"type": "object", "additionalProperties": values}, required)


def anything(name: str, text: str) -> Argument:
    return Argument(name, text, {})


TIMEOUT = real("timeout_s", f"How long to wait, in real time. {WAIT_S:g} by default.", 0, WAIT_MAX_S)
NODE_ID: Schema = {"type": "integer", "minimum": 1, "maximum": INT32_MAX}
TO_NODE = Argument("to", "The id of the node.", NODE_ID, True)
PARTITION = whole("partition", "The partition.")
BYTES_TEXT = 'Text, null, {"base64": "..."} for bytes, or any other JSON, which is written as such.'
HEADERS = many(
    "headers",
    "Of each record, in this order.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "value": {}},
        "required": ["name"],
        "additionalProperties": False,
    },
)
VALUES = many("values", f"The values of the records. {BYTES_TEXT}", {}, required=True)
KEY = anything("key", f"The key of all records. {BYTES_TEXT}")
JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def checked(value: Any, schema: Schema, place: str) -> Any:
    """The value, if it is what the schema says. Raises Problem that names the place."""
    kind = schema.get("type")
    if kind is None:
        return value
    is_kind = isinstance(value, JSON_TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")
    if not is_kind:
        raise Problem(400, f"{place} is not {_with_article(kind)}", argument=place)
    if "enum" in schema and value not in schema["enum"]:
        few = ": " + ", ".join(schema["enum"]) if len(schema["enum"]) < 20 else ""
        raise Problem(400, f"{place} has no value {value!r}{few}", argument=place)
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise Problem(
            400, f"{place} is between {schema['minimum']:g} and {schema['maximum']:g}", argument=place
        )
    if kind == "array":
        for at, each in enumerate(value):
            checked(each, schema["items"], f"{place}[{at}]")
    elif kind == "object":
        known = schema.get("properties", {})
        for name, each in value.items():
            if name not in known and schema["additionalProperties"] is False:
                raise Problem(400, f"{place} has no {name!r}", argument=place)
            checked(each, known.get(name) or schema["additionalProperties"] or {}, f"{place}.{name}")
        for name in schema.get("required", ()):
            if name not in value:
                raise Problem(400, f"{place} lacks {name!r}", argument=place)
    return value


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def of_query(text: str, argument: Argument) -> Any:
    """A query has only text."""
    kind = str(argument.schema.get("type"))
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        raise Problem(400, f"{argument.name} is not {_with_article(kind)}", argument=argument.name) from None
    return text == "true" if kind == "boolean" and text in ("true", "false") else text


def arguments_of(known: Sequence[Argument], given: Values) -> dict[str, Any]:
    """Those that were given, checked. Raises Problem."""
    names = {each.name for each in known}
    for name in given:
        if name not in names:
            told = ", ".join(each.name for each in known) or "none"
            raise Problem(400, f"there is no argument {name!r}; those that there are: {told}", argument=name)
    found: dict[str, Any] = {}
    for each in known:
        value = given.get(each.name)
        if value is not None:
            found[each.name] = checked(value, each.schema, each.name)
        elif each.name in given and each.takes_null:
            found[each.name] = None
        elif each.is_required:
            raise Problem(400, f"{each.name} is missing", argument=each.name)
    return found
