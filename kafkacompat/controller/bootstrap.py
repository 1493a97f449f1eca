"""The records a new cluster starts from: Kafka 4.3's default feature levels, framed for bootstrap.checkpoint.

Pure. Knows only what `format` without options writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.controller.features import DEFAULT_LEVELS
from kafkacompat.controller.records import MetadataRecord, frame_all
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord


def bootstrap_values(levels: Sequence[tuple[str, int]] = DEFAULT_LEVELS) -> tuple[bytes, ...]:
    """Framed FeatureLevelRecords, metadata.version first."""
    records = [
        MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels
    ]
    return tuple(frame_all(records))
