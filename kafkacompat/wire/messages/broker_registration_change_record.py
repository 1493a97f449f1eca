"""BrokerRegistrationChangeRecord, versions 0 to 3.

Written by `python -m kafkacompat.wire.generate` from definitions/metadata/BrokerRegistrationChangeRecord.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class BrokerRegistrationChangeRecord(Message):
    __slots__ = ("broker_id", "broker_epoch", "fenced", "in_controlled_shutdown", "log_dirs", "cordoned_log_dirs")
    API_KEY: ClassVar[int | None] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":17,"type":"metadata","name":"BrokerRegistrationChangeRecord","validVersions":"0-3","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+"},{"name":"Fenced","type":"int8","versions":"0+","taggedVersions":"0+","tag":0},{"name":"InControlledShutdown","type":"int8","versions":"1+","taggedVersions":"1+","tag":1},{"name":"LogDirs","type":"[]uuid","versions":"2+","taggedVersions":"2+","tag":2},{"name":"CordonedLogDirs","type":"[]uuid","versions":"3+","taggedVersions":"3+","tag":3,"nullableVersions":"3+","default":"null"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = 0,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: list[bytes] = EMPTY,
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = [] if log_dirs is EMPTY else log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
