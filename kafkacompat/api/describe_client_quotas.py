"""DescribeClientQuotas (key 48): the metadata's quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler
from kafkacompat.ids import HASH_CAPACITY, hash_capacity, hash_place, java_string_hash
from kafkacompat.quota.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_client_quotas_request import (
        ComponentData,
        DescribeClientQuotasRequest,
    )

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""How a component matches: one name, the default entity, or any name."""
QUOTAS_A_STEP = 5_000
ENTITIES_A_STEP = 200
"""Whose quotas are put in order in one step, at some 20 microseconds."""


class FilterRefused(Exception):
    def __init__(self, text: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(text)
        self.code = code


class QuotaFilter:
    """Decides which entities match. Raises FilterRefused if the components are invalid."""

    def __init__(self, components: list[ComponentData], strict: bool) -> None:
        self._exact: dict[str, str | None] = {}
        self._types: set[str] = set()
        self._strict = strict
        for each in components:
            self._add(each)
        named = self._exact.keys() | self._types
        if IP in named and named & {USER, CLIENT_ID}:
            raise FilterRefused(
                "Invalid entity filter component combination. "
                "IP filter component should not be used with user or clientId filter component."
            )

    def _add(self, component: ComponentData) -> None:
        kind, match = component.entity_type, component.match
        if not kind:
            raise FilterRefused("Invalid empty entity type.")
        if kind in self._exact or kind in self._types:
            raise FilterRefused(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise FilterRefused(f"Unsupported entity type {kind}", ErrorCode.UNSUPPORTED_VERSION)
        if component.match_type == EXACT:
            if match is None:
                raise FilterRefused("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = match
            return
        if component.match_type not in (DEFAULT, SPECIFIED):
            raise FilterRefused(f"Unknown match type {component.match_type}")
        if match is not None:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise FilterRefused(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        if component.match_type == DEFAULT:
            self._exact[kind] = None
        else:
            self._types.add(kind)

    def matches(self, entity: dict[str, str | None]) -> bool:
        if self._strict and len(entity) != len(self._exact) + len(self._types):
            return False
        return self._types <= entity.keys() and all(
            kind in entity and entity[kind] == name for kind, name in self._exact.items()
        )


def handle(
    node: Node, context: RequestContext, request: DescribeClientQuotasRequest
) -> Work[DescribeClientQuotasResponse]:
    try:
        asked = QuotaFilter(request.components, request.strict)
    except FilterRefused as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=str(refusal), entries=None)
    entries: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    for number, ((entity, key), record) in enumerate(node.image.client_quotas.items(), 1):
        if asked.matches(dict(entity)):
            entry = entries.get(entity)
            if entry is None:
                named = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
                entry = entries[entity] = EntryData(entity=named)
            entry.values.append(ValueData(key=key, value=record.value))
        if number % QUOTAS_A_STEP == 0:
            yield TURN_COST
    for number, entry in enumerate(entries.values(), 1):
        if len(entry.values) > 1:
            entry.values = in_order(entry.values)
        if number % ENTITIES_A_STEP == 0:
            yield TURN_COST
    return DescribeClientQuotasResponse(error_message="", entries=list(entries.values()))


def in_order(values: list[ValueData]) -> list[ValueData]:
    """The quotas of an entity in the order of Kafka's hash maps: one collects the changes, another, as small as can be,
    keeps them."""
    for capacity in (HASH_CAPACITY, hash_capacity(len(values), 1)):
        values = sorted(values, key=lambda value: hash_place(java_string_hash(value.key), capacity))
    return values


def error_response(
    request: DescribeClientQuotasRequest, code: ErrorCode, version: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)


HANDLER = Handler(handle, error_response)
