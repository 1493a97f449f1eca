"""What `kafkacompat mirror` takes over from a source."""

from __future__ import annotations

import pytest

from kafkacompat.cli.mirror import EPOCH_MAX, EPOCHS, first_epoch, is_taken_over
from kafkacompat.config import topic_keys
from kafkacompat.config.topic import validate_topic_configs
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic


def topic(*epochs: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name="t", partitions=[MetadataResponsePartition(leader_epoch=epoch) for epoch in epochs]
    )


@pytest.mark.parametrize(
    ("highest", "first"), [(0, EPOCHS), (EPOCHS - 1, EPOCHS), (EPOCHS, 2 * EPOCHS), (EPOCHS + 7, 2 * EPOCHS)]
)
def test_the_epochs_of_a_mirror_are_above_all_of_its_source(highest: int, first: int) -> None:
    assert first_epoch(topic(0, highest)) == first


def test_the_last_epochs_cannot_be_mirrored() -> None:
    assert first_epoch(topic(EPOCH_MAX - 1)) == EPOCH_MAX
    validate_topic_configs({"mirror.leader.epoch": str(EPOCH_MAX)})
    with pytest.raises(CommandFailed, match="needs higher ones"):
        first_epoch(topic(EPOCH_MAX))


def test_settings_that_concern_the_other_brokers_stay_there() -> None:
    stay = {name for name in topic_keys() if not is_taken_over(name)}
    assert {"mirror.state", "remote.storage.enable", "follower.replication.throttled.replicas"} <= stay
    assert not {"cleanup.policy", "retention.ms", "max.message.bytes"} & stay
    assert not is_taken_over("a.setting.of.another.release")
