"""Records applied to an image: Kafka's own log, every record type, transactions, and fatal errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.features import LATEST_METADATA_VERSION, METADATA_VERSION
from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.controller.metadata_delta import (
    _REPLAY,
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    END_TRANSACTION,
    Replayer,
)
from kafkacompat.controller.partition_change_builder import Election, PartitionChangeBuilder
from kafkacompat.controller.records import MetadataRecord, RecordClasses, ReplayError, frame, unframe
from kafkacompat.controller.snapshot_records import image_records
from kafkacompat.ids import DIRECTORY_UNASSIGNED
from kafkacompat.raft.snapshot import batch_records
from kafkacompat.records.batch import iterate_batches
from kafkacompat.wire.apis import metadata_record_class
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.abort_transaction_record import AbortTransactionRecord
from kafkacompat.wire.messages.access_control_entry_record import AccessControlEntryRecord
from kafkacompat.wire.messages.begin_transaction_record import BeginTransactionRecord
from kafkacompat.wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkacompat.wire.messages.clear_elr_record import ClearElrRecord
from kafkacompat.wire.messages.client_quota_record import ClientQuotaRecord, EntityData
from kafkacompat.wire.messages.config_record import ConfigRecord
from kafkacompat.wire.messages.delegation_token_record import DelegationTokenRecord
from kafkacompat.wire.messages.end_transaction_record import EndTransactionRecord
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.fence_broker_record import FenceBrokerRecord
from kafkacompat.wire.messages.no_op_record import NoOpRecord
from kafkacompat.wire.messages.partition_change_record import PartitionChangeRecord
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.producer_ids_record import ProducerIdsRecord
from kafkacompat.wire.messages.register_broker_record import RegisterBrokerRecord
from kafkacompat.wire.messages.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from kafkacompat.wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from kafkacompat.wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord
from kafkacompat.wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kafkacompat.wire.messages.topic_record import TopicRecord
from kafkacompat.wire.messages.unfence_broker_record import UnfenceBrokerRecord
from kafkacompat.wire.messages.unregister_broker_record import UnregisterBrokerRecord
from kafkacompat.wire.messages.unregister_controller_record import UnregisterControllerRecord
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkacompat.wire.messages.zk_migration_state_record import ZkMigrationStateRecord
from kafkacompat.wire.tables import METADATA_RECORDS

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.3.0-metadata.log"
ID = b"\x01" * 16


def apply(base: MetadataImage, *messages: Message) -> MetadataImage:
    replayer = Replayer(base)
    replayer.apply([(message.API_KEY or 0, message) for message in messages])
    return replayer.publish(base.offset + len(messages), 1)


def golden_values() -> list[bytes]:
    data = memoryview(GOLDEN.read_bytes())
    return [
        record.value or b""
        for header in iterate_batches(data)
        if not header.is_control
        for record in batch_records(data, header)
    ]


def golden_image() -> MetadataImage:
    core = ControllerCore(None)  # type: ignore[arg-type]  # loading reads no setting
    core.load_values(golden_values())
    return core.finish_loading(148, 3)


def test_every_record_of_kafka_is_written_back_byte_for_byte() -> None:
    classes = RecordClasses()
    values = golden_values()
    assert len(values) > 100
    for value in values:
        _, message = unframe(value, classes)
        assert frame(MetadataRecord(message, value[2])) == value


def test_the_image_of_kafkas_log() -> None:
    image = golden_image()
    assert sorted(image.topics) == ["__consumer_offsets", "t1"]
    assert image.config(2, "t1") == {"cleanup.policy": "compact", "retention.ms": "1000000"}
    assert image.next_producer_id == 1000
    broker = image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.in_controlled_shutdown, broker.cordoned_directories) == (
        124,
        True,
        True,
        (),
    )
    partition = image.topics["t1"].partitions[0]
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (1,))
    assert (partition.last_known_elr, partition.leader_epoch, partition.partition_epoch) == ((1,), 5, 6)


@pytest.mark.parametrize("is_rich", [True, False], ids=["rich", "empty"])
def test_an_image_survives_its_own_snapshot(is_rich: bool) -> None:
    """Also an empty one: with an additional metadata.version, no controller would write a new log's first records."""
    image = rich_image() if is_rich else MetadataImage(offset=0, epoch=1)
    core = ControllerCore(None)  # type: ignore[arg-type]  # loading reads no setting
    core.load_values([frame(record) for record in image_records(image)])
    assert core.finish_loading(image.offset, image.epoch) == image


def rich_image() -> MetadataImage:
    """Each field of what a snapshot has is set somewhere."""
    return apply(
        golden_image(),
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION),
        RegisterBrokerRecord(broker_id=2, fenced=False),
        RegisterControllerRecord(
            controller_id=1,
            incarnation_id=ID,
            zk_migration_ready=True,
            end_points=[ControllerEndpoint(name="C")],
            features=[ControllerFeature(name="f")],
        ),
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=9.5
        ),
        AccessControlEntryRecord(
            id=ID,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        DelegationTokenRecord(
            owner="User:a",
            requester="User:a",
            renewers=["User:b"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="t",
        ),
        TopicRecord(name="many", topic_id=ID),
        *[
            PartitionRecord(
                partition_id=i,
                topic_id=ID,
                replicas=[1, 2],
                isr=[1],
                removing_replicas=[2],
                adding_replicas=[1],
                leader=1,
                leader_epoch=3,
                partition_epoch=4,
            )
            for i in range(3)
        ],
        ConfigRecord(resource_type=4, resource_name="1", name="log.cleaner.threads", value="2"),
    )


OF_OTHERS = {
    UnregisterBrokerRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    BrokerRegistrationChangeRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    ClearElrRecord,
    UnregisterControllerRecord,
}
"""Records that a snapshot has not: they change or remove what others have made, or nothing."""
ALWAYS_DEFAULT = {
    (RegisterBrokerRecord, "is_migrating_zk_broker"),
    (ClientQuotaRecord, "remove"),
    (ProducerIdsRecord, "broker_epoch"),
}
"""Fields that no record of a snapshot sets."""


def test_each_kind_of_record_is_replayed() -> None:
    transactions = {BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION}
    assert METADATA_RECORDS.keys() == _REPLAY.keys() | transactions


def test_a_snapshot_has_each_kind_of_record_with_each_field() -> None:
    """Together with `test_an_image_survives_its_own_snapshot`: whatever a record brings stays."""
    untold: dict[type[Message], set[str]] = {}
    for record in image_records(rich_image()):
        message, default = record.message, type(record.message)()
        assert record.version == message.MAX_VERSION, f"{message} at the newest metadata.version"
        left = untold.setdefault(type(message), set(message.field_names()))
        left -= {name for name in left if getattr(message, name) != getattr(default, name)}
    assert untold.keys() == {metadata_record_class(number) for number in METADATA_RECORDS} - OF_OTHERS
    assert {(kind, name) for kind, names in untold.items() for name in names} == ALWAYS_DEFAULT


def test_what_is_not_served_is_kept_and_can_be_removed() -> None:
    image = rich_image()
    assert {kind: len(kept) for kind, kept in image.opaque.items()} == {
        "controllers": 1,
        "client_quotas": 1,
        "scram_credentials": 1,
        "delegation_tokens": 1,
    }
    emptied = apply(
        image,
        ClientQuotaRecord(
            entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", remove=True
        ),
        RemoveAccessControlEntryRecord(id=ID),
        RemoveUserScramCredentialRecord(name="u", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t"),
    )
    assert list(emptied.opaque) == ["controllers"]
    assert len(image.opaque) == 4
    assert (len(image.acls), len(emptied.acls)) == (1, 0)


def test_brokers_come_change_and_go() -> None:
    image = apply(MetadataImage(), RegisterBrokerRecord(broker_id=3, broker_epoch=9, log_dirs=[ID]))
    assert image.brokers[3].fenced
    assert not apply(image, UnfenceBrokerRecord(id=3, epoch=9)).brokers[3].fenced
    open_image = apply(image, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=9, fenced=-1))
    assert not open_image.brokers[3].fenced
    assert apply(open_image, FenceBrokerRecord(id=3, epoch=9)).brokers[3].fenced
    changed = apply(
        open_image,
        BrokerRegistrationChangeRecord(
            broker_id=3,
            broker_epoch=9,
            in_controlled_shutdown=1,
            log_dirs=[b"\x02" * 16],
            cordoned_log_dirs=[ID],
        ),
    ).brokers[3]
    assert (changed.in_controlled_shutdown, changed.directories, changed.cordoned_directories) == (
        True,
        (b"\x02" * 16,),
        (ID,),
    )
    assert apply(image, UnregisterBrokerRecord(broker_id=3, broker_epoch=9)).brokers == {}
    for record in (
        UnregisterBrokerRecord(broker_id=3, broker_epoch=8),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=8),
        BrokerRegistrationChangeRecord(broker_id=4, broker_epoch=9),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=9, fenced=5),
        RegisterBrokerRecord(broker_id=3, is_migrating_zk_broker=True),
    ):
        with pytest.raises(ReplayError):
            apply(image, record)


def test_an_earlier_image_never_changes() -> None:
    before = golden_image()
    shape = (
        dict(before.topics),
        dict(before.configs),
        dict(before.brokers),
        dict(before.topics["t1"].partitions),
    )
    topic = before.topics["t1"]
    apply(
        before,
        PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=[1], leader=1),
        ConfigRecord(resource_type=2, resource_name="t1", name="retention.ms", value=None),
        RemoveTopicRecord(topic_id=before.topics["__consumer_offsets"].id),
        ProducerIdsRecord(next_producer_id=5000),
        NoOpRecord(),
        ZkMigrationStateRecord(),
    )
    assert (
        dict(before.topics),
        dict(before.configs),
        dict(before.brokers),
        dict(before.topics["t1"].partitions),
    ) == shape


def test_a_topic_removed_and_made_again_in_one_batch() -> None:
    image = rich_image()
    again = apply(
        image,
        ConfigRecord(resource_type=2, resource_name="many", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="many", topic_id=b"\x09" * 16),
        PartitionRecord(partition_id=0, topic_id=b"\x09" * 16, replicas=[1], isr=[1], leader=1),
    )
    assert again.topics["many"].id == b"\x09" * 16
    assert len(again.topics["many"].partitions) == 1
    assert ID not in again.topics_by_id
    assert again.config(2, "many") == {}


def test_clear_elr_of_one_topic_and_of_all() -> None:
    image = golden_image()
    one = apply(image, ClearElrRecord(topic_name="t1"))
    assert one.topics["t1"].partitions[0].eligible_leader_replicas == ()
    assert one.topics["__consumer_offsets"].partitions[0].eligible_leader_replicas == (1,)
    every = apply(image, ClearElrRecord(topic_name=""))
    assert all(
        not p.eligible_leader_replicas and not p.last_known_elr
        for t in every.topics.values()
        for p in t.partitions.values()
    )
    with pytest.raises(ReplayError):
        apply(image, ClearElrRecord(topic_name="none"))


def test_transactions_show_at_their_end_and_never_when_aborted() -> None:
    replayer = Replayer(MetadataImage())
    begin, topic = BeginTransactionRecord(name="x"), TopicRecord(name="t", topic_id=ID)
    replayer.apply([(23, begin), (2, topic)])
    assert replayer.publish(1, 1).topics == {}
    assert replayer.in_transaction
    copy = replayer.copy()
    replayer.apply([(24, EndTransactionRecord())])
    assert list(replayer.publish(2, 1).topics) == ["t"]
    copy.apply([(25, AbortTransactionRecord(reason="y"))])
    assert copy.publish(2, 1).topics == {}
    for wrong in ([(24, EndTransactionRecord())], [(23, begin), (23, begin)]):
        with pytest.raises(ReplayError):
            replayer.copy().apply(wrong)


def test_the_epoch_of_the_features_is_where_they_changed_last() -> None:
    replayer = Replayer(MetadataImage())
    level = FeatureLevelRecord(name="metadata.version", feature_level=33)
    assert replayer.publish(1, 1).features_epoch == -1
    replayer.apply([(12, level)])
    assert replayer.publish(4, 1).features_epoch == 4
    replayer.apply([(2, TopicRecord(name="t", topic_id=ID))])
    assert replayer.publish(6, 1).features_epoch == 4
    replayer.set_kraft_version(1)
    assert replayer.publish(7, 1).features_epoch == 4
    replayer.apply([(12, level)])
    assert replayer.publish(9, 2).features_epoch == 9, "a record counts although the level stays"
    assert replayer.publish(10, 2).features_epoch == 9


@pytest.mark.parametrize("level", [0, 1])
def test_a_feature_record_of_kraft_version_changes_nothing(level: int) -> None:
    """Logs of earlier releases have such records, although the quorum has another level (KAFKA-18979)."""
    record = FeatureLevelRecord(name="kraft.version", feature_level=level)
    assert "kraft.version" not in apply(MetadataImage(), record).features
    replayer = Replayer(MetadataImage())
    replayer.set_kraft_version(1)
    replayer.apply([(12, record)])
    assert replayer.publish(1, 1).features["kraft.version"] == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x63\x00", "type 99"),
        (b"\x01\x06\x00", "type 6"),
        (b"\x01\x03\x09", "version 9"),
        (b"\x01", "cut short"),
        (b"\x01\x02\x00\xff", "broken"),
    ],
)
def test_what_kafka_4_4_does_not_know_is_fatal(value: bytes, reason: str) -> None:
    with pytest.raises(ReplayError, match=reason):
        unframe(value, RecordClasses())


@pytest.mark.parametrize(
    ("name", "level"),
    [("metadata.version", 34), ("metadata.version", 6), ("share.version", 3), ("new.version", 1)],
)
def test_a_feature_level_beyond_ours_is_fatal(name: str, level: int) -> None:
    with pytest.raises(ReplayError, match=f"{name} at level {level}"):
        apply(MetadataImage(), FeatureLevelRecord(name=name, feature_level=level))


def test_the_registration_of_a_controller_goes() -> None:
    image = apply(
        MetadataImage(),
        *(RegisterControllerRecord(controller_id=each, incarnation_id=ID) for each in (1, 2)),
    )
    gone = UnregisterControllerRecord(controller_id=2)
    left = apply(image, gone)
    assert set(left.controllers) == {1}
    with pytest.raises(ReplayError, match="names controller 2, which is not registered"):
        apply(left, gone)


IDS = st.sampled_from([1, 2, 3, 4])


@st.composite
def partitions(draw: st.DrawFn) -> PartitionRegistration:
    replicas = tuple(draw(st.lists(IDS, min_size=1, max_size=4, unique=True)))
    isr = tuple(each for each in replicas if draw(st.booleans()))
    elr = tuple(sorted(each for each in replicas if each not in isr and draw(st.booleans())))
    leader = draw(st.sampled_from((*isr, -1))) if isr else -1
    last_known = (replicas[0],) if leader == -1 and draw(st.booleans()) else ()
    return PartitionRegistration(
        replicas, (ID,) * len(replicas), isr, (), (), elr, last_known, leader, draw(st.booleans()), 3, 7
    )


@given(
    partitions(),
    st.frozensets(IDS),
    st.frozensets(IDS, max_size=1),
    st.sampled_from(list(Election)),
    st.integers(1, 3),
)
def test_a_change_never_leaves_an_impossible_partition(
    partition: PartitionRegistration,
    alive: frozenset[int],
    unclean: frozenset[int],
    election: Election,
    min_isr: int,
) -> None:
    change = PartitionChangeBuilder(
        partition=partition,
        topic_id=ID,
        index=0,
        is_acceptable_leader=lambda replica: replica in alive and replica not in unclean,
        metadata_version=30,
        min_isr=min_isr,
        elr_enabled=True,
        default_dir=lambda replica: DIRECTORY_UNASSIGNED,
        target_isr=tuple(each for each in partition.isr if each in alive and each not in unclean),
        election=election,
        unclean_shutdown_replicas=unclean,
    )
    written = change.build()
    record = None if written is None else written.message
    assert record is None or isinstance(record, PartitionChangeRecord)
    after = partition if record is None else partition.merge(record)
    assert after.leader == -1 or after.leader in after.isr
    assert after.leader == -1 or (after.leader in alive and after.leader not in unclean)
    assert set(after.isr) <= set(after.replicas)
    assert not set(after.isr) & set(after.eligible_leader_replicas)
    assert not unclean & set(after.eligible_leader_replicas)
    if record is not None:
        assert after.partition_epoch == partition.partition_epoch + 1
        assert (after.leader_epoch > partition.leader_epoch) == (record.leader != -2)
        again = replace(change, partition=after, target_isr=after.isr, election=Election.ONLINE).build()
        if again is not None and election is Election.ONLINE:
            assert isinstance(again.message, PartitionChangeRecord)
            assert again.message.leader in (-2, -1)
