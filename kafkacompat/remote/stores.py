"""Which remote store the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.remote.local_tiered_storage import LocalTieredStorage

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ports import Disk
    from kafkacompat.remote.ports import RemoteStorageManager

CLASS_NAME = "remote.log.storage.manager.class.name"
LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
"""Apache Kafka's name for the folder."""
S3_STORAGE = "kafkacompat.remote.s3_storage.S3Storage"


def open_store(config: ServerConfig, cluster_id: str, disk: Disk) -> RemoteStorageManager:
    """The store. `disk`: of the node's logs. Raises ConfigError for a class name that is not known, and for settings of the
    store that are missing."""
    name = config.get_string(CLASS_NAME)
    prefix = config.get_string("remote.log.storage.manager.impl.prefix") or ""
    if name == LOCAL_TIERED_STORAGE:
        directory = config.originals.get(f"{prefix}dir", "")
        if not directory.startswith("/"):
            raise ConfigError(f"{prefix}dir", directory or None, "Must be the absolute path of a folder")
        return LocalTieredStorage(disk, directory)
    if name == S3_STORAGE:
        try:
            from kafkacompat.remote.s3_storage import S3Settings, S3Storage
        except ModuleNotFoundError as error:
            raise ConfigError(CLASS_NAME, name, "Needs the extra kafkacompat[s3]") from error

        return S3Storage(disk, S3Settings.from_properties(config.originals, f"{prefix}s3."), cluster_id)
    raise ConfigError(CLASS_NAME, name, f"Must be {LOCAL_TIERED_STORAGE} or {S3_STORAGE}")
