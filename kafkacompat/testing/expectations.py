"""What a test expects of a topic or a group, and what it is told when it is not so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafkacompat.testing.values import Committed, Ends, Group, Headers, Record
from kafkacompat.testing.waiting import until

Value = Any
"""bytes, text, None, or anything that JSON can say. In what is expected, JSON may contain what compares itself, such as
unittest.mock.ANY."""
SHOWN_MAX, OTHERS_SHOWN_MAX, BYTES_SHOWN_MAX = 20, 5, 60


class State(Protocol):
    """What is asked of a Kafka."""

    def topics(self) -> dict[str, int]: ...

    def records(self, topic: str, *, partition: int | None = None) -> list[Record]: ...

    def ends(self, topic: str) -> dict[int, Ends]: ...

    def groups(self) -> dict[str, Group]: ...

    def committed(self, group: str) -> dict[tuple[str, int], Committed]: ...


def as_bytes(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def as_headers(headers: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, as_bytes(value)) for name, value in pairs)


def _is_json(wanted: Value) -> bool:
    return not (wanted is None or isinstance(wanted, bytes | bytearray | memoryview | str))


def _as_said(value: Value) -> Value:
    """JSON says less than Python: a tuple is a list there, and the keys of a mapping are text."""
    if isinstance(value, dict):
        return {next(iter(json.loads(json.dumps({name: 0})))): _as_said(each) for name, each in value.items()}
    return [_as_said(each) for each in value] if isinstance(value, list | tuple) else value


def _as_shown(wanted: Value) -> bytes | None:
    return json.dumps(wanted, default=repr).encode() if _is_json(wanted) else as_bytes(wanted)


def is_value(record: bytes | None, wanted: Value) -> bool:
    """Whether a record has this value. What JSON can say is compared as what it means."""
    if not _is_json(wanted):
        return record == as_bytes(wanted)
    try:
        return bool((None if record is None else json.loads(record)) == wanted)
    except ValueError:
        return False


def expect(
    kafka: State,
    topic: str,
    values: Sequence[Value],
    key: bytes | None,
    headers: Headers,
    partition: int | None,
    timeout_s: float,
) -> list[Record]:
    """Raises AssertionError."""
    values = [_as_said(each) if _is_json(each) else each for each in values]
    records: list[Record] = []
    found: list[Record] = []

    def holds() -> bool:
        nonlocal records, found
        try:
            records = kafka.records(topic, partition=partition)
        except LookupError:
            records = []
        found = [each for each in records if _counts(each, key, headers)]
        return _are(found, values)

    def told() -> str:
        return _difference(kafka, topic, values, records, found)

    # More than was expected does not become less.
    until(lambda: holds() or len(found) > len(values), timeout_s, told)
    if not holds():
        raise AssertionError(told())
    return found


def _counts(record: Record, key: bytes | None, headers: Headers) -> bool:
    return (
        record.transaction in (None, "committed")
        and (key is None or record.key == key)
        and all(each in record.headers for each in headers)
    )


def _are(found: Sequence[Record], values: Sequence[Value]) -> bool:
    """Whether the records have these values, those of each partition in this order."""
    if len(found) != len(values):
        return False
    queues: dict[int, list[Record]] = {}
    for record in found:
        queues.setdefault(record.partition, []).append(record)
    return _taken([*queues.values()], list(values))


def _taken(queues: list[list[Record]], values: list[Value]) -> bool:
    """Whether the queues can be emptied in the order of the values. Equal values at the heads of several are tried in turn."""
    seen: set[tuple[int, ...]] = set()
    waiting = [tuple(0 for _ in queues)]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        done = sum(at)
        if done == len(values):
            return True
        for number, queue in enumerate(queues):
            if at[number] < len(queue) and is_value(queue[at[number]].value, values[done]):
                waiting.append((*at[:number], at[number] + 1, *at[number + 1 :]))
    return False


def _difference(
    kafka: State, topic: str, values: Sequence[Value], records: Sequence[Record], found: Sequence[Record]
) -> str:
    topics = kafka.topics()
    if topic not in topics:
        return f"topic {topic} does not exist; those that do: {', '.join(sorted(topics)) or 'none'}"
    lines = [f"topic {topic} has not exactly the {len(values)} expected records, but {len(found)}"]
    missing, unexpected = _left(values, [each.value for each in found])
    for what, some in (("missing", missing), ("unexpected", unexpected)):
        lines += [
            f"  {what}: {_shown(value)}{f' ({count} times)' if count > 1 else ''}"
            for value, count in list(some.items())[:SHOWN_MAX]
        ]
    if not missing and not unexpected:
        lines.append("  the values are these, in another order:")
        lines += [f"  {_told(each)}" for each in found[:SHOWN_MAX]]
    others = [each for each in records if each not in found]
    if others:
        lines.append(f"  {len(others)} records do not count, for their key, headers or transaction:")
        lines += [f"  {_told(each)}" for each in others[:OTHERS_SHOWN_MAX]]
    elsewhere = _elsewhere(kafka, topic, values, missing)
    if elsewhere:
        lines.append(f"  what is missing is in {', '.join(elsewhere)}")
    return "\n".join(lines)


def _left(
    values: Sequence[Value], there: Sequence[bytes | None]
) -> tuple[Counter[bytes | None], Counter[bytes | None]]:
    """What remains of the values, and of what is there, when those that are equal are taken from both."""
    exact = Counter(as_bytes(each) for each in values if not _is_json(each))
    left = Counter(there)
    missing, left = exact - left, left - exact
    by_meaning: dict[Any, list[bytes | None]] = {}
    for record in left.elements():
        by_meaning.setdefault(_meaning(record), []).append(record)
    others: list[Value] = []
    for value in filter(_is_json, values):
        same = by_meaning.get(_meaning(_as_shown(value)))
        if same:
            left[same.pop()] -= 1
        else:
            others.append(value)
    # What compares itself is equal to several, and gets what no other value is.
    for value in others:
        same = [each for each in +left if is_value(each, value)]
        if same:
            left[same.pop()] -= 1
        else:
            missing[_as_shown(value)] += 1
    return missing, +left


def _meaning(record: bytes | None) -> Any:
    """Equal for records that say the same in JSON."""
    try:
        return _hashable(json.loads(record or b""))
    except ValueError:
        return record


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _elsewhere(
    kafka: State, topic: str, values: Sequence[Value], missing: Counter[bytes | None]
) -> list[str]:
    """Other topics with a value that is missing."""
    if not missing:
        return []
    meanings = {_meaning(value) for value in map(_as_shown, filter(_is_json, values)) if value in missing}
    return [
        name
        for name in sorted(kafka.topics())
        if name != topic
        and any(
            each.value in missing or (meanings and _meaning(each.value) in meanings)
            for each in kafka.records(name)
        )
    ]


def _told(record: Record) -> str:
    parts = [f"{record.topic}-{record.partition} at {record.offset}: {_shown(record.value)}"]
    if record.key is not None:
        parts.append(f"key {_shown(record.key)}")
    parts += [f"header {name}={_shown(value)}" for name, value in record.headers]
    if record.transaction is not None:
        parts.append(f"transaction {record.transaction}")
    return ", ".join(parts)


def _shown(value: bytes | None) -> str:
    if value is None:
        return "null"
    return repr(value[:BYTES_SHOWN_MAX]) + ("..." if len(value) > BYTES_SHOWN_MAX else "")


def told_group(kafka: State, group: str) -> str:
    """How a group stands."""
    found = kafka.groups().get(group)
    if found is None:
        return f"group {group} does not exist; those that do: {', '.join(sorted(kafka.groups())) or 'none'}"
    lines = [f"group {group} is {found.state} with {len(found.members)} members"]
    for member in found.members:
        parts = [f"{name} {list(indexes)}" for name, indexes in member.partitions.items()]
        lines.append(f"  {member.member_id}: {', '.join(parts) or 'nothing'}")
    committed = kafka.committed(group)
    for (name, index), each in sorted(committed.items()):
        end = kafka.ends(name).get(index)
        lines.append(f"  {name}-{index}: committed {each.offset}, end {end and end.last_stable}")
    return "\n".join(lines)
