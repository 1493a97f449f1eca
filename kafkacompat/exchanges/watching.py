"""Watchers of a node: what each wants to see, what waits for it, and the line that it gets of an exchange.

Only while there is a watcher does anything stand before the node's dispatchers. What waits for a watcher is bounded in
entries and in bytes: one that is slow loses the oldest, is told how many, and holds up nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.levels import TOPIC, TOPIC_ID, levels_of, named_in
from kafkacompat.exchanges.message_json import bytes_as_json, message_as_json
from kafkacompat.exchanges.reasons import State
from kafkacompat.exchanges.recorded import APIS_BY_NAME, SLICE_BYTES_MAX, Recorded, payload, recorded_of
from kafkacompat.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from kafkacompat.records.batch import BatchCorrupt, iterate_batches

WATCHERS_MAX = 4
WAITING_MAX = 1_000
WAITING_BYTES_MAX = 4 << 20
"""Of one watcher."""
ENTRY_BYTES = 500
"""Of an entry beside its messages."""
RECORDS_SHOWN = 10
"""Of one field of records."""
RECORD_BYTES_SHOWN = 1_000
"""Of a key or a value."""


class BadSelection(ValueError):
    """The text says which parameter is wrong."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a watcher wants to see. None: all."""

    apis: frozenset[int] | None = None
    client_id: str | None = None
    topic: str | None = None
    principal: str | None = None
    errors: bool = False
    """Only what was refused or not answered."""
    values: bool = False
    """Keys and values of records too."""

    def may_show(self, exchange: Exchange) -> bool:
        """By what is known without decoding."""
        return (
            (self.apis is None or exchange.api_key in self.apis)
            and self.client_id in (None, exchange.client_id)
            and self.principal in (None, exchange.principal)
        )

    def shows(self, recorded: Recorded, state: State) -> bool:
        if self.errors and not (recorded.errors or recorded.closed):
            return False
        return self.topic is None or self.topic in _topics_of(recorded, state)


def selection_of(parameters: Mapping[str, list[str]]) -> Selection:
    """By the parameters of a query. Raises BadSelection."""
    unknown = parameters.keys() - {"api", "client_id", "topic", "principal", "errors", "values"}
    if unknown:
        raise BadSelection(f"there is no parameter {sorted(unknown)[0]!r}")
    apis = parameters.get("api")
    for name in apis or ():
        if name not in APIS_BY_NAME:
            raise BadSelection(f"there is no API {name!r}")

    def one(name: str) -> str | None:
        given = parameters.get(name, [])
        if len(given) > 1:
            raise BadSelection(f"{name} is given twice")
        return given[0] if given else None

    def is_set(name: str) -> bool:
        given = one(name)
        if given not in (None, "true", "false"):
            raise BadSelection(f"{name} is true or false, not {given!r}")
        return given == "true"

    return Selection(
        None if apis is None else frozenset(APIS_BY_NAME[name] for name in apis),
        one("client_id"),
        one("topic"),
        one("principal"),
        is_set("errors"),
        is_set("values"),
    )


def _topics_of(recorded: Recorded, state: State) -> set[str]:
    """Those that the request names, or the response."""
    levels = levels_of(APIS_BY_NAME[recorded.api], recorded.version)
    names: set[str] = set()
    for message, wanted in ((recorded.request, levels.request), (recorded.response, levels.response)):
        for each in () if message is None else named_in(message, wanted):
            found = each.get(TOPIC)
            if not found and TOPIC_ID in each:
                is_metadata = each[TOPIC_ID] == METADATA_TOPIC_ID
                found = METADATA_TOPIC if is_metadata else state.name_of(each[TOPIC_ID])
            if found:
                names.add(found)
    return names


class Entry(NamedTuple):
    exchange: Exchange
    reply: bytes | None
    """Its payload."""
    size_bytes: int


class Waiting:
    """What waits for one watcher."""

    def __init__(self, selection: Selection, wake: Callable[[], None]) -> None:
        """`wake` is called when something waits where nothing did."""
        self.selection = selection
        self._wake = wake
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._lost = 0

    def add(self, exchange: Exchange) -> None:
        """Keep what the exchange has now: its reply changes when it is sent."""
        reply = payload(exchange, SLICE_BYTES_MAX if self.selection.values else 0)
        size = len(exchange.body or b"") + len(reply or b"") + ENTRY_BYTES
        self._entries.append(Entry(exchange, reply, size))
        self._bytes += size
        while len(self._entries) > WAITING_MAX or self._bytes > WAITING_BYTES_MAX:
            self._bytes -= self._entries.popleft().size_bytes
            self._lost += 1
        if len(self._entries) == 1:
            self._wake()

    def __len__(self) -> int:
        return len(self._entries)

    def take(self) -> Entry:
        """The oldest. IndexError."""
        entry = self._entries.popleft()
        self._bytes -= entry.size_bytes
        return entry

    def take_lost(self) -> int:
        """How many were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost


class Watchers:
    """Of a node."""

    def __init__(self, look: Callable[[bool], None], report: Callable[[str, Exception], None]) -> None:
        """`look` is called with True before the first watcher comes, and with False when the last one is gone. `report` is told
        of failures: no request may fail because somebody looks at it."""
        self._look = look
        self._report = report
        self._waiting: tuple[Waiting, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= WATCHERS_MAX

    def add(self, waiting: Waiting) -> None:
        if not self._waiting:
            self._look(True)
        self._waiting = (*self._waiting, waiting)

    def remove(self, waiting: Waiting) -> None:
        self._waiting = tuple(each for each in self._waiting if each is not waiting)
        if not self._waiting:
            self._look(False)

    def tell(self, exchange: Exchange) -> None:
        for waiting in self._waiting:
            try:
                if waiting.selection.may_show(exchange):
                    waiting.add(exchange)
            except Exception as error:
                self._report("watching a request", error)
        exchange.reply = None  # it may hold files


def shown(entry: Entry, selection: Selection, state: State) -> dict[str, Any] | None:
    """What a watcher is told of an exchange. None if it is not one that it wants."""
    recorded = recorded_of(entry.exchange, entry.reply, state)
    if not selection.shows(recorded, state):
        return None
    topics = _topics_of(recorded, state)
    # Records of the metadata have the keys of SCRAM users and the values of secret settings.
    has_values = selection.values and METADATA_TOPIC not in topics
    records = records_as_json if has_values else counted_records
    return {
        "at_ms": recorded.at_ms,
        "node": recorded.node,
        "listener": recorded.listener,
        "client": recorded.client,
        "connection_id": recorded.connection_id,
        "client_id": recorded.client_id,
        "principal": recorded.principal,
        "api": recorded.api,
        "version": recorded.version,
        "errors": list(recorded.errors),
        "reasons": list(recorded.reasons),
        "closed": recorded.closed,
        "topics": sorted(topics),
        "request": message_as_json(recorded.request, records),
        "response": message_as_json(recorded.response, records),
    }


def counted_records(data: bytes) -> dict[str, Any]:
    """How many bytes and records there are, and nothing of what they say. A slice of a file that was not read is not counted."""
    try:
        counts = [each.record_count for each in iterate_batches(data)]
    except BatchCorrupt:
        counts = [-1]
    counted = {} if any(count < 0 for count in counts) else {"records": sum(counts)}
    return {"bytes": len(data), **counted}


def records_as_json(data: bytes) -> dict[str, Any]:
    """The same with the first records. What is compressed stays so: to unpack it could take long."""
    from kafkacompat.records.read import records_of

    told: list[dict[str, Any]] = []
    try:
        for header in iterate_batches(data):
            if header.is_control or header.codec:
                continue
            batch = data[header.position : header.position + header.size]
            for offset, record in records_of(batch, header):
                if len(told) == RECORDS_SHOWN:
                    break
                told.append(
                    {"offset": offset, "key": _beginning(record.key), "value": _beginning(record.value)}
                )
    except (BatchCorrupt, ValueError):
        pass  # what is no record has none
    return {**counted_records(data), "first": told}


def _beginning(data: bytes | None) -> Any:
    if data is None or len(data) <= RECORD_BYTES_SHOWN:
        return None if data is None else bytes_as_json(bytes(data))
    return {"beginning": bytes_as_json(bytes(data[:RECORD_BYTES_SHOWN])), "bytes": len(data)}
