"""The settings of remote stores."""

from __future__ import annotations

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.remote._tests.kit import RECORDS, fetched, files, segment
from kafkacompat.remote.ports import RemoteStorageManager
from kafkacompat.remote.stores import LOCAL_TIERED_STORAGE, open_store


def store(disk: MemoryDisk, class_name: str, **settings: str) -> RemoteStorageManager:
    named = {f"rsm.config.{name}": value for name, value in settings.items()}
    named["remote.log.storage.manager.class.name"] = class_name
    return open_store(ServerConfig.from_properties(defaults_without_file(), named), disk)


def test_the_class_name_of_local_tiered_storage_means_the_folder() -> None:
    disk = MemoryDisk()
    disk.make_directory("/tier")
    opened = store(disk, LOCAL_TIERED_STORAGE, dir="/tier")
    opened.copy_log_segment_data(segment(), files(disk, "/log"))
    assert fetched(opened, segment()) == RECORDS
    opened.close()
    assert disk.list_directory("/tier/kafka-tiered-storage") == ["orders.v1-3-AAECAwQFBgcICQoLDA0ODw"]


def test_the_folder_is_named() -> None:
    with pytest.raises(ConfigError, match=r"rsm\.config\.dir"):
        store(MemoryDisk(), LOCAL_TIERED_STORAGE)
    with pytest.raises(ConfigError, match="absolute path"):
        store(MemoryDisk(), LOCAL_TIERED_STORAGE, dir="tier")


def test_a_class_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"org\.example\.Store"):
        store(MemoryDisk(), "org.example.Store")
