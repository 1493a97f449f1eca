"""The group coordinator's settings, read from the broker's by their Kafka names."""

from __future__ import annotations

from kafkacompat.config.assignors import consumer_assignors, share_assignor
from kafkacompat.config.reading import Settings
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.group.environment import ConsumerGroupSettings, GroupSettings, ShareGroupSettings
from kafkacompat.group.group_coordinator import CoordinatorSettings


def coordinator_settings(config: Settings) -> CoordinatorSettings:
    """The settings in force at the start. As in Kafka, none of them is dynamic."""
    return CoordinatorSettings(
        group=GroupSettings(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_size=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            consumer=ConsumerGroupSettings(
                session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
                heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
                max_size=config.get_int("group.consumer.max.size"),
                assignors=consumer_assignors(config.get_list("group.consumer.assignors")),
                migration_policy=(config.get_string("group.consumer.migration.policy") or "").lower(),
                regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
            ),
            share=ShareGroupSettings(
                session_timeout_ms=config.get_int("group.share.session.timeout.ms"),
                heartbeat_interval_ms=config.get_int("group.share.heartbeat.interval.ms"),
                max_size=config.get_int("group.share.max.size"),
                initialize_retry_interval_ms=max(
                    config.get_int("group.share.initialize.retry.interval.ms"),
                    config.get_int("offsets.commit.timeout.ms"),
                ),
                assignor=share_assignor(config.get_list("group.share.assignors")),
            ),
            bounds={
                f"{kind}.{name}": (
                    config.get_int(f"group.{kind}.min.{name}"),
                    config.get_int(f"group.{kind}.max.{name}"),
                )
                for kind in ("consumer", "share")
                for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
            },
        ),
        commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        compression=config.get_int("offsets.topic.compression.codec"),
        load_step_bytes=min(config.get_int("offsets.load.buffer.size"), LOAD_STEP_BYTES),
        groups_max_bytes=config.get_int("group.coordinator.max.bytes"),
    )
