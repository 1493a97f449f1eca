"""Commands of very many elements: what one step makes or looks at is bounded, also before the first and after the last
element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacompat.controller import (
    client_quota_control_manager,
    replication_control_manager,
    scram_control_manager,
)
from kafkacompat.controller.image import MetadataImage
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
)
from kafkacompat.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkacompat.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

COUNT = 50_000
A_STEP = 21_000
"""Elements that a step may read, at 0.2 us. Where results are made it is less."""


class Counted(list[Any]):
    """Counts how often an element is taken out by iteration."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            Counted.taken += 1
            yield each

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        Counted.taken += len(found) if isinstance(at, slice) else 1
        return found


def most_a_step(command: Any, counter: Callable[[], int]) -> int:
    most, before = 0, counter()
    while True:
        try:
            next(command)
        except StopIteration:
            return max(most, counter() - before)
        most, before = max(most, counter() - before), counter()


def most_taken(command: Any) -> int:
    return most_a_step(command, lambda: Counted.taken)


def most_made(command: Any, kind: type, monkeypatch: pytest.MonkeyPatch) -> int:
    made = 0
    real = kind.__init__  # type: ignore[misc]

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal made
        made += 1
        real(self, *arguments, **options)

    monkeypatch.setattr(kind, "__init__", counted)
    return most_a_step(command, lambda: made)


def test_reassignments_of_unknown_topics_are_looked_for_in_steps() -> None:
    asked = [
        ListPartitionReassignmentsTopics(name=f"t{each}", partition_indexes=[0]) for each in range(COUNT)
    ]
    request = ListPartitionReassignmentsRequest(topics=Counted(asked))
    command = replication_control_manager.list_partition_reassignments(MetadataImage(), request)
    assert 0 < most_taken(command) <= A_STEP


def test_elections_in_unknown_topics_are_refused_in_steps() -> None:
    asked = [TopicPartitions(topic=f"t{each}", partitions=[0]) for each in range(COUNT)]
    request = ElectLeadersRequest(topic_partitions=Counted(asked))
    unused: Any = None
    command = replication_control_manager.elect_leaders(MetadataImage(), unused, request)
    assert 0 < most_taken(command) <= A_STEP


def quotas(kind: str) -> list[EntryData]:
    return [EntryData(entity=[EntityData(entity_type=kind, entity_name=f"n{each}")]) for each in range(COUNT)]


def test_results_of_quotas_are_told_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    request = AlterClientQuotasRequest(entries=quotas("user"))
    command = client_quota_control_manager.alter_client_quotas(MetadataImage(), request)
    assert (
        0
        < most_made(command, client_quota_control_manager.EntryData, monkeypatch)
        <= client_quota_control_manager.TOLD_A_STEP
    )


def test_hosts_are_looked_for_in_steps_and_no_further_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    real = client_quota_control_manager.entity_of

    def counted(alteration: EntryData) -> Any:
        nonlocal looked
        looked += 1
        return real(alteration)

    monkeypatch.setattr(client_quota_control_manager, "entity_of", counted)
    request = AlterClientQuotasRequest(entries=quotas("user"))
    command = client_quota_control_manager.hosts_to_resolve(request)
    assert 0 < most_a_step(command, lambda: looked) <= 1_000
    hosts = AlterClientQuotasRequest(entries=quotas("ip"))
    found = at_once(client_quota_control_manager.hosts_to_resolve(hosts))
    assert found == [f"n{each}" for each in range(client_quota_control_manager.RESOLVED_MAX)]


def test_refusals_of_users_are_told_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=f"u{each}", mechanism=1) for each in range(COUNT)]
    )
    command = scram_control_manager.alter_user_scram_credentials(MetadataImage(), request)
    made = most_made(command, scram_control_manager.AlterUserScramCredentialsResult, monkeypatch)
    assert 0 < made <= scram_control_manager.TOLD_A_STEP
