"""The first records of a new cluster, framed for bootstrap.checkpoint: feature levels, and users. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.controller.features import DEFAULT_LEVELS
from kafkacompat.controller.records import MetadataRecord, frame_all
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord


def bootstrap_values(
    levels: Sequence[tuple[str, int]] = DEFAULT_LEVELS, users: Sequence[UserScramCredentialRecord] = ()
) -> tuple[bytes, ...]:
    """Framed FeatureLevelRecords, metadata.version first, then the SCRAM credentials of users."""
    records = [
        MetadataRecord(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels
    ]
    records += [MetadataRecord(user, 0) for user in users]
    return tuple(frame_all(records))
