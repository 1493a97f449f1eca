"""Changes of the finalized feature levels by records. Pure. An unknown level is fatal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kafkacompat.controller.records import ReplayError

if TYPE_CHECKING:
    from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord


class FeaturesDelta:
    __slots__ = ("_base", "_changed")

    def __init__(self, base: Mapping[str, int]) -> None:
        self._base = base
        self._changed: dict[str, int] = {}

    def apply(self) -> Mapping[str, int]:
        """The levels after the changes. Level 0 is left out."""
        if not self._changed:
            return self._base
        return {name: level for name, level in {**self._base, **self._changed}.items() if level}

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        lowest, highest = SUPPORTED_FEATURES.get(record.name, (0, 0))
        if record.feature_level != 0 and not lowest <= record.feature_level <= highest:
            raise ReplayError(
                f"the metadata log finalizes {record.name} at level {record.feature_level}, "
                f"but this software supports {lowest} to {highest}"
            )
        self._changed[record.name] = record.feature_level

    def set_kraft_version(self, level: int) -> None:
        """From the KRaftVersion control record."""
        self._changed[KRAFT_VERSION] = level
