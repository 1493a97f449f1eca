"""The share coordinator's settings, read from the broker's by their Kafka names."""

from __future__ import annotations

from kafkacompat.config.reading import Settings
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.share.share_coordinator import ShareCoordinatorSettings


def share_settings(config: Settings) -> ShareCoordinatorSettings:
    """The settings in force at the start."""
    return ShareCoordinatorSettings(
        updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
        write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        compression=config.get_int("share.coordinator.state.topic.compression.codec"),
        prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
        cold_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
        load_step_bytes=min(config.get_int("share.coordinator.load.buffer.size"), LOAD_STEP_BYTES),
    )
