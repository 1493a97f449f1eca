"""The settings of remote stores."""

from __future__ import annotations

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.remote._tests.kit import RECORDS, fetched, files, segment
from kafkacompat.remote.ports import RemoteStorageManager
from kafkacompat.remote.s3_storage import S3Settings
from kafkacompat.remote.stores import LOCAL_TIERED_STORAGE, S3_STORAGE, open_store


def store(disk: MemoryDisk, class_name: str, **settings: str) -> RemoteStorageManager:
    named = {f"rsm.config.{name}": value for name, value in settings.items()}
    named["remote.log.storage.manager.class.name"] = class_name
    return open_store(ServerConfig.from_properties(defaults_without_file(), named), "cluster", disk)


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


def test_a_bucket_is_named_with_both_keys_or_none() -> None:
    for settings, wrong in (
        ({}, "s3.bucket"),
        ({"s3.bucket": "b", "s3.access.key.id": "k"}, "s3.access.key.id"),
        ({"s3.bucket": "b", "s3.secret.access.key": "hidden"}, "s3.access.key.id"),
        ({"s3.bucket": "b", "s3.endpoint": "host:9000"}, "s3.endpoint"),
        ({"s3.bucket": "b", "s3.timeout.ms": "soon"}, "s3.timeout.ms"),
        ({"s3.bucket": "b", "s3.timeout.ms": "0"}, "s3.timeout.ms"),
    ):
        with pytest.raises(ConfigError, match="rsm.config." + wrong) as raised:
            store(MemoryDisk(), S3_STORAGE, **settings)
        assert "hidden" not in str(raised.value)
    store(MemoryDisk(), S3_STORAGE, **{"s3.bucket": "b"}).close()


def test_settings_show_no_secret() -> None:
    settings = S3Settings.from_properties(
        {"s3.bucket": "b", "s3.access.key.id": "k", "s3.secret.access.key": "hidden"}, "s3."
    )
    assert settings.secret_access_key == "hidden"
    assert "hidden" not in repr(settings)
