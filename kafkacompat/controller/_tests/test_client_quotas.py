"""AlterClientQuotas: which records are written, and which alterations are refused."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from kafkacompat.controller import client_quota_control_manager as module
from kafkacompat.controller._tests.clusters import after, cluster
from kafkacompat.controller._tests.test_steps import pauses
from kafkacompat.controller.client_quota_control_manager import (
    RESOLVED_MAX,
    alter_client_quotas,
    hosts_to_resolve,
)
from kafkacompat.controller.quorum_controller import known_hosts
from kafkacompat.deferred import Deferred
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

INVALID = ErrorCode.INVALID_REQUEST
ALICE = {"user": "alice"}


def entry(entity: dict[str, str | None], *operations: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in operations
        ],
    )


def alter(image: Any, *entries: EntryData, validate_only: bool = False, hosts: Any = ()) -> Any:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return at_once(alter_client_quotas(image, request, hosts))


def told(result: Any) -> list[tuple[dict[str, str | None], int, str | None]]:
    return [
        ({part.entity_type: part.entity_name for part in each.entity}, each.error_code, each.error_message)
        for each in result.response.entries
    ]


def quotas(image: Any) -> dict[Any, float]:
    return {
        (dict(entity).__repr__(), key): record.value for (entity, key), record in image.client_quotas.items()
    }


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        ({"user": "alice"}, "producer_byte_rate"),
        ({"user": None}, "consumer_byte_rate"),
        ({"client-id": "a"}, "request_percentage"),
        ({"client-id": None}, "controller_mutation_rate"),
        ({"user": "alice", "client-id": None}, "producer_byte_rate"),
        ({"ip": "10.0.0.1"}, "connection_creation_rate"),
        ({"ip": None}, "connection_creation_rate"),
    ],
)
def test_a_quota_is_set_changed_and_removed(entity: dict[str, str | None], key: str) -> None:
    image = cluster()
    for value in (5.0, 7.0):
        result = alter(image, entry(entity, (key, value)))
        assert told(result) == [(entity, 0, None)]
        assert len(result.records) == 1
        image = after(image, result)
        assert list(quotas(image).values()) == [value]
        assert not alter(image, entry(entity, (key, value))).records, "the value is the same"
    removal = alter(image, entry(entity, (key, None)))
    assert told(removal) == [(entity, 0, None)]
    image = after(image, removal)
    assert not quotas(image)
    again = alter(image, entry(entity, (key, None)))
    assert (told(again), again.records) == ([(entity, 0, None)], ())


def test_an_entity_is_told_and_written_with_its_parts_in_the_order_of_kafka() -> None:
    for entity in ({"user": "a", "client-id": None}, {"client-id": None, "user": "a"}):
        result = alter(cluster(), entry(entity, ("producer_byte_rate", 5)))
        (answered,), (record,) = result.response.entries, result.records
        for parts in answered.entity, record.message.entity:
            assert [part.entity_type for part in parts] == ["client-id", "user"]


def test_what_is_only_validated_is_not_written() -> None:
    result = alter(cluster(), entry(ALICE, ("producer_byte_rate", 5)), validate_only=True)
    assert (told(result), result.records) == ([(ALICE, 0, None)], ())


@pytest.mark.parametrize(
    ("entity", "operation", "text"),
    [
        ({}, ("producer_byte_rate", 1), "Invalid empty client quota entity"),
        ({"group": "a"}, ("producer_byte_rate", 1), "Unhandled client quota entity type: group"),
        ({"user": ""}, ("producer_byte_rate", 1), "Empty user not supported"),
        ({"client-id": ""}, ("producer_byte_rate", 1), "Empty client-id not supported"),
        (
            {"ip": "1.2.3.4", "user": "a"},
            ("producer_byte_rate", 1),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "nowhere"}, ("connection_creation_rate", 1), "nowhere is not a valid IP or resolvable host."),
        (ALICE, ("connection_creation_rate", 1), "Invalid configuration key connection_creation_rate"),
        ({"ip": None}, ("producer_byte_rate", 1), "Invalid configuration key producer_byte_rate"),
        (ALICE, ("producer_byte_rate", 0), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, ("producer_byte_rate", -1), "Quota producer_byte_rate must be greater than 0"),
        *(
            (ALICE, (name, value), f"Quota {name} must be a finite number")
            for name in ("producer_byte_rate", "request_percentage")
            for value in (inf, -inf, nan)
        ),
        (ALICE, ("producer_byte_rate", 1.5), "producer_byte_rate cannot be a fractional value."),
        (
            ALICE,
            ("producer_byte_rate", 1e19),
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            ("connection_creation_rate", 2.0**31),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_requests_that_the_metrics_listener_refuses(
    entity: dict[str, str | None], operation: tuple[str, float], text: str
) -> None:
    result = alter(cluster(), entry(entity, operation))
    assert (told(result), result.records) == ([(entity, INVALID, text)], ())


def test_percentages_and_mutation_rates_may_have_fractions() -> None:
    result = alter(cluster(), entry(ALICE, ("request_percentage", 0.5), ("controller_mutation_rate", 1.25)))
    assert told(result) == [(ALICE, 0, None)]
    assert len(result.records) == 2


def test_one_value_that_is_refused_refuses_all_of_its_entity_and_no_other() -> None:
    result = alter(
        cluster(),
        entry(ALICE, ("producer_byte_rate", 5), ("consumer_byte_rate", -5)),
        entry({"user": "bob"}, ("producer_byte_rate", 5)),
    )
    assert [(entity, code) for entity, code, _ in told(result)] == [(ALICE, INVALID), ({"user": "bob"}, 0)]
    assert [record.message.entity[0].entity_name for record in result.records] == ["bob"]


def test_an_entity_that_is_named_twice_is_refused_and_keeps_the_first_alteration() -> None:
    result = alter(
        cluster(),
        entry({"user": "a", "client-id": None}, ("producer_byte_rate", 5)),
        entry({"client-id": None, "user": "a"}, ("producer_byte_rate", 6)),
    )
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=a})"
    assert [(code, said) for _, code, said in told(result)] == [(INVALID, text)]
    assert [record.message.value for record in result.records] == [5.0]


def test_a_key_that_is_named_twice_is_refused() -> None:
    result = alter(cluster(), entry(ALICE, ("producer_byte_rate", 5), ("producer_byte_rate", 6)))
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert (told(result), result.records) == ([(ALICE, INVALID, text)], ())


def test_hosts_need_an_address() -> None:
    named = entry({"ip": "localhost"}, ("connection_creation_rate", 5))
    request = AlterClientQuotasRequest(
        entries=[named, entry({"ip": "::1"}), entry({"ip": "10.0.0.1"}), entry({"ip": None}), entry(ALICE)]
    )
    assert at_once(hosts_to_resolve(request)) == ["localhost"]
    assert told(alter(cluster(), named, hosts={"localhost"})) == [({"ip": "localhost"}, 0, None)]


def test_only_so_many_hosts_are_resolved() -> None:
    asked: list[str] = []

    def resolve(name: str) -> Deferred[str | None]:
        asked.append(name)
        return Deferred.of(None if name == "host000" else "10.0.0.1")

    known = known_hosts([f"host{number:03}" for number in range(RESOLVED_MAX + 10)], resolve).result()
    assert len(asked) == RESOLVED_MAX
    assert len(known) == RESOLVED_MAX - 1


def test_too_many_changes_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS_PER_OPERATION", 2)
    entries = [entry({"user": name}, ("producer_byte_rate", 5)) for name in "abc"]
    result = alter(cluster(), *entries)
    assert not result.records
    assert {code for _, code, _ in told(result)} == {ErrorCode.POLICY_VIOLATION}
    assert [entity["user"] for entity, _, _ in told(result)] == ["a", "b", "c"]


def test_the_refusal_of_many_entities_is_told_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS_PER_OPERATION", 2)
    count = 5 * module.TOLD_A_STEP
    entries = [entry({"user": str(number)}, ("producer_byte_rate", 5)) for number in range(count)]
    result, paused = pauses(alter_client_quotas(cluster(), AlterClientQuotasRequest(entries=entries)))
    assert len(result.response.entries) == count
    assert paused >= 2 * 5


@pytest.mark.parametrize("of", ["parts", "quotas"])
def test_an_entity_with_very_many_parts_or_quotas_is_refused_before_they_are_compared(of: str) -> None:
    count = 10 * module.TOLD_A_STEP
    many = {f"kind{number}": "x" for number in range(count)} if of == "parts" else {"user": "x"}
    operations = [("producer_byte_rate", 5)] * (count if of == "quotas" else 1)
    request = AlterClientQuotasRequest(
        entries=[entry(many, *operations), entry(ALICE, ("producer_byte_rate", 5))]
    )
    result, paused = pauses(alter_client_quotas(cluster(), request))
    assert not result.records
    assert {(code, text) for _, code, text in told(result)} == {(INVALID, module.TOO_MANY_PARTS_TEXT)}
    if of == "parts":
        assert paused >= count // module.TOLD_A_STEP
