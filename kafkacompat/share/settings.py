"""The settings of a share group that hold now: its own, or else those of the broker.

They are read for every request, so they are kept until a layer changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kafkacompat.config import ServerConfig, group_values
from kafkacompat.partition.list_offsets import EARLIEST, LATEST
from kafkacompat.share.dead_letters import DeadLetterPolicy
from kafkacompat.share.values import ShareSettings

GROUPS_MAX = 10_000
"""Groups whose settings are kept. More clients than that do not fetch from one node at once."""
KEPT_LENGTH_MAX = 500
"""Characters of the name of such a group. A client may name groups that take 128 KiB each."""
_DURATION = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)
_EPOCH_MS = 0


FIRST_LEVEL_WITH_DEAD_LETTERS = 2
"""Of share.version. What was to become a dead letter at this level is finished whatever the level is now, as in Kafka."""


class ShareSettingsCache:
    """`effective` has the node's settings, `overrides` those of a group in the present image, `share_version` the level of
    that feature there."""

    def __init__(
        self,
        effective: Callable[[], ServerConfig],
        overrides: Callable[[str], Mapping[str, str]],
        share_version: Callable[[], int],
    ) -> None:
        self._effective = effective
        self._overrides = overrides
        self._share_version = share_version
        self._known: dict[str, tuple[ServerConfig, Mapping[str, str], int, ShareSettings]] = {}

    def of(self, group_id: str) -> ShareSettings:
        effective, overrides, share_version = (
            self._effective(),
            self._overrides(group_id),
            self._share_version(),
        )
        known = self._known.get(group_id)
        if (
            known is not None
            and known[0] is effective
            and (known[1] is overrides or known[1] == overrides)
            and known[2] == share_version
        ):
            return known[3]
        values = group_values(effective, overrides)
        settings = ShareSettings(
            record_lock_duration_ms=int(values["share.record.lock.duration.ms"]),  # type: ignore[arg-type]
            delivery_count_limit=int(values["share.delivery.count.limit"]),  # type: ignore[arg-type]
            max_record_locks=int(values["share.partition.max.record.locks"]),  # type: ignore[arg-type]
            renew_acknowledge_enabled=bool(values["share.renew.acknowledge.enable"]),
            has_dead_letters=share_version >= FIRST_LEVEL_WITH_DEAD_LETTERS
            and self.dead_letters_of(group_id).topic != "",
            read_committed=str(values["share.isolation.level"]).lower() == "read_committed",
            offset_reset=str(values["share.auto.offset.reset"]),
        )
        if len(group_id) <= KEPT_LENGTH_MAX:
            if len(self._known) >= GROUPS_MAX:
                self._known.clear()
            self._known[group_id] = effective, overrides, share_version, settings
        return settings

    def forget(self, group_id: str) -> None:
        """The group has no session left on this node."""
        self._known.pop(group_id, None)

    def dead_letters_of(self, group_id: str) -> DeadLetterPolicy:
        return dead_letter_policy(self._effective(), self._overrides(group_id))


def reset_timestamp_ms(settings: ShareSettings, now_ms: int) -> int:
    """What a new share-partition looks up in the log: a special timestamp, or the time from which on records count."""
    if settings.offset_reset == "latest":
        return LATEST
    if settings.offset_reset == "earliest":
        return EARLIEST
    return max(now_ms - duration_ms(settings.offset_reset), _EPOCH_MS)


def duration_ms(text: str) -> int:
    """The length of by_duration:PnDTnHnMn.nS."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no duration")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    thousandths = int((found[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + thousandths


def dead_letter_policy(effective: ServerConfig, overrides: Mapping[str, str]) -> DeadLetterPolicy:
    """`overrides` are the group's own settings."""
    if "errors.deadletterqueue.topic.name" not in overrides:
        return DeadLetterPolicy()
    values = group_values(effective, overrides)
    return DeadLetterPolicy(
        str(values["errors.deadletterqueue.topic.name"]),
        values["errors.deadletterqueue.copy.record.enable"] is True,
        effective.get_string("errors.deadletterqueue.topic.name.prefix") or "",
        effective.get_boolean("errors.deadletterqueue.auto.create.topics.enable"),
    )
