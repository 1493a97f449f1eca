"""Where requests name topics, partitions, groups and transactions, and where responses carry the errors of these.

Derived from the message definitions: an array of a request whose elements have a name, an id or an index is a level, and the
array of the response whose elements have the same is its counterpart. An API without such an array answers as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.ids import ZERO_UUID
from kafkacompat.wire.apis import request_class, response_class
from kafkacompat.wire.codec import message_classes, specification
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.wire.definition import FieldSpec, StructSpec
    from kafkacompat.wire.errors import ErrorCode

TOPIC = "topic"
TOPIC_ID = "topic_id"
PARTITION = "partition"
GROUP = "group"
TRANSACTION = "transactional_id"
COORDINATOR_KEY = "coordinator_key"
RESOURCE = "resource"

Names = dict[str, Any]
"""What one element is called, by kind: a topic also by its id, a partition by its index."""

_KIND_OF_ARRAY = {
    "topics": TOPIC,
    "topic_data": TOPIC,
    "topic_names": TOPIC,
    "topic_partitions": TOPIC,
    "v3_and_below_topics": TOPIC,
    "partitions": PARTITION,
    "partition_data": PARTITION,
    "partition_indexes": PARTITION,
    "groups": GROUP,
    "group_ids": GROUP,
    "groups_names": GROUP,
    "transactions": TRANSACTION,
    "transactional_ids": TRANSACTION,
    "coordinator_keys": COORDINATOR_KEY,
    "resources": RESOURCE,
}
"""Arrays of requests."""
_NAMED_TOPICS = ("topics", "responses", "results", "topic_results", "results_by_topic_v3_and_below")
"""Arrays of responses whose `name` is that of a topic."""
_TOPIC_FIELDS = ("name", "topic", "topic_name")
_PARTITION_FIELDS = ("partition_index", "index", "partition", "partition_id")
_ERROR_FIELDS = ("error_code", "partition_error_code")
_UNKNOWN = {
    "base_offset",
    "committed_leader_epoch",
    "committed_offset",
    "controller_id",
    "end_offset",
    "epoch",
    "high_watermark",
    "last_stable_offset",
    "leader_epoch",
    "leader_id",
    "log_append_time_ms",
    "log_start_offset",
    "low_watermark",
    "node_id",
    "offset",
    "port",
    "start_offset",
    "timestamp",
}
"""Fields that are -1 in an element that has failed, whatever their default is."""
_KINDS_OF_KEYS = {0: GROUP, 1: TRANSACTION}


class Level(NamedTuple):
    array: str
    kind: str
    error_field: str | None
    """Of the response's elements."""


class Levels(NamedTuple):
    """The levels of one version of an API, the outermost first. Both are empty if it answers as a whole."""

    request: tuple[Level, ...]
    response: tuple[Level, ...]

    def error_level(self, kinds: Mapping[str, object]) -> int | None:
        """The place among the response's levels where an error stands that concerns what is named by these kinds. None: only
        the whole response can have it."""
        places = range(len(self.response))
        named = [place for place in places if self.response[place].kind in kinds]
        first = named[-1] if named else len(self.request) - 1
        with_error = [place for place in places if self.response[place].error_field is not None]
        deeper = [place for place in with_error if place >= first]
        return deeper[0] if deeper else with_error[-1] if with_error else None

    def answered(self, kinds: Mapping[str, object]) -> tuple[Level, ...]:
        """The response's levels down to the one with that error."""
        place = self.error_level(kinds)
        return () if place is None else self.response[: place + 1]


@remembered
def levels_of(api_key: int, version: int) -> Levels:
    """ValueError for an API or a version that there is not."""
    asked = specification(request_class(api_key)).root
    told = specification(response_class(api_key)).root
    for request in _chains(asked, version, _request_kind):
        kinds = [each.kind for each in request]
        for response in _chains(told, version, _response_kind):
            if [each.kind for each in response][: len(kinds)] == kinds[: len(response)]:
                return Levels(request, response)
    return Levels((), ())


def _chains(
    struct: StructSpec, version: int, kind_of: Callable[[FieldSpec, int], str | None]
) -> Iterator[tuple[Level, ...]]:
    for field in struct.fields:
        if not field.is_array or version not in field.versions:
            continue
        kind = kind_of(field, version)
        if kind is None:
            continue
        fields = () if field.struct is None else _present(field.struct, version)
        error = next((name for name in _ERROR_FIELDS if name in fields), None)
        level = Level(field.name, kind, error)
        inner = () if field.struct is None else next(_chains(field.struct, version, kind_of), ())
        yield (level, *inner)


def _present(struct: StructSpec, version: int) -> tuple[str, ...]:
    return tuple(field.name for field in struct.fields if version in field.versions)


def _request_kind(field: FieldSpec, version: int) -> str | None:
    return _KIND_OF_ARRAY.get(field.name)


def _response_kind(field: FieldSpec, version: int) -> str | None:
    if field.struct is None:
        return None
    fields = _present(field.struct, version)
    if "resource_name" in fields:
        return RESOURCE
    if "group_id" in fields:
        return GROUP
    if "transactional_id" in fields:
        return TRANSACTION
    if "key" in fields and field.name == "coordinators":
        return COORDINATOR_KEY
    if any(name in fields for name in ("topic", "topic_name", "topic_id")):
        return TOPIC
    if "name" in fields and field.name in _NAMED_TOPICS:
        return TOPIC
    return PARTITION if any(name in fields for name in _PARTITION_FIELDS) else None


def common_names(request: Any) -> Names:
    """What the whole request is about."""
    names: Names = {}
    group = getattr(request, "group_id", None)
    if group:
        names[GROUP] = group
    for field in ("transactional_id", "v3_and_below_transactional_id"):
        transaction = getattr(request, field, None)
        if transaction:
            names[TRANSACTION] = transaction
    key = getattr(request, "key", None)
    if isinstance(key, str) and key and (kind := _KINDS_OF_KEYS.get(getattr(request, "key_type", -1))):
        names[kind] = key
    return names


def _own_names(element: Any, kind: str, whole: Any) -> Names:
    """`whole`: the message, which may say what the element is."""
    if kind == TOPIC:
        if isinstance(element, str):
            return {TOPIC: element}
        name = next((value for each in _TOPIC_FIELDS if (value := getattr(element, each, None))), None)
        topic_id = getattr(element, "topic_id", ZERO_UUID)
        names: Names = {} if name is None else {TOPIC: name}
        return names if topic_id == ZERO_UUID else {**names, TOPIC_ID: topic_id}
    if kind == PARTITION:
        if isinstance(element, int):
            return {PARTITION: element}
        return {
            PARTITION: next(getattr(element, each) for each in _PARTITION_FIELDS if hasattr(element, each))
        }
    if kind == RESOURCE:
        names = {RESOURCE: (element.resource_type, element.resource_name)}
        if element.resource_type == ConfigResourceType.TOPIC:
            names[TOPIC] = element.resource_name
        elif element.resource_type == ConfigResourceType.GROUP:
            names[GROUP] = element.resource_name
        return names
    if kind == COORDINATOR_KEY:
        key = element if isinstance(element, str) else element.key
        of_key = _KINDS_OF_KEYS.get(getattr(whole, "key_type", -1))
        return {COORDINATOR_KEY: key} if of_key is None else {COORDINATOR_KEY: key, of_key: key}
    if isinstance(element, str):
        return {kind: element}
    return {kind: element.group_id if kind == GROUP else element.transactional_id}


def named_in(message: Any, levels: tuple[Level, ...]) -> Iterator[Names]:
    """The names of each innermost element of a request or a response."""
    yield from _named(message, levels, {}, message)


def _named(parent: Any, levels: tuple[Level, ...], outer: Names, whole: Any) -> Iterator[Names]:
    if not levels:
        return
    for element in getattr(parent, levels[0].array) or ():
        names = {**outer, **_own_names(element, levels[0].kind, whole)}
        if len(levels) > 1 and getattr(element, levels[1].array):
            yield from _named(element, levels[1:], names, whole)
        else:
            yield names


def elements_in(message: Any, levels: tuple[Level, ...]) -> Iterator[tuple[Names, Any]]:
    """The elements of the last of these levels with their names."""
    found: list[tuple[Names, Any]] = [({}, message)]
    for level in levels:
        found = [
            ({**names, **_own_names(element, level.kind, message)}, element)
            for names, parent in found
            for element in getattr(parent, level.array) or ()
        ]
    yield from found


def names_nothing(request: Any, levels: tuple[Level, ...]) -> bool:
    """Whether it asks for everything, as a Metadata request without topics does."""
    return bool(levels) and not any(True for _ in named_in(request, levels))


def keep(message: Any, levels: tuple[Level, ...], wanted: Callable[[Names], bool]) -> int:
    """Remove the innermost elements that are not wanted, and what is empty then. Return how many are left."""
    return _keep(message, levels, wanted, {}, message)


def _keep(
    parent: Any, levels: tuple[Level, ...], wanted: Callable[[Names], bool], outer: Names, whole: Any
) -> int:
    kept, left = [], 0
    for element in getattr(parent, levels[0].array) or ():
        names = {**outer, **_own_names(element, levels[0].kind, whole)}
        if len(levels) > 1 and getattr(element, levels[1].array):
            inside = _keep(element, levels[1:], wanted, names, whole)
        else:
            inside = int(wanted(names))
        if inside:
            kept.append(element)
            left += inside
    setattr(parent, levels[0].array, kept)
    return left


def put_errors(
    response: Any,
    api_key: int,
    levels: Levels,
    failed: list[Names],
    code: ErrorCode,
    kinds: Mapping[str, object],
) -> None:
    """Give each of the failed elements this error in place of its answer, at the level that these kinds name."""
    place = levels.error_level(kinds)
    assert place is not None  # the caller has looked
    for names in failed:
        parent = response
        for depth in range(place + 1):
            level = levels.response[depth]
            elements = getattr(parent, level.array)
            found = next(
                (index for index, each in enumerate(elements) if _is_called(each, level.kind, names)), None
            )
            if depth == place:
                failure = _element(api_key, levels, depth, names)
                assert level.error_field is not None
                setattr(failure, level.error_field, int(code))
                if found is None:
                    elements.append(failure)
                else:
                    elements[found] = failure
            elif found is None:
                parent = _element(api_key, levels, depth, names)
                elements.append(parent)
            else:
                parent = elements[found]


def _is_called(element: Any, kind: str, names: Names) -> bool:
    own = _own_names(element, kind, None)
    shared = own.keys() & names.keys()
    if kind == TOPIC and TOPIC_ID in shared:
        return bool(own[TOPIC_ID] == names[TOPIC_ID])
    return bool(shared) and all(own[each] == names[each] for each in shared)


def _element(api_key: int, levels: Levels, depth: int, names: Names) -> Any:
    """A new element of the response with these names, which knows nothing else."""
    classes = message_classes(response_class(api_key))
    struct = specification(response_class(api_key)).root
    for level in levels.response[: depth + 1]:
        inner = next(field.struct for field in struct.fields if field.name == level.array)
        assert inner is not None
        struct = inner
    element = classes[struct.name]()
    slots = element.__slots__
    for name in _UNKNOWN & set(slots):
        if isinstance(getattr(element, name), int):
            setattr(element, name, -1)
    for field in struct.fields:
        if field.kind == "records":
            setattr(element, field.name, b"")
    kind = levels.response[depth].kind
    if kind == TOPIC:
        if TOPIC in names:
            setattr(element, next(each for each in _TOPIC_FIELDS if each in slots), names[TOPIC])
        if TOPIC_ID in names and "topic_id" in slots:
            element.topic_id = names[TOPIC_ID]
    elif kind == PARTITION:
        setattr(element, next(each for each in _PARTITION_FIELDS if each in slots), names[PARTITION])
    elif kind == RESOURCE:
        element.resource_type, element.resource_name = names[RESOURCE]
    elif kind == COORDINATOR_KEY:
        element.key = names[COORDINATOR_KEY]
    elif kind == GROUP:
        element.group_id = names[GROUP]
    else:
        element.transactional_id = names[TRANSACTION]
    return element
