"""A node whose remote store is a folder, in the layout of Apache Kafka's LocalTieredStorage."""

from __future__ import annotations

from pathlib import Path

from interop_tests.consumer_groups.members import compiled
from interop_tests.harness.kafka_jars import storage_test_jar

LOG_CONTEXT = Path(__file__).parent / "java" / "LogContext.java"


def tier_settings(store: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": "",
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
    }


def tier_plugins() -> tuple[Path, ...]:
    """What an Apache Kafka needs for it besides its jars."""
    return storage_test_jar(), compiled("log_context", LOG_CONTEXT)
