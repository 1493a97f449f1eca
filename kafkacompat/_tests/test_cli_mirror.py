"""What `kafkacompat mirror` takes over from a source."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from kafkacompat.cli import mirror
from kafkacompat.cli.mirror import (
    EPOCH_MAX,
    EPOCHS,
    MirrorTopic,
    copy_offsets,
    first_epoch,
    is_taken_over,
    refuse_to_turn_back,
    source_of,
    why_it_stands,
)
from kafkacompat.config import topic_keys
from kafkacompat.config.topic import (
    MIRROR_BOOTSTRAP_SERVERS,
    MIRROR_LEADER_EPOCH,
    MIRROR_NAME,
    MIRROR_STATE,
    MIRROR_TOPIC_ID,
    validate_topic_configs,
)
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkacompat.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


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


def test_every_setting_of_mirrors_has_a_name_in_the_code() -> None:
    settings = {name for name in topic_keys() if name.startswith("mirror.")}
    assert settings == {
        MIRROR_BOOTSTRAP_SERVERS,
        MIRROR_LEADER_EPOCH,
        MIRROR_NAME,
        MIRROR_STATE,
        MIRROR_TOPIC_ID,
    }


HERE = MetadataResponseTopic(name="t", topic_id=bytes(15) + b"\1", partitions=topic(0, 0).partitions)
THEIRS = {"mirror.source.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ", "mirror.state": "stopped"}


@pytest.mark.parametrize(
    ("own", "theirs", "partitions", "reason"),
    [
        ({}, THEIRS, 2, None),
        ({"mirror.state": "stopped", "cleanup.policy": "delete"}, THEIRS, 3, None),
        ({"mirror.state": "paused"}, THEIRS, 2, "is a mirror already"),
        ({}, {}, 2, "was not mirrored from this cluster"),
        ({}, {**THEIRS, "mirror.source.topic.id": "x"}, 2, "was not mirrored from this cluster"),
        ({}, {**THEIRS, "mirror.state": "mirroring"}, 2, "it is mirroring there"),
        ({}, THEIRS, 1, "has 2 partitions here and 1 at the source"),
        ({"cleanup.policy": "compact,delete"}, THEIRS, 2, "is compacted"),
    ],
)
def test_a_topic_turns_back_to_what_has_mirrored_it_and_taken_over(
    own: dict[str, str], theirs: dict[str, str], partitions: int, reason: str | None
) -> None:
    there = topic(*[0] * partitions)
    if reason is None:
        refuse_to_turn_back(HERE, there, own, theirs)
        return
    with pytest.raises(CommandFailed, match=reason):
        refuse_to_turn_back(HERE, there, own, theirs)


ID = bytes(15) + b"\1"


def at_source(
    *, error: int = 0, topic_id: bytes = ID, leader: int = 1, epoch: int = 3
) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return MetadataResponseTopic(error_code=error, name="t", topic_id=topic_id, partitions=[partition])


@pytest.mark.parametrize(
    ("there", "index", "leader", "state", "reason"),
    [
        (at_source(), 0, 1, "mirroring", ""),
        (at_source(topic_id=bytes(16)), 0, 1, "paused", ""),
        (at_source(), 0, -1, "mirroring", "no leader here"),
        (None, 0, 1, "mirroring", "the source does not answer"),
        (at_source(error=3), 0, 1, "mirroring", "answers UNKNOWN_TOPIC_OR_PARTITION"),
        (at_source(topic_id=bytes(16)), 0, 1, "mirroring", "made again at the source"),
        (at_source(), 1, 1, "mirroring", "has no such partition"),
        (at_source(leader=-1), 0, 1, "mirroring", "no leader at the source"),
        (at_source(epoch=EPOCHS), 0, 1, "mirroring", "has reached mirror.leader.epoch"),
    ],
)
def test_a_partition_that_stands_still_has_a_reason(
    there: MetadataResponseTopic | None, index: int, leader: int, state: str, reason: str
) -> None:
    here = MetadataResponsePartition(partition_index=index, leader_id=leader)
    followed = MirrorTopic("t", "m", "source:1", state, THEIRS["mirror.source.topic.id"], EPOCHS)
    found = why_it_stands(followed, here, there)
    assert reason in found if reason else not found


def test_a_topic_that_took_over_last_does_not_turn_back() -> None:
    """As after a turn back that was stopped. The controller would refuse it when other topics have turned."""
    here = MetadataResponseTopic(name="t", topic_id=HERE.topic_id, partitions=topic(5, 2 << 20).partitions)
    with pytest.raises(CommandFailed, match="has taken over later than the source"):
        refuse_to_turn_back(here, topic(1 << 20, (1 << 20) + 3), {}, THEIRS)
    refuse_to_turn_back(here, topic(2 << 20, 0), {}, THEIRS)


class OneGroup:
    """A cluster with topic t, in which group g has committed these offsets."""

    def __init__(self, *offsets: OffsetFetchResponsePartitions) -> None:
        self._offsets = list(offsets)
        self.commits: list[OffsetCommitRequestPartition] = []

    def __enter__(self) -> OneGroup:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def metadata(self, topics: list[str]) -> MetadataResponse:
        return MetadataResponse(topics=[at_source()])

    def coordinator_call(self, group: str, request: Any, *_: object, **__: object) -> Any:
        if not isinstance(request, OffsetCommitRequest):
            topics = [OffsetFetchResponseTopics(name="t", partitions=self._offsets)]
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group, topics=topics)])
        (asked,) = request.topics
        self.commits += asked.partitions
        done = [
            OffsetCommitResponsePartition(partition_index=each.partition_index) for each in asked.partitions
        ]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=done)])


def test_offsets_are_copied_with_their_leader_epochs_and_their_metadata(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the brokers copy them, whose copies the command replaces right before a stop."""
    there = [
        OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=offset, committed_leader_epoch=3, metadata=metadata
        )
        for number, offset, metadata in ((0, 5, "of an application"), (1, 11, ""), (2, -1, None))
    ]
    here, source = OneGroup(), OneGroup(*there)
    followed = MirrorTopic("t", "m", "source:1", "mirroring", THEIRS["mirror.source.topic.id"], EPOCHS)
    monkeypatch.setattr(mirror, "topics_of", lambda *_: [followed])
    monkeypatch.setattr(mirror, "end_offsets", lambda *_: dict.fromkeys(range(3), 10))
    monkeypatch.setattr(mirror, "source_of", lambda *_: source)
    monkeypatch.setattr(mirror, "groups_of", lambda _: ["g"])
    copying: Any = here
    copy_offsets(copying, Namespace(mirror="m", source_config=None))
    assert here.commits == [
        OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=5,
            committed_leader_epoch=3,
            committed_metadata="of an application",
        )
    ]
    assert capsys.readouterr().out.splitlines()[1].split() == ["g", "t", "1", "-", "1"]


@pytest.mark.parametrize(
    ("servers", "config", "reason"),
    [
        ("source:1,source", None, "the source of a mirror is HOST:PORT.*, not 'source'"),
        ("source:1", "/none", "cannot read the file /none of --source-config: No such file"),
    ],
)
def test_what_is_wrong_with_the_way_to_a_source_is_told_of_the_source(
    servers: str, config: str | None, reason: str
) -> None:
    with pytest.raises(CommandFailed, match=reason):
        source_of(servers, config)
