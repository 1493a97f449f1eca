"""ZkMigrationStateRecord, versions 0 to 0.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/ZkMigrationRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ZkMigrationStateRecord(Message):
    __slots__ = ("zk_migration_state",)
    API_KEY: ClassVar[int | None] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":21,"type":"metadata","name":"ZkMigrationStateRecord","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"ZkMigrationState","type":"int8","versions":"0+"}]}'

    def __init__(
        self,
        *,
        zk_migration_state: int = 0,
    ) -> None:
        self.zk_migration_state = zk_migration_state
