"""The transaction coordinator's settings, read from the broker's by their Kafka names."""

from __future__ import annotations

from kafkacompat.config.reading import Settings
from kafkacompat.coordinator.loading import LOAD_STEP_BYTES
from kafkacompat.txn.environment import TransactionSettings
from kafkacompat.txn.transaction_coordinator import TransactionCoordinatorSettings


def transaction_settings(config: Settings) -> TransactionCoordinatorSettings:
    """The settings in force at the start."""
    return TransactionCoordinatorSettings(
        transactions=TransactionSettings(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            expiration_ms=config.get_int("transactional.id.expiration.ms"),
            has_two_phase_commit=config.get_boolean("transaction.two.phase.commit.enable"),
        ),
        request_timeout_ms=config.get_int("request.timeout.ms"),
        abort_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiry_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        load_step_bytes=min(config.get_int("transaction.state.log.load.buffer.size"), LOAD_STEP_BYTES),
        ids_max_bytes=config.get_int("transactional.ids.max.bytes"),
    )
