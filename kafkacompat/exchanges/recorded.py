"""A request and what became of it, typed, without secrets, and with the reason of each refusal.

Messages are kept as bytes, and decoded when somebody looks. Only the errors in a reply are looked for at once, because their
reason is in the state of that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kafkacompat.config.keys import broker_keys
from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.exchange import BODY_BYTES_MAX, Exchange
from kafkacompat.exchanges.levels import (
    COORDINATOR_KEY,
    GROUP,
    TOPIC,
    TOPIC_ID,
    TRANSACTION,
    Names,
    common_names,
    elements_in,
    levels_of,
)
from kafkacompat.exchanges.reasons import Batch, Refusal, State, reason
from kafkacompat.records.batch import HEADER_SIZE, BatchCorrupt, parse_header
from kafkacompat.wire.apis import APIS, request_class, response_class
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode, WireError, code_of
from kafkacompat.wire.headers import parse_response_header

SLICE_BYTES_MAX = 16 << 10
"""Fetched records beyond this are shown as zeros: they need not be read again."""
REASONS_MAX = 5
"""Refusals with the same error, in one reply, whose reason is looked for. That is done in one step of the loop, and a request
may name thousands of topics."""
MASKED = b"(masked)"
MASKED_TEXT = "(masked)"

Mask = Callable[[Any], None]
"""Takes the secrets out of a typed message."""


def _mask_fields(*names: str) -> Mask:
    def mask(message: Any) -> None:
        for name in names:
            value = getattr(message, name)
            if value is not None:
                setattr(message, name, MASKED)

    return mask


def _mask_scram(message: Any) -> None:
    for each in message.upsertions:
        each.salt = each.salted_password = MASKED


def _mask_tokens(message: Any) -> None:
    for each in message.tokens:
        each.hmac = MASKED


def _mask_settings(message: Any) -> None:
    keys = broker_keys()
    for resource in message.resources:
        for each in resource.configs:
            name = each.name.rpartition(".")[2]
            key = keys.get(each.name)
            is_secret = (
                key is None or key.sensitive or "password" in name or "secret" in name or "jaas" in name
            )
            if is_secret and each.value is not None and not _is_of_topics(resource):
                each.value = MASKED_TEXT


def _is_of_topics(resource: Any) -> bool:
    """Topics and groups have no secret settings."""
    return resource.resource_type in (2, 32)


REQUEST_MASKS: Mapping[str, Mask] = {
    "SaslAuthenticate": _mask_fields("auth_bytes"),
    "AlterUserScramCredentials": _mask_scram,
    "RenewDelegationToken": _mask_fields("hmac"),
    "ExpireDelegationToken": _mask_fields("hmac"),
    "AlterConfigs": _mask_settings,
    "IncrementalAlterConfigs": _mask_settings,
    "Envelope": _mask_fields("request_data", "request_principal"),
}
RESPONSE_MASKS: Mapping[str, Mask] = {
    "SaslAuthenticate": _mask_fields("auth_bytes"),
    "CreateDelegationToken": _mask_fields("hmac"),
    "DescribeDelegationToken": _mask_tokens,
    "Envelope": _mask_fields("response_data"),
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request and what became of it."""

    api: str
    version: int
    client_id: str | None
    principal: str
    node: int
    """Which has received it."""
    listener: str
    client: str
    """host:port."""
    connection_id: int
    at_ms: int
    closed: str | None
    """Why the connection was closed in place of a reply, or behind it."""
    faults: tuple[str, ...]
    errors: tuple[str, ...]
    """The names of all errors in the reply."""
    reasons: tuple[str, ...]
    """Of the errors, each with the state from which it came."""
    _body: bytes | None
    _reply: bytes | None

    @property
    def request(self) -> Any:
        """The typed message. None if it was too large to keep, or of an unknown version."""
        return _decoded(request_class(APIS_BY_NAME[self.api]), self.version, self._body)

    @property
    def response(self) -> Any:
        """The typed message. None if there was none, or if it was too large to keep."""
        return _decoded(response_class(APIS_BY_NAME[self.api]), self.version, self._reply)

    @property
    def size_bytes(self) -> int:
        """Of what is kept of the messages."""
        return len(self._body or b"") + len(self._reply or b"")

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
        who = "" if self.client_id is None else f" from {self.client_id!r}"
        outcome = "; ".join(self.reasons or self.errors)
        if self.closed is not None:
            outcome = "; ".join(filter(None, (outcome, f"closed: {self.closed}")))
        told = [f"{at} node {self.node} {self.api} v{self.version}{who} ({self.client})", outcome or "ok"]
        if self.faults:
            told.append(f"fault: {', '.join(self.faults)}")
        return " - ".join(told)


APIS_BY_NAME: Mapping[str, int] = {api.name: int(key) for key, api in APIS.items()}


def recorded_of(exchange: Exchange, reply: bytes | None, state: State) -> Recorded:
    """`reply`: the payload of the exchange. `state`: what the node knows that has answered."""
    api, version = APIS[exchange.api_key].name, exchange.version
    body = exchange.body
    if body is not None and len(body) > BODY_BYTES_MAX:
        body = None
    if api in REQUEST_MASKS:
        body = _masked(request_class(exchange.api_key), version, body, REQUEST_MASKS[api])
    response = _decoded(response_class(exchange.api_key), version, reply)
    recorded = Recorded(
        api,
        version,
        exchange.client_id,
        exchange.principal,
        exchange.node,
        exchange.listener,
        exchange.client,
        exchange.connection_id,
        exchange.at_ms,
        exchange.closed,
        exchange.faults,
        (),
        (),
        body,
        reply,
    )
    if response is not None:
        failed = list(errors_in(response, exchange.api_key, version))
        if failed:
            request = _decoded(request_class(exchange.api_key), version, body)
            some = list(_first_of_each_error(failed))
            reasons = tuple(dict.fromkeys(_reasons(some, api, exchange, request, state)))
            errors = tuple(dict.fromkeys(code.name for code, _, _ in failed))
            recorded = replace(recorded, errors=errors, reasons=reasons)
    if api in RESPONSE_MASKS:
        recorded = replace(
            recorded,
            _reply=_masked(response_class(exchange.api_key), version, reply, RESPONSE_MASKS[api]),
        )
    return recorded


def payload(exchange: Exchange, slice_bytes_max: int = SLICE_BYTES_MAX) -> bytes | None:
    """The body of the reply. None if there is none, or if it is too large. Slices of files beyond `slice_bytes_max` are zeros."""
    if exchange.reply is None or sum(map(len, exchange.reply)) > BODY_BYTES_MAX:
        return None
    parts: list[bytes] = []
    for part in exchange.reply:
        if isinstance(part, (bytes, bytearray, memoryview)):
            parts.append(bytes(part))
        else:
            parts.append(part.read() if len(part) <= slice_bytes_max else bytes(len(part)))
    data = b"".join(parts)[4:]
    try:
        _, position = parse_response_header(data, exchange.api_key, exchange.version)
    except WireError:  # a reply that was cut short
        return None
    return data[position:]


def _decoded(cls: Any, version: int, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return decode(cls, version, data)
    except (ValueError, WireError):
        return None


def _masked(cls: Any, version: int, data: bytes | None, mask: Mask) -> bytes | None:
    """None for what cannot be decoded, which may have secrets too."""
    message = _decoded(cls, version, data)
    if message is None:
        return None
    mask(message)
    return encode(message, version)


def errors_in(response: Any, api_key: int, version: int) -> Iterator[tuple[ErrorCode, Names, str | None]]:
    """Each error, what it is about, and its text."""
    top = getattr(response, "error_code", 0)
    if top:
        yield code_of(top), {}, getattr(response, "error_message", None)
    levels = levels_of(api_key, version).response
    for depth, level in enumerate(levels):
        if level.error_field is None:
            continue
        for names, element in elements_in(response, levels[: depth + 1]):
            code = getattr(element, level.error_field)
            if code:
                yield code_of(code), names, getattr(element, "error_message", None)
    if not levels:
        for element in _plain_elements(response):
            yield code_of(element.error_code), {}, getattr(element, "error_message", None)


def _plain_elements(response: Any) -> Iterator[Any]:
    """Elements with an error of APIs whose elements have no names."""
    for name in response.__slots__:
        value = getattr(response, name)
        if isinstance(value, list):
            yield from (each for each in value if getattr(each, "error_code", 0))


def _first_of_each_error(failed: Any) -> Iterator[Any]:
    counts: Counter[ErrorCode] = Counter()
    for each in failed:
        counts[each[0]] += 1
        if counts[each[0]] <= REASONS_MAX:
            yield each


def _reasons(failed: Any, api: str, exchange: Exchange, request: Any, state: State) -> Iterator[str]:
    common = {} if request is None else common_names(request)
    elements = {} if request is None else dict(_asked(request, exchange))
    known = {} if request is None else {key: names for key, (names, _) in elements.items()}
    for code, names, message in failed:
        key = _key(names)
        asked = elements.get(key)
        full = {**common, **known.get(key, {}), **names}
        element = None if asked is None else asked[1]
        if TOPIC not in full and TOPIC_ID in full and (name := state.name_of(full[TOPIC_ID])) is not None:
            full[TOPIC] = name
        batch = _batch(element)
        if any(each.startswith(f"error({code.name}") for each in exchange.faults):
            yield f"{code.name}: a fault of the test says so"
            continue
        yield reason(Refusal(code, api, full, exchange.principal, request, element, batch, message), state)


def _asked(request: Any, exchange: Exchange) -> Iterator[tuple[Any, tuple[Names, Any]]]:
    levels = levels_of(exchange.api_key, exchange.version).request
    if levels:
        for names, element in elements_in(request, levels):
            yield _key(names), (names, element)


def _key(names: Names) -> Any:
    """What request and response both say of an element."""
    derived = {TOPIC} if TOPIC_ID in names else set()
    if COORDINATOR_KEY in names:
        derived |= {GROUP, TRANSACTION}
    return tuple(sorted((kind, value) for kind, value in names.items() if kind not in derived))


def _batch(element: Any) -> Batch | None:
    records = getattr(element, "records", None)
    if records is None or len(records) < HEADER_SIZE or records[16] != 2:
        return None
    try:
        header = parse_header(records)
    except BatchCorrupt:
        return None
    return Batch(header.producer_id, header.producer_epoch, header.base_sequence, len(records))
