"""The local controller from an empty log to topics, restarts and kill -9, compared with records that Kafka 4.3.0
wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.api.request_context import NotController
from kafkacompat.controller._tests.clusters import settings
from kafkacompat.controller._tests.harness import (
    DIRECTORY,
    DIRECTORY_ID,
    HEARD_ON,
    Harness,
    context,
    registration,
)
from kafkacompat.controller.core import ControllerCore, bootstrap_values
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.liveness import PROBE_AGAIN_MS
from kafkacompat.controller.reach import AGAIN_MS, Probed
from kafkacompat.controller.records import MetadataRecord, frame_all
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.disk import RealDisk
from kafkacompat.raft.contracts import MetadataLogProblem
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.snapshot import SnapshotContent, format_snapshot, snapshot_file_name
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkacompat.wire.messages.begin_transaction_record import BeginTransactionRecord
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.feature_level_record import FeatureLevelRecord
from kafkacompat.wire.messages.topic_record import TopicRecord

GOLDEN = Path(__file__).parent / "golden"


def create(harness: Harness, name: str, partitions: int = 1, **configs: str) -> int:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )
    answer = harness.call(harness.controller.create_topics, request)
    return int(answer.topics[0].error_code)


def names(messages: list[object]) -> list[str]:
    return [type(message).__name__ for message in messages]


def test_first_start_writes_bootstrap_records_as_kafka_does() -> None:
    harness = Harness().start()
    assert names(harness.messages()) == [
        "BeginTransactionRecord",
        *["FeatureLevelRecord"] * 6,
        "ConfigRecord",
        "EndTransactionRecord",
    ]
    assert harness.image.features["metadata.version"] == 33
    assert harness.image.config(4, "") == {"min.insync.replicas": "1"}
    assert harness.image.offset == harness.log.log_end_offset - 1
    assert harness.log.log.high_watermark == harness.log.log_end_offset


def test_a_topic_is_visible_before_its_reply_and_not_before_it_is_durable() -> None:
    harness = Harness().start()
    harness.serve()
    before = harness.image
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=1)])
    answer = harness.controller.create_topics(request, context())
    assert not answer.done
    assert harness.image is before
    seen: list[bool] = []
    answer.on_done(lambda done: seen.append("t" in harness.image.topics))
    harness.workers.run_all()
    assert seen == [True]
    topic = harness.image.topics["t"]
    assert sorted(topic.partitions) == [0, 1, 2]
    assert topic.partitions[0].leader == 1
    assert topic.partitions[0].isr == (1,)
    assert harness.image.topics_by_id[topic.id] is topic


def test_commands_that_wait_for_the_disk_share_one_sync() -> None:
    harness = Harness().start()
    harness.serve()
    synced: list[str] = []
    harness.disk.refuse = lambda operation, path: synced.append(path) if operation == "sync" else None
    requests = [
        CreateTopicsRequest(topics=[CreatableTopic(name=f"t{i}", num_partitions=1, replication_factor=1)])
        for i in range(5)
    ]
    answers = [harness.controller.create_topics(request, None) for request in requests]  # type: ignore[arg-type]
    harness.workers.run_all()
    assert all(answer.done for answer in answers)
    assert len([path for path in synced if path.endswith(".log")]) == 2
    again = harness.call(harness.controller.create_topics, requests[0])
    assert again.topics[0].error_code == 36


def test_a_second_creation_sees_the_first_uncommitted_and_waits_for_it() -> None:
    harness = Harness().start()
    harness.serve()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    harness.controller.create_topics(request, context())
    second = harness.controller.create_topics(request, context())
    assert not second.done
    harness.workers.run_all()
    assert second.result().topics[0].error_code == 36


def test_delete_removes_topic_and_its_settings() -> None:
    harness = Harness().start()
    harness.serve()
    assert create(harness, "t", 2, retention_ms="5000") == 0
    assert harness.image.config(2, "t") == {"retention.ms": "5000"}
    answer = harness.call(
        harness.controller.delete_topics, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    )
    assert answer.responses[0].error_code == 0
    assert harness.image.topics == {}
    assert harness.image.topics_by_id == {}
    assert (2, "t") not in harness.image.configs


def test_create_partitions_echoes_its_topics() -> None:
    harness = Harness().start()
    harness.serve()
    create(harness, "t", 1)
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="t", count=3, assignments=None),
            CreatePartitionsTopic(name="none", count=3, assignments=None),
        ]
    )
    answer = harness.call(harness.controller.create_partitions, request)
    assert [(each.name, each.error_code) for each in answer.results] == [("t", 0), ("none", 3)]
    assert sorted(harness.image.topics["t"].partitions) == [0, 1, 2]


def test_clean_restart_elects_from_the_eligible_leaders_as_kafka_does() -> None:
    first = Harness().start()
    epoch = first.serve()
    create(first, "t", 2)
    start = first.log.log_end_offset
    assert not first.beat(epoch, want_shut_down=True).should_shut_down
    assert first.beat(epoch, want_shut_down=True).should_shut_down
    down = first.messages(start)
    assert names(down) == [
        "BrokerRegistrationChangeRecord",
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    assert (down[0].in_controlled_shutdown, down[3].fenced) == (1, 1)
    assert (down[1].isr, down[1].leader, down[1].eligible_leader_replicas, down[1].last_known_elr) == (
        [],
        -1,
        [1],
        [1],
    )
    second = first.after_kill().start()
    assert second.driver.epoch == 2
    start = second.log.log_end_offset
    second.serve(previous_broker_epoch=epoch, incarnation=2)
    up = second.messages(start)
    assert names(up) == [
        "RegisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    assert (up[2].isr, up[2].leader, up[2].eligible_leader_replicas, up[2].last_known_elr) == ([1], 1, [], [])
    assert up[2].leader_recovery_state == -1
    partition = second.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def test_kill_minus_nine_ends_in_the_state_that_kafka_ends_in() -> None:
    """Kafka writes it in two steps (session expiry, registration). The leader epoch and all fields are the same in the
    end."""
    first = Harness().start()
    first.serve()
    create(first, "t", 1)
    second = first.after_kill().start()
    start = second.log.log_end_offset
    second.serve(incarnation=2)
    written = second.messages(start)
    assert names(written)[:2] == ["PartitionChangeRecord", "RegisterBrokerRecord"]
    partition = second.image.topics["t"].partitions[0]
    assert partition.leader == 1
    assert partition.isr == (1,)
    assert partition.eligible_leader_replicas == ()
    assert partition.last_known_elr == ()
    assert partition.leader_recovering
    assert partition.leader_epoch == 2


def test_a_log_of_kafka_4_3_is_led_and_served() -> None:
    data = (GOLDEN / "kafka-4.3.0-metadata.log").read_bytes()
    directory_id = bytes.fromhex("afb27d6377a44b71bef7395fcf469cf0")
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    disk.files[f"{DIRECTORY}/{0:020d}.log"] = bytearray(data)
    harness = Harness(disk, directory_id=directory_id, listeners=(("CONTROLLER", "127.0.0.1", 19793),))
    harness.start()
    assert sorted(harness.image.topics) == ["__consumer_offsets", "t1"]
    assert harness.image.features["kraft.version"] == 1
    assert harness.driver.epoch == 4
    assert harness.image.next_producer_id == 1000
    assert b'"data_version":1' in harness.disk.files[f"{DIRECTORY}/quorum-state"]


def test_producer_id_blocks_follow_one_another() -> None:
    harness = Harness().start()
    epoch = harness.serve()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    answers = [harness.call(harness.controller.allocate_producer_ids, request) for _ in range(2)]
    assert [(each.producer_id_start, each.producer_id_len) for each in answers] == [(0, 1000), (1000, 1000)]


def test_snapshot_bounds_the_log_and_restores_the_same_image() -> None:
    first = Harness(max_bytes_between_snapshots=3000).start()
    first.serve()
    for index in range(20):
        create(first, f"t{index}", 2, retention_ms="5000")
    assert any(name.endswith(".checkpoint") for name in first.disk.files)
    assert first.log.log_start_offset > 0
    snapshot_end = first.log.log_start_offset
    second = first.after_kill().start()
    assert second.images[0].offset == snapshot_end - 1
    assert second.image.topics == first.image.topics
    assert second.image.configs == first.image.configs
    assert second.image.brokers == first.image.brokers


def test_a_failed_sync_halts_and_answers_nothing() -> None:
    harness = Harness().start()
    harness.serve()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    answer = harness.controller.create_topics(request, context())
    _, deferred = harness.workers.submitted.pop()
    deferred.fail(OSError("the disk is gone"))
    assert not answer.done
    assert [str(failure) for failure in harness.failures] == ["the disk is gone"]


def test_a_full_disk_refuses_the_command_and_nothing_of_it_stays() -> None:
    harness = Harness().start()
    harness.serve()
    harness.disk.failing = ".log"
    with pytest.raises(OSError, match="full"):
        create(harness, "t")
    harness.disk.failing = None
    assert create(harness, "t") == 0


def of_two_brokers() -> tuple[Harness, Harness]:
    """A node that has had another broker in its cluster, after a restart."""
    first = Harness().start()
    first.serve()
    first.serve(broker_id=2, incarnation=9)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=2)])
    first.call(first.controller.create_topics, request)
    second = first.after_kill().start()
    second.serve(incarnation=2)
    return first, second


def test_a_broker_that_is_heard_no_more_is_fenced_when_its_session_expires() -> None:
    _, second = of_two_brokers()
    second.world.advance(8_900)
    assert not second.image.brokers[2].fenced
    epoch = second.image.brokers[1].epoch
    second.beat(epoch)
    second.world.advance(200)
    second.workers.run_all()
    assert second.image.brokers[2].fenced
    assert not second.image.brokers[1].fenced
    assert {each.leader for each in second.image.topics["t"].partitions.values()} <= {1, -1}


def is_left(harness: Harness, broker_id: int = 2) -> bool:
    """Other brokers lead, and clients still see the broker."""
    harness.workers.run_all()
    broker = harness.image.brokers[broker_id]
    partitions = [each for topic in harness.image.topics.values() for each in topic.partitions.values()]
    is_left = broker.in_controlled_shutdown and not broker.fenced
    assert not is_left or all(broker_id != each.leader for each in partitions)
    return is_left


def test_a_broker_whose_process_is_gone_when_the_controller_comes_to_power_leads_no_more() -> None:
    _, second = of_two_brokers()
    ((host, port, refused),) = second.probes
    assert (host, port) == ("127.0.0.1", 9092)
    refused.resolve(Probed.REFUSED)
    assert is_left(second)


def with_one_gone() -> tuple[Harness, int]:
    """Brokers 1, 2 and 3, and a topic with two replicas. The process of broker 2, in the returned epoch, has ended
    since its last heartbeat."""
    harness = Harness().start()
    harness.serve()
    epoch = harness.serve(broker_id=2, incarnation=9)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=2)])
    harness.call(harness.controller.create_topics, request)
    harness.serve(broker_id=3, incarnation=11)
    harness.beat(epoch, broker_id=2)
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    return harness, epoch


def test_others_lead_at_once_and_clients_are_told_of_a_broker_until_its_session_would_have_expired() -> None:
    harness, _ = with_one_gone()
    assert is_left(harness)
    partitions = harness.image.topics["t"].partitions.values()
    assert {each.leader for each in partitions} == {1}
    assert {each.isr for each in partitions} == {(1,)}
    own = harness.image.brokers[1].epoch
    for _ in range(3):
        harness.world.advance(2_900)
        harness.beat(own)
    assert is_left(harness)
    harness.world.advance(400)
    harness.workers.run_all()
    assert harness.image.brokers[2].fenced
    assert not harness.image.brokers[1].fenced


def test_a_broker_that_is_gone_leads_and_is_in_sync_nowhere_that_is_made_meanwhile() -> None:
    harness, _ = with_one_gone()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=4, replication_factor=3)])
    answer = harness.call(harness.controller.create_topics, request)
    assert answer.topics[0].error_code == 0
    assert is_left(harness)
    assert {frozenset(each.isr) for each in harness.image.topics["n"].partitions.values()} == {
        frozenset((1, 3))
    }


def test_nobody_who_stops_waits_for_a_broker_that_is_gone() -> None:
    harness, _ = with_one_gone()
    epoch = harness.image.brokers[3].epoch
    own = harness.image.brokers[1].epoch
    harness.beat(epoch, broker_id=3, want_shut_down=True)
    harness.beat(own)
    assert harness.beat(epoch, broker_id=3, want_shut_down=True).should_shut_down


def test_a_broker_that_was_taken_for_gone_wrongly_is_counted_on_again_with_its_next_heartbeat() -> None:
    harness, epoch = with_one_gone()
    harness.workers.run_all()
    harness.beat(harness.image.brokers[1].epoch, want_fence=True)
    assert {each.leader for each in harness.image.topics["t"].partitions.values()} == {-1}
    before = harness.image.brokers[2]
    assert not harness.beat(epoch, broker_id=2).is_fenced
    back = harness.image.brokers[2]
    assert not back.in_controlled_shutdown
    assert (back.epoch, back.incarnation_id, back.endpoints, back.directories, back.fenced) == (
        before.epoch,
        before.incarnation_id,
        before.endpoints,
        before.directories,
        False,
    )
    start = harness.log.log_end_offset
    harness.beat(epoch, broker_id=2)
    assert harness.messages(start) == []


def test_a_broker_taken_for_gone_and_fenced_in_the_end_is_whole_again_when_it_is_heard() -> None:
    harness, epoch = with_one_gone()
    harness.world.advance(9_100)
    harness.workers.run_all()
    assert harness.image.brokers[2].fenced
    assert not harness.beat(epoch, broker_id=2).is_fenced
    back = harness.image.brokers[2]
    assert (back.fenced, back.in_controlled_shutdown) == (False, False)


def test_a_process_in_the_place_of_one_that_is_gone_is_taken_in_wherever_it_listens() -> None:
    harness, _ = with_one_gone()
    elsewhere = registration(-1, 10, 2, [b"2" * 16], listeners=[("PLAINTEXT", "127.0.0.1", 9999)])
    answer = harness.call(harness.controller.broker_registration, elsewhere)
    assert answer.error_code == 0
    assert not harness.beat(answer.broker_epoch, broker_id=2).is_fenced
    back = harness.image.brokers[2]
    assert (back.epoch, back.in_controlled_shutdown) == (answer.broker_epoch, False)


INTERNAL = ("10.0.0.2", 9092)
COMPOSE_LISTENERS = (("EXTERNAL", "localhost", 29092), ("INTERNAL", *INTERNAL))


def with_external_first(*reachable: tuple[str, int]) -> tuple[Harness, int]:
    """A controller, and broker 2 whose first listener is for outside clients, as in compose files. Returns its epoch."""
    harness = Harness(
        properties={
            "inter.broker.listener.name": "INTERNAL",
            "listeners": "EXTERNAL://:29092,INTERNAL://:9092,CONTROLLER://:9093",
            "advertised.listeners": "EXTERNAL://localhost:29092,INTERNAL://10.0.0.1:9092",
            "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
        reachable=reachable,
    ).start()
    request = registration(-1, 9, 2, [b"2" * 16], listeners=COMPOSE_LISTENERS)
    epoch = harness.call(harness.controller.broker_registration, request).broker_epoch
    harness.beat(epoch, broker_id=2)
    return harness, epoch


def test_only_the_listener_that_brokers_use_among_themselves_tells_whether_a_broker_is_there() -> None:
    harness, _ = with_external_first(INTERNAL)
    harness.liveness.connection_closed(HEARD_ON)
    ((host, port, found),) = harness.probes
    assert (host, port) == INTERNAL
    found.resolve(Probed.REFUSED)
    assert is_left(harness)


def test_an_address_that_the_controller_never_reached_fences_nobody() -> None:
    """A firewall that refuses, or an address in another network: only the session counts."""
    harness, _ = with_external_first()
    ((host, port, found),) = harness.probes
    assert (host, port) == INTERNAL
    harness.liveness.connection_closed(HEARD_ON)
    harness.liveness.start()
    assert len(harness.probes) == 1
    found.resolve(Probed.REFUSED)
    assert not is_left(harness)


def test_a_failover_fences_no_healthy_broker_whose_first_listener_is_not_for_the_controller() -> None:
    first, _ = with_external_first(INTERNAL)
    second = first.after_kill(reachable=[INTERNAL]).start()
    for host, port, found in second.probes:
        found.resolve(Probed.REACHED if (host, port) == INTERNAL else Probed.REFUSED)
    assert not is_left(second)


def test_an_unfenced_broker_is_dialled_until_it_was_reached_once() -> None:
    """Apache Kafka's brokers begin to listen a moment after they are unfenced."""
    harness, epoch = with_external_first()
    for wait_ms in (*AGAIN_MS, AGAIN_MS[-1]):
        harness.beat(epoch, broker_id=2)
        (attempt,) = harness.probes
        harness.probes.clear()
        attempt[2].resolve(Probed.REFUSED)
        for _ in range(wait_ms // 500):
            harness.beat(epoch, broker_id=2)
            assert harness.probes == []
            harness.world.advance(500)
    harness.probes.pop()[2].resolve(Probed.REACHED)
    harness.world.advance(AGAIN_MS[-1])
    assert harness.probes == []


def test_a_closed_connection_alone_does_nothing_and_a_refused_one_after_it_does() -> None:
    harness = Harness().start()
    harness.serve()
    epoch = harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON + 1)
    assert harness.probes == []
    harness.liveness.connection_closed(HEARD_ON)
    *_, refused = harness.probes[-1]
    refused.resolve(Probed.REACHED)
    assert not is_left(harness)
    harness.beat(epoch, broker_id=2)
    harness.liveness.connection_closed(HEARD_ON)
    *_, refused = harness.probes[-1]
    refused.resolve(Probed.REFUSED)
    assert is_left(harness)


def test_an_address_that_does_not_answer_says_nothing_however_often_it_is_tried() -> None:
    """A network partition looks the same, with the broker alive behind it: only its session decides."""
    harness = Harness().start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    for wait_ms in (*PROBE_AGAIN_MS, 1_000):
        *_, silent = harness.probes.pop()
        silent.resolve(Probed.SILENT)
        assert not is_left(harness)
        harness.world.advance(wait_ms)
    assert harness.probes == []
    assert not is_left(harness)


def test_a_process_whose_listener_outlives_its_connections_for_a_moment_is_gone_at_the_next_refusal() -> None:
    """A killed process loses its sockets one by one, so the first new connection may still be accepted."""
    harness = Harness().start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REACHED)
    harness.world.advance(PROBE_AGAIN_MS[0])
    harness.probes.pop()[2].resolve(Probed.REFUSED)
    assert is_left(harness)


def test_a_broker_that_takes_every_new_connection_is_asked_no_more_after_a_while() -> None:
    harness = Harness().start()
    harness.serve()
    epoch = harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    for _ in PROBE_AGAIN_MS:
        harness.probes.pop()[2].resolve(Probed.REACHED)
        harness.world.advance(max(PROBE_AGAIN_MS))
    harness.probes.pop()[2].resolve(Probed.REACHED)
    harness.world.advance(max(PROBE_AGAIN_MS))
    assert harness.probes == []
    assert not is_left(harness)
    harness.beat(epoch, broker_id=2)
    harness.liveness.connection_closed(HEARD_ON)
    harness.probes.pop()[2].resolve(Probed.REACHED)
    harness.beat(epoch, broker_id=2)
    harness.world.advance(max(PROBE_AGAIN_MS))
    assert harness.probes == []


def test_a_broker_that_is_heard_again_before_the_refusal_is_known_is_not_gone() -> None:
    harness = Harness().start()
    harness.serve()
    epoch = harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    *_, refused = harness.probes[-1]
    harness.beat(epoch, broker_id=2)
    refused.resolve(Probed.REFUSED)
    assert not is_left(harness)


def test_a_second_process_with_a_broker_id_is_refused_while_the_first_is_heard() -> None:
    harness = Harness().start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    request = registration(-1, 10, 2, [b"\x77" * 16])
    answer = harness.call(harness.controller.broker_registration, request)
    assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert harness.image.brokers[2].incarnation_id == (9).to_bytes(16, "big")


def test_a_process_that_took_a_dead_ones_address_need_not_wait_for_its_session() -> None:
    harness = Harness().start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    elsewhere = registration(-1, 10, 2, [b"\x77" * 16])
    elsewhere.listeners[0].port = 9999
    refused = harness.call(harness.controller.broker_registration, elsewhere)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    same = registration(-1, 11, 2, [b"\x77" * 16])
    assert harness.call(harness.controller.broker_registration, same).error_code == 0


def test_two_hosts_that_advertise_one_address_are_not_one_process() -> None:
    """A copied configuration, or a load balancer: the first process may only have lost its connection."""
    harness = Harness().start()
    harness.serve()
    harness.serve(broker_id=2, incarnation=9)
    harness.liveness.connection_closed(HEARD_ON)
    other = context(connection_id=HEARD_ON + 1, client_host="192.0.2.7")
    refused = harness.controller.broker_registration(registration(-1, 10, 2, [b"\x77" * 16]), other)
    harness.world.advance(0)
    assert refused.result().error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert harness.image.brokers[2].incarnation_id == (9).to_bytes(16, "big")


def test_nobody_is_answered_by_a_controller_that_is_not_active() -> None:
    harness = Harness().start()
    epoch = harness.serve()
    harness.machine.leader_changed(99, 2)
    with pytest.raises(NotController):
        harness.beat(epoch)
    with pytest.raises(NotController):
        create(harness, "t")


def test_a_transaction_left_open_is_aborted_at_activation() -> None:
    first = Harness().start()
    first.serve()
    open_records = [
        MetadataRecord(BeginTransactionRecord(name="x"), 0),
        MetadataRecord(TopicRecord(name="half", topic_id=b"\x42" * 16), 0),
    ]
    first.driver.propose(PackedValues(frame_all(open_records)), lambda: None, lambda: None)
    first.workers.run_all()
    second = first.after_kill()
    start = first.log.log_end_offset
    second.start()
    assert names(second.messages(start))[0] == "AbortTransactionRecord"
    assert "half" not in second.image.topics


def test_the_first_records_are_written_again_if_a_controller_died_among_them() -> None:
    """Apache Kafka writes them in several batches, within a transaction."""
    core = ControllerCore(settings())
    first = MetadataRecord(FeatureLevelRecord(name="metadata.version", feature_level=33), 0)
    core.load_values(frame_all([MetadataRecord(BeginTransactionRecord(name="Bootstrap records"), 0), first]))
    core.finish_loading(1, 1)
    records = core.activation_records(core.decode(bootstrap_values()))
    assert names([each.message for each in records])[:2] == [
        "AbortTransactionRecord",
        "BeginTransactionRecord",
    ]
    core.load_values(frame_all(records))
    image = core.finish_loading(20, 2)
    assert image.features["metadata.version"] == 33
    assert not core.in_transaction
    assert core.activation_records(core.decode(bootstrap_values())) == []


def test_a_damaged_metadata_log_stops_the_start_with_its_place() -> None:
    first = Harness().start()
    first.serve()
    place = first.batches()[3].position
    second = first.after_kill()
    # After recovery, which would have cut it off.
    second.disk.files[f"{DIRECTORY}/{0:020d}.log"][place - 1] ^= 1
    second.driver.start(second.machine)
    second.workers.run_all()
    (failure,) = second.failures
    assert isinstance(failure, MetadataLogProblem)
    assert "wrong crc" in str(failure)


def test_a_broken_quorum_state_stops_the_start_by_name() -> None:
    first = Harness().start()
    first.disk.files[f"{DIRECTORY}/quorum-state"] = b"{"
    with pytest.raises(MetadataLogProblem, match="quorum-state"):
        first.after_kill().start()


def test_a_dynamic_quorum_restates_its_voters_from_the_formatted_snapshot() -> None:
    disk = MemoryDisk()
    voter = VoterNode(1, DIRECTORY_ID, (("CONTROLLER", "127.0.0.1", 9093),))
    content = SnapshotContent(kraft_version=1, voters=(voter,))
    disk.files[f"{DIRECTORY}/{snapshot_file_name(0, 0)}"] = format_snapshot(content, 0, 1)
    node = Harness(disk=disk).start()
    node.serve()
    assert node.image.features["kraft.version"] == 1
    assert node.image.features["metadata.version"] == 33
    first = node.batches()[0]
    assert (first.record_count, first.size) == (3, 174)
    again = node.after_kill().start()
    epoch_starts = [header for header in again.batches() if header.is_control]
    assert [header.record_count for header in epoch_starts] == [3, 1]


def test_on_a_real_disk_a_torn_tail_costs_only_the_torn_batch(tmp_path: Path) -> None:
    def run(incarnation: int, names: list[str]) -> MetadataImage:
        node = Harness(RealDisk(), directory=str(tmp_path / "__cluster_metadata-0")).start()  # type: ignore[arg-type]
        node.serve(incarnation=incarnation)
        for name in names:
            assert create(node, name) == 0
        return node.image

    run(1, ["a", "b"])
    (segment,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-7])
    image = run(2, ["c"])
    assert sorted(image.topics) == ["a", "c"]
    assert image.topics["a"].partitions[0].leader == 1


def test_a_broker_that_leads_nothing_is_only_fenced() -> None:
    node = Harness().start()
    epoch = node.serve()
    start = node.log.log_end_offset
    assert node.beat(epoch, want_shut_down=True).should_shut_down
    (record,) = node.messages(start)
    assert (type(record).__name__, record.fenced) == ("BrokerRegistrationChangeRecord", 1)


def test_a_topic_with_min_insync_replicas_is_written_as_kafka_writes_it() -> None:
    node = Harness().start()
    node.serve()
    start = node.log.log_end_offset
    create(node, "m", min_insync_replicas="2")
    assert names(node.messages(start)) == ["TopicRecord", "ConfigRecord", "ClearElrRecord", "PartitionRecord"]
