"""Bugs planted in groups and in waiting requests. The cluster simulation must find each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kafkacompat.group import group_coordinator as service
from kafkacompat.group import group_metadata_manager
from kafkacompat.group import sweeps as group_sweeps
from kafkacompat.group.classic.classic_group import ClassicGroupState
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def deleted_groups_leave_no_tombstones(patch: pytest.MonkeyPatch) -> None:
    """The next coordinator reads the deleted groups from the log again."""
    original = group_sweeps.deletion_records

    def deletion_records(machine: Any, stretch: Iterable[Any]) -> list[Any]:
        for record in original(machine, stretch):
            machine.replay(record, 0, -1)
        return []

    patch.setattr(group_sweeps, "deletion_records", deletion_records)


def every_generation_may_commit(patch: pytest.MonkeyPatch) -> None:
    """A late commit replaces the commit of the partition's next owner."""

    def bent(original: Any) -> Any:
        def commit(offsets: Any, request: Any, *given: Any) -> Any:
            group = offsets.env.groups.get(request.group_id)
            if group is None:
                return original(offsets, request, *given)
            state, group.state = group.state, ClassicGroupState.EMPTY
            request.generation_id_or_member_epoch = -1
            try:
                return original(offsets, request, *given)
            finally:
                group.state = state

        return commit

    patch.setattr(service, "commit_offsets", bent(service.commit_offsets))
    patch.setattr(service, "commit_plainly", bent(service.commit_plainly))


def every_offset_has_expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_metadata_manager, "_has_expired", lambda *_: True)


GROUP_MUTANTS: tuple[Plant, ...] = (
    deleted_groups_leave_no_tombstones,
    every_generation_may_commit,
    every_offset_has_expired,
)
GROUP_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "deleted_groups_leave_no_tombstones": 2,
    "every_generation_may_commit": (14, 11),
    "every_offset_has_expired": 2,
}
