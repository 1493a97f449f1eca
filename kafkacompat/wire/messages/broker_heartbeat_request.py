"""BrokerHeartbeatRequest, versions 0 to 2.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/BrokerHeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import EMPTY, Message


class BrokerHeartbeatRequest(Message):
    __slots__ = ("broker_id", "broker_epoch", "current_metadata_offset", "want_fence", "want_shut_down", "offline_log_dirs", "cordoned_log_dirs")
    API_KEY: ClassVar[int | None] = 63
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = '{"apiKey":63,"type":"request","listeners":["controller"],"name":"BrokerHeartbeatRequest","validVersions":"0-2","flexibleVersions":"0+","fields":[{"name":"BrokerId","type":"int32","versions":"0+","entityType":"brokerId"},{"name":"BrokerEpoch","type":"int64","versions":"0+","default":"-1"},{"name":"CurrentMetadataOffset","type":"int64","versions":"0+"},{"name":"WantFence","type":"bool","versions":"0+"},{"name":"WantShutDown","type":"bool","versions":"0+"},{"name":"OfflineLogDirs","type":"[]uuid","versions":"1+","taggedVersions":"1+","tag":0},{"name":"CordonedLogDirs","type":"[]uuid","versions":"2+","taggedVersions":"2+","tag":1,"nullableVersions":"2+","default":"null"}]}'

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        current_metadata_offset: int = 0,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: list[bytes] = EMPTY,
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.current_metadata_offset = current_metadata_offset
        self.want_fence = want_fence
        self.want_shut_down = want_shut_down
        self.offline_log_dirs = [] if offline_log_dirs is EMPTY else offline_log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
