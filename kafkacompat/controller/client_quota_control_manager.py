"""AlterClientQuotas (KIP-546): image and request -> records and response (ClientQuotaControlManager).

Pure. The rights of the sender are checked before. Host names of ip entities are resolved before, because a lookup waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from math import isfinite

from kafkacompat.controller.controller_result import RECORDS_A_STEP, ControllerResult
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MAX_RECORDS_PER_OPERATION, MetadataRecord
from kafkacompat.quota.client_quotas import ENTITY_TYPES, IP, USER_AND_CLIENT_QUOTAS
from kafkacompat.quota.connection_rates import IP_QUOTAS
from kafkacompat.tasks import TURN_COST, Pace, Work, pieces
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest
from kafkacompat.wire.messages.alter_client_quotas_request import EntryData as Alteration
from kafkacompat.wire.messages.alter_client_quotas_response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)
from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord
from kafkacompat.wire.messages.client_quota_record import EntityData as RecordEntity

UNBOUNDED = float("inf")
LARGEST = {"LONG": float(2**63 - 1), "INT": float(2**31 - 1), "DOUBLE": UNBOUNDED}
FRACTION_IGNORED = 1e-6
TOLD_A_STEP = 2_000
"""Entities whose result is made in one step, at one to three microseconds."""
TOO_LARGE_TEXT = "Unable to perform excessively large batch operation."
PARTS_MAX = 100
"""Of the parts of an entity, and of its quotas, in one request. An entity has two parts at most, and four quotas. They are compared
in one step."""
TOO_MANY_PARTS_TEXT = f"More than {PARTS_MAX} parts or quotas of one entity."

Entity = Mapping[str, str | None]
EntityKey = tuple[tuple[str, str | None], ...]


class QuotaRefused(Exception):
    """One entity's alteration is refused with INVALID_REQUEST and this text."""


def entity_of(alteration: Alteration) -> Entity:
    """Return the names of the entity by type, or None for a default. Of a type that is named twice, the last name counts.

    They come in the order in which Kafka tells and writes them: that of its hash map.
    """
    parts = {each.entity_type: each.entity_name for each in alteration.entity}
    return dict(sorted(parts.items(), key=lambda part: (part[0] == IP, part[0])))


def hosts_to_resolve(request: AlterClientQuotasRequest) -> Work[list[str]]:
    """Return the names of ip entities that are no addresses, the first RESOLVED_MAX of them."""
    names: dict[str, None] = {}
    for piece in pieces(request.entries, RECORDS_A_STEP):
        for each in piece:
            name = entity_of(each).get(IP)
            if name and name not in names and not _is_address(name):
                names[name] = None
        if len(names) >= RESOLVED_MAX:
            break
        yield TURN_COST
    return list(names)[:RESOLVED_MAX]


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest, known_hosts: Collection[str] = ()
) -> Work[ControllerResult[MetadataRecord, AlterClientQuotasResponse]]:
    """Each entity has one result. If a request names an entity again, that entity's result is a refusal, but the first
    alteration is written. Kafka does the same.

    `known_hosts`: the names of hosts_to_resolve that have an address.
    """
    records: list[MetadataRecord] = []
    results: dict[EntityKey, tuple[Entity, str | None]] = {}
    for piece in pieces(request.entries, RECORDS_A_STEP):
        if any(len(each.entity) > PARTS_MAX or len(each.ops) > PARTS_MAX for each in piece):
            refused = yield from refusal_of_all(request, ErrorCode.INVALID_REQUEST, TOO_MANY_PARTS_TEXT)
            return ControllerResult((), refused)
        for each in piece:
            entity = entity_of(each)
            key = entity_key(entity)
            operations = {op.key: None if op.remove else op.value for op in reversed(each.ops)}
            if key in results or len(operations) < len(each.ops):
                results[key] = entity, f"Ignoring duplicate entity {_text(entity)}"
                continue
            try:
                records += _changes(image, entity, operations, known_hosts)
                results[key] = entity, None
            except QuotaRefused as refusal:
                results[key] = entity, str(refusal)
        if len(records) > MAX_RECORDS_PER_OPERATION:
            refused = yield from refusal_of_all(request, ErrorCode.POLICY_VIOLATION, TOO_LARGE_TEXT)
            return ControllerResult((), refused)
        yield TURN_COST
    entries = []
    for number, (entity, reason) in enumerate(results.values(), 1):
        code = ErrorCode.NONE if reason is None else ErrorCode.INVALID_REQUEST
        told = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        entries.append(EntryData(error_code=code, error_message=reason, entity=told))
        if number % TOLD_A_STEP == 0:
            yield TURN_COST
    written = () if request.validate_only else tuple(records)
    return ControllerResult(written, AlterClientQuotasResponse(entries=entries))


def refusal_of_all(
    request: AlterClientQuotasRequest, code: ErrorCode, text: str | None
) -> Work[AlterClientQuotasResponse]:
    """Return the response to a request that fails as a whole: the error for each of its entries."""
    entries: list[EntryData] = []
    pace = Pace(TOLD_A_STEP)
    for each in request.entries:
        entity: list[EntityData] = []
        for part in each.entity:
            entity.append(EntityData(entity_type=part.entity_type, entity_name=part.entity_name))
            if pace.is_over():
                yield TURN_COST
        entries.append(EntryData(error_code=code, error_message=text, entity=entity))
        if pace.is_over():
            yield TURN_COST
    return AlterClientQuotasResponse(entries=entries)


def entity_key(entity: Entity) -> EntityKey:
    """Return the key of an entity in `MetadataImage.client_quotas`."""
    return tuple(sorted(entity.items(), key=repr))


def _changes(
    image: MetadataImage,
    entity: Entity,
    operations: Mapping[str, float | None],
    known_hosts: Collection[str],
) -> list[MetadataRecord]:
    """Return the records of one entity. Values that stay the same and removals of absent values have none."""
    quotas = _quotas_of(entity, known_hosts)
    key = entity_key(entity)
    records = []
    for name, value in operations.items():
        current = image.client_quotas.get((key, name))
        if value is None:
            if current is not None:
                records.append(_record(entity, name, 0.0, True))
            continue
        _check_value(quotas, name, value)
        if current is None or (
            current.value != value and not (current.value != current.value and value != value)
        ):
            records.append(_record(entity, name, value, False))
    return records


def _record(entity: Entity, key: str, value: float, remove: bool) -> MetadataRecord:
    parts = [RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return MetadataRecord(ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove), 0)


def _quotas_of(entity: Entity, known_hosts: Collection[str]) -> Mapping[str, str]:
    """Return the types of the quotas that the entity may have."""
    if not entity:
        raise QuotaRefused("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise QuotaRefused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise QuotaRefused(f"Empty {kind} not supported")
    if IP not in entity:
        return USER_AND_CLIENT_QUOTAS
    if len(entity) > 1:
        raise QuotaRefused(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    host = entity[IP]
    if host is not None and host not in known_hosts and not _is_address(host):
        raise QuotaRefused(f"{host} is not a valid IP or resolvable host.")
    return IP_QUOTAS


def _check_value(quotas: Mapping[str, str], key: str, value: float) -> None:
    kind = quotas.get(key)
    if kind is None:
        raise QuotaRefused(f"Invalid configuration key {key}")
    if not isfinite(value):
        raise QuotaRefused(f"Quota {key} must be a finite number")
    if value <= 0:
        raise QuotaRefused(f"Quota {key} must be greater than 0")
    if value > LARGEST[kind]:
        raise QuotaRefused(
            f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
        )
    if kind != "DOUBLE" and value % 1.0 > FRACTION_IGNORED:
        raise QuotaRefused(f"{key} cannot be a fractional value.")


def _text(entity: Entity) -> str:
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{named}}})"


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


RESOLVED_MAX = 64
"""Names per request that are resolved. Further names count as unknown: each takes a thread while the resolver waits."""
