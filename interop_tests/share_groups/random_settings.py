"""Settings of the brokers and of the groups of random talks."""

from __future__ import annotations

from interop_tests.share_groups.in_flight import ISOLATION, LIMIT, LOCKS

SESSIONS_OF_TALK = 6
"""Not enough for all guests."""
UPDATES_PER_SNAPSHOT = 20
"""So few that snapshots follow while a talk lasts."""
CHANGES = (
    (LIMIT, ("2", "3", "5", "10", None)),
    (LOCKS, ("100", "200", None)),
    (ISOLATION, ("read_committed", "read_uncommitted", None)),
    ("share.renew.acknowledge.enable", ("false", "true", None)),
)
"""What is changed while a talk lasts."""


def settings_of(seed: int) -> dict[str, str]:
    """Settings of the brokers for this talk."""
    settings = {"group.share.max.share.sessions": str(SESSIONS_OF_TALK)}
    if has_snapshots(seed):
        settings["share.coordinator.snapshot.update.records.per.snapshot"] = str(UPDATES_PER_SNAPSHOT)
    return settings


def has_snapshots(seed: int) -> bool:
    """Whether states are written anew after a few updates. Then locks of no more than one batch end at once: into how many
    updates leaders put what they write about several of them is accidental."""
    return seed % 2 == 0
