"""A setting without effect is logged once, whichever resource has it. A setting with an effect is never logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafkacompat.config import ConfigError
from kafkacompat.controller.image import MetadataImage
from kafkacompat.node.settings import SettingNotices
from kafkacompat.wire.config_resources import ConfigResourceType

TOPIC, BROKER, GROUP = (
    int(ConfigResourceType.TOPIC),
    int(ConfigResourceType.BROKER),
    int(ConfigResourceType.GROUP),
)


def with_configs(configs: Mapping[tuple[int, str], Mapping[str, str]]) -> MetadataImage:
    return replace(MetadataImage(), configs=configs)


def test_what_has_no_effect_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    notices = SettingNotices(1)
    old = MetadataImage()
    new = with_configs(
        {
            (TOPIC, "a"): {"preallocate": "true", "retention.ms": "1"},
            (TOPIC, "b"): {"preallocate": "true"},
            (BROKER, ""): {"num.io.threads": "2", "message.max.bytes": "1", "not.kafkas": "1"},
            (BROKER, "1"): {"listener.name.x.sasl.kerberos.kinit.cmd": "f"},
            (BROKER, "2"): {"background.threads": "4"},
            (GROUP, "g"): {"streams.assignor.name": "sticky"},
        }
    )
    notices.on_image(old, new, {})
    told = {record.getMessage().split(" is accepted")[0] for record in caplog.records}
    assert told == {
        "the topic setting preallocate",
        "the broker setting num.io.threads",
        "the broker setting listener.name.x.sasl.kerberos.kinit.cmd",
        "the group setting streams.assignor.name",
    }
    assert len(caplog.records) == 4
    notices.on_image(new, with_configs({(TOPIC, "c"): {"preallocate": "false"}}), {})
    assert len(caplog.records) == 4


def test_what_is_left_out_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    notices = SettingNotices(1)
    new = with_configs({(BROKER, ""): {"message.max.bytes": "x"}})
    refused = {"message.max.bytes": ConfigError("message.max.bytes", "x", "expected a whole number")}
    notices.on_image(MetadataImage(), new, refused)
    (record,) = caplog.records
    assert "message.max.bytes" in record.getMessage()
    assert "expected a whole number" in record.getMessage()
