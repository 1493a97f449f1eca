"""The metrics of a whole node: after its start, with topics, with a failed directory."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from math import isnan
from pathlib import Path

import pytest

from kafkacompat._tests.fuzz.node import FuzzedNode, node_properties
from kafkacompat.api.meters import RequestMeters
from kafkacompat.config import ServerConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.metrics._tests.exposition import gauge, gauges
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.families import Families, Sample
from kafkacompat.metrics.network import Idle
from kafkacompat.metrics.process import disk_families
from kafkacompat.metrics.reference import declared, series
from kafkacompat.node.node_to_controller_channel_manager import NodeToControllerChannelManager
from kafkacompat.quota.client_quotas import CLIENT_ID, PRODUCER_BYTE_RATE
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.server._tests.shown_node import ShownNode, batch_of, fetched, produced
from kafkacompat.server.node_metrics import NodeMetrics
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> Iterator[ShownNode]:
    node = FuzzedNode(1)
    node.meters = RequestMeters()
    with caplog.at_level(logging.ERROR):
        node.start()
        yield ShownNode(node)
    assert not node.findings
    assert not caplog.records


def test_every_collector_gives_series(shown: ShownNode) -> None:
    shown.create("orders", 3)
    names = {name for name, _ in shown.scrape()}
    for prefix in (
        "process_",
        "kafkacompat_worker_jobs_waiting",
        "kafkacompat_index_cache_bytes",
        "kafka_server_raft_metrics_",
        "kafka_controller_kafkacontroller_",
        "kafka_server_broker_metadata_metrics_",
        "kafka_server_kafkaserver_brokerstate",
        "kafka_server_replicamanager_",
        "kafka_cluster_partition_",
        "kafka_log_log_",
        "kafka_log_logmanager_",
    ):
        assert any(name.startswith(prefix) for name in names), prefix


NOT_OF_THIS_NODE = (
    "kafka_server_*replication_byte_rate",  # nothing is throttled
    "kafkacompat_broker_up",  # of the parent of several
    "kafkacompat_connections_left",  # the simulator has no limit of open files
    "kafkacompat_loop_stall*",  # nor a watchdog
    "kafka_network_*idlepercent",  # nobody measures the loop
    "*idle_ratio_avg",
    "*avgidle*",
    "kafka_server_fetcherlagmetrics_consumerlag",  # no partition is followed
    "kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio*",  # no group has a share session
    "kafka_server_sharegroupmetrics_topicpartitionsacquiretimems*",
    "kafka_server_sharegroupmetrics_deadletterqueue*",
    "kafka_server_sharepartitionmetrics_*",
    "kafka_server_share_coordinator_metrics_last_pruned_offset",
    "kafkacompat_share_partition_*",
    "kafka_server_quota_*",  # no quota applies
    "kafka_server_client_metrics_*",  # no client is asked for metrics
    "kafkacompat_telemetry_*",
    "kafka_server_brokertopicmetrics_remote*",  # the node has no remote storage
    "kafka_server_brokertopicmetrics_buildremote*",
    "kafkacompat_mirror_*",  # no topic follows another cluster
)


def test_every_series_is_declared_and_every_declaration_has_series(shown: ShownNode) -> None:
    """A metric is declared once, and the reference page is made of the declarations."""
    shown.create("orders", 3)
    produced(shown, "orders", b"x")
    declared_metrics = [metric for each in declared() for metric in each.metrics]
    forms = {series(metric).partition("{")[0]: metric for metric in declared_metrics}
    found: set[str] = set()
    for name, labels in shown.scrape():
        of_name = [form for form in forms if fnmatchcase(name, form)]
        assert of_name, f"{name} is not declared"
        assert {label for label, _ in labels} <= set(forms[of_name[0]].labels), name
        found.update(of_name)
    missing = sorted(form for form in forms if form not in found)
    assert [form for form in missing if not any(fnmatchcase(form, each) for each in NOT_OF_THIS_NODE)] == []


def test_partitions_are_counted(shown: ShownNode) -> None:
    shown.create("orders", 3)
    series = shown.scrape()

    def value(name: str, **labels: str) -> float:
        return series[name, frozenset(labels.items())]

    assert value("kafka_server_replicamanager_partitioncount") == 3
    assert value("kafka_server_replicamanager_leadercount") == 3
    assert value("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value("kafka_server_replicamanager_atminisrpartitioncount") == 3
    assert value("kafka_controller_kafkacontroller_globaltopiccount") == 1
    assert value("kafka_controller_kafkacontroller_globalpartitioncount") == 3
    assert value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value("kafka_cluster_partition_insyncreplicascount", topic="orders", partition="2") == 1
    assert value("kafka_log_log_logendoffset", topic="orders", partition="2") == 0
    assert value("kafka_server_raft_metrics_current_state", state="leader") == 1
    assert value("kafka_server_kafkaserver_brokerstate") == 3


class FewDescriptors:
    logs: Callable[[], int] = staticmethod(lambda: 0)

    def logs_left(self) -> int:
        return 1_000

    def files_max(self) -> int:
        return 1_000

    def connections_left(self) -> int:
        return 7


def test_the_connections_for_which_there_are_descriptors_are_shown(shown: ShownNode) -> None:
    name = "kafkacompat_connections_left"
    assert (name, frozenset()) not in shown.scrape(), "the simulator has no limit of open files"
    services = replace(shown.node.server._services, descriptors=FewDescriptors())
    metrics = NodeMetrics(services, type(shown.node.server)(services), list)
    families = {family.name: family for family in metrics.families() if family is not None}
    assert [value for _, value in families[name].samples] == [7]


def test_a_failed_directory_is_shown(shown: ShownNode) -> None:
    shown.create("orders", 2)
    logs = shown.node.server.broker.logs  # type: ignore[union-attr]
    home = logs.directory_of(TopicPartition("orders", 0))
    assert home is not None
    offline = next(each for each in logs.directories if each is not home)
    lost = sum(logs.directory_of(TopicPartition("orders", each)) is offline for each in range(2))
    logs.directory_failed(offline, OSError(5, "broken"))
    series = shown.scrape()
    assert series["kafka_log_logmanager_offlinelogdirectorycount", frozenset()] == 1
    label = frozenset({("logDirectory", f'"{offline.path}"')})
    assert series["kafka_log_logmanager_logdirectoryoffline", label] == 1
    assert series["kafka_server_replicamanager_offlinereplicacount", frozenset()] == lost
    assert series["kafka_server_replicamanager_partitioncount", frozenset()] == 2


def test_ready_follows_the_broker_s_state(shown: ShownNode) -> None:
    assert shown.metrics.why_not_ready() is None
    shown.metrics.is_stopping = True
    assert shown.metrics.why_not_ready() == "the node stops"
    fresh = NodeMetrics(
        shown.node.server._services, type(shown.node.server)(shown.node.server._services), list
    )
    assert fresh.why_not_ready() == "the node starts"
    assert any(name.startswith("process_") for name in (f.name for f in fresh.families() if f))


def test_a_broker_that_is_fenced_or_unregistered_later_is_not_ready(shown: ShownNode) -> None:
    """Its state stays RUNNING, as in Kafka."""
    shared = shown.node.server.shared
    assert shared is not None
    image = shared.machine.image
    (own,) = image.brokers.values()
    for brokers, reason in (({own.id: replace(own, fenced=True)}, "fenced"), ({}, "not registered")):
        shared.machine.image = replace(image, brokers=brokers)
        assert shown.metrics.why_not_ready() == f"the broker is {reason}"
    shared.machine.image = image
    assert shown.metrics.why_not_ready() is None


def test_a_broker_that_nobody_answers_is_not_ready(shown: ShownNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot know that it was fenced."""
    timeout_ms = shown.node.server._services.config.get_int("broker.session.timeout.ms")
    shown.node.pass_time(2 * timeout_ms)
    assert shown.metrics.why_not_ready() is None
    monkeypatch.setattr(NodeToControllerChannelManager, "request", lambda *_: Deferred())
    shown.node.pass_time(timeout_ms + 2_001)
    assert shown.metrics.why_not_ready() == "no controller answers the broker"


def test_samples_that_fail_are_reported_and_the_others_go_on(
    shown: ShownNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read when their collector is left already."""
    reported: list[BaseException] = []
    monkeypatch.setattr("kafkacompat.server.node_metrics.report", lambda what, error: reported.append(error))

    def samples() -> Iterator[Sample]:
        yield {"n": "1"}, 1
        raise RuntimeError("boom")

    def replica_families(*_: object) -> Families:
        yield gauges("some", "Some.", samples())
        yield gauge("other", "Other.", 2)

    monkeypatch.setattr("kafkacompat.server.node_metrics.replica_families", replica_families)
    series = shown.scrape()
    assert [str(error) for error in reported] == ["boom"]
    assert (series["some", frozenset({("n", "1")})], series["other", frozenset()]) == (1, 2)
    assert ("kafka_log_logmanager_offlinelogdirectorycount", frozenset()) in series


def test_a_collector_that_fails_is_reported_and_the_others_go_on(
    shown: ShownNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr("kafkacompat.server.node_metrics.report", lambda what, error: reported.append(error))

    def fails(*_: object) -> Iterator[None]:
        raise RuntimeError("boom")
        yield

    monkeypatch.setattr("kafkacompat.server.node_metrics.replica_families", fails)
    names = {name for name, _ in shown.scrape()}
    assert [str(error) for error in reported] == ["boom"]
    assert "kafka_log_logmanager_offlinelogdirectorycount" in names


def test_fetches_that_waited_as_long_as_they_may_are_counted(shown: ShownNode) -> None:
    shown.create("orders")
    name = "kafka_server_delayedfetchmetrics_expires_total"
    produced(shown, "orders", b"here")
    fetched(shown, "orders")
    assert shown.value(name, fetcherType="consumer") == 0
    shown.create("empty")
    fetched(shown, "empty")
    assert shown.value(name, fetcherType="consumer") == 1
    assert shown.value(name, fetcherType="follower") == 0
    # It has read twice, and is one.
    assert shown.value("kafka_server_brokertopicmetrics_totalfetchrequests_total", topic="empty") == 1


def test_requests_are_counted_by_api_and_version(shown: ShownNode) -> None:
    shown.create("orders")
    for _ in range(3):
        produced(shown, "orders", b"x")
    produced(shown, "nowhere", b"x")
    fetched(shown, "orders")
    series = shown.scrape()

    def value(name: str, **labels: str) -> float:
        return series[f"kafka_network_requestmetrics_{name}", frozenset(labels.items())]

    assert value("requests_total", request="Produce", version="9") == 4
    assert value("requests_total", request="FetchConsumer", version="11") == 1
    assert value("requests_total", request="Fetch", version="11") == 1
    assert value("errors_total", request="Produce", error="NONE") == 3
    assert value("errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert value("errors_total", request="CreateTopics", error="NONE") == 1
    assert value("totaltimems_count_total", request="Produce") == 4
    assert not any(
        name == "kafka_network_requestmetrics_errors_total" and ("request", "FetchConsumer") in labels
        for name, labels in series
    )


def test_traffic_is_counted_by_topic_and_in_all(shown: ShownNode) -> None:
    shown.create("orders")
    shown.create("logs")
    produced(shown, "orders", b"x", b"y")
    produced(shown, "logs", b"z")
    fetched(shown, "orders")
    size, other = len(batch_of(b"x", b"y")), len(batch_of(b"z"))
    series = shown.scrape()

    def value(name: str, **labels: str) -> float:
        return series[f"kafka_server_brokertopicmetrics_{name}_total", frozenset(labels.items())]

    assert value("messagesin", topic="orders") == 2
    assert value("messagesin") == 3
    assert value("bytesin", topic="orders") == size
    assert value("bytesin") == size + other
    assert value("bytesout", topic="orders") == value("bytesout") == size
    assert value("totalproducerequests") == 2
    assert value("totalfetchrequests", topic="orders") == 1
    assert ("kafka_server_brokertopicmetrics_bytesout_total", frozenset({("topic", "logs")})) not in series


def test_the_sums_keep_what_a_deleted_topic_had(shown: ShownNode) -> None:
    shown.create("orders")
    produced(shown, "orders", b"x")
    shown.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=5000), 5)
    shown.node.pass_time(1000)
    assert shown.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") is None
    assert shown.value("kafka_server_brokertopicmetrics_messagesin_total") == 1


def test_what_is_of_no_partition_is_shown(shown: ShownNode) -> None:
    shown.create("orders")
    series = shown.scrape()
    none = frozenset[tuple[str, str]]()
    for name in (
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_server_replicamanager_failedisrupdates_total",
        "kafka_server_replicamanager_produceridcount",
        "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
        "kafka_server_group_coordinator_metrics_state_active_num_partitions",
        "kafka_server_share_coordinator_metrics_state_active_num_partitions",
        "kafka_server_share_coordinator_metrics_write_total",
    ):
        assert series[name, none] == 0, name
    listener = "kafka_server_socket_server_metrics_listener_plaintext_networkprocessor_0_"
    assert series[f"{listener}connection_count", none] == 1
    assert series[f"{listener}connection_creation_total", none] == 3
    assert series[f"{listener}failed_authentication_rate", none] == 0.2
    assert series["kafka_network_socketserver_expiredconnectionskilledcount", none] == 1
    assert series["kafka_log_logcleanermanager_max_dirty_percent", none] == 0
    assert series["kafka_log_logcleaner_max_clean_time_secs", none] == 0
    assert series["kafka_controller_controllereventmanager_eventqueuetimems_count_total", none] > 0
    assert series["kafka_controller_controllereventmanager_eventqueueprocessingtimems_count_total", none] > 0
    assert ("kafka_server_transaction_coordinator_metrics_partition_load_time_max", none) in series
    assert ("kafka_server_group_coordinator_metrics_partition_load_time_avg", none) in series
    assert ("kafka_server_share_coordinator_metrics_partition_load_time_avg", none) in series
    assert ("kafka_server_share_coordinator_metrics_write_latency_max", none) in series
    waiting = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
    for kind in ("Produce", "Fetch", "DeleteRecords"):
        assert series[waiting, frozenset({("delayedOperation", kind)})] == 0
    lag = frozenset({("clientId", "Replica")})
    assert series["kafka_server_replicafetchermanager_maxlag", lag] == 0


def test_what_operators_of_kafka_look_for_is_shown(shown: ShownNode) -> None:
    shown.create("orders")
    series = shown.scrape()

    def value(name: str, **labels: str) -> float:
        return series[name, frozenset(labels.items())]

    for name in (
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "kafka_server_group_coordinator_metrics_offset_commit_count",
        "kafka_server_share_coordinator_metrics_write_rate",
        "kafka_server_delayedsharefetchmetrics_expires_total",
        "kafka_server_sharegroupmetrics_partitionloadtimems_count_total",
        "kafka_server_produce_queue_size",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
        "kafka_log_logmanager_cordonedlogdirectorycount",
        "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total",
        "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
        "kafka_server_brokertopicmetrics_reassignmentbytesin_total",
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
        "kafka_server_addpartitionstotxnmanager_verificationtimems_count_total",
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count_total",
        "kafka_server_controllermutation_queue_size",
        "kafka_log_logcleaner_max_compaction_delay_secs",
        "kafka_utils_throttler_cleaner_io_count_total",
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
        "kafka_controller_kafkacontroller_metadataerrorcount",
        "kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount",
        "kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount",
    ):
        assert value(name) == 0, name
    assert value("kafka_controller_kafkacontroller_newactivecontrollerscount") == 1
    assert value("kafka_server_metadataloader_currentcontrollerid") == 1
    newest = value("kafka_server_metadataloader_currentmetadataversion")
    assert value("kafka_server_metadataloader_finalizedlevel", featureName="metadataVersion") == newest
    feature = "kafka_server_node_metrics_feature_name_metadata_version_"
    assert value(f"{feature}minimum_supported_level") < newest <= value(f"{feature}maximum_supported_level")
    assert value("kafka_server_raft_metrics_append_records_rate") > 0
    assert value("kafka_server_raft_metrics_commit_latency_max") >= 0
    assert isnan(value("kafka_server_raft_metrics_election_latency_max"))
    assert value("kafka_server_raft_metrics_uncommitted_voter_change") == 0
    assert value("kafka_network_socketserver_memorypoolused") == 0
    assert value("kafka_controller_kafkacontroller_lastappliedrecordtimestamp") > 0
    contact = value("kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms", broker="1")
    assert 0 <= contact <= 9_000
    for server in ("kafkaserver", "controllerserver"):
        for kind in ("read", "write"):
            assert value(f"kafka_server_{server}_linux_disk_{kind}_bytes") >= 0
    assert value("kafka_log_log_retentionsizeinpercent", topic="orders", partition="0") == 0
    assert value("kafka_server_replicafetchermanager_minfetchrate", clientId="Replica") == 0
    assert value("kafka_server_replicaalterlogdirsmanager_maxlag", clientId="ReplicaAlterLogDirs") == 0
    assert value("kafka_server_app_info_start_time_ms") > 0
    batches = "kafka_server_brokermetadatalistener_metadatabatch"
    assert value(f"{batches}sizes_count_total") == value(f"{batches}processingtimeus_count_total") > 0
    listener = "kafka_server_socket_server_metrics_listener_plaintext_networkprocessor_0_"
    assert value(f"{listener}reauthentication_latency_max") == 30
    assert value(f"{listener}request_size_avg") == 67
    assert value(f"{listener}successful_authentication_no_reauth_total") == 2


def test_what_an_operator_would_watch_beside_is_shown(shown: ShownNode) -> None:
    """When certificates end, and the space in log directories."""
    series = shown.scrape()
    listener = frozenset({("listener", "PLAINTEXT")})
    assert series["kafkacompat_certificate_end_timestamp_seconds", listener] == 1_900_000_000
    broker = shown.node.server.broker
    assert broker is not None
    for directory in broker.logs.directories:
        path = frozenset({("logDirectory", f'"{directory.path}"')})
        total = series["kafkacompat_log_directory_total_bytes", path]
        assert 0 < series["kafkacompat_log_directory_usable_bytes", path] <= total


def test_a_transaction_that_hangs_is_late(shown: ShownNode) -> None:
    """It is open for five minutes longer than any transaction may be (transaction.max.timeout.ms)."""
    shown.create("orders", 2)
    broker = shown.node.server.broker
    assert broker is not None
    log = broker.logs.get(TopicPartition("orders", 1))
    assert log is not None
    name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    now_ms = shown.node.server._services.clock.now_ms()
    log.producer_state.apply_data(5, 0, 0, 0, 0, now_ms - 1_190_000, True)
    assert shown.value(name) == 0
    shown.node.pass_time(20_000)
    assert shown.value(name) == 1


def test_where_the_system_tells_nothing_of_disks_there_are_no_series(tmp_path: Path) -> None:
    assert not list(disk_families(["broker"], str(tmp_path / "io")))
    (tmp_path / "io").write_text("rchar: 5\nread_bytes: 7\nwrite_bytes: 9\n")
    assert not list(disk_families(["broker"], str(tmp_path / "io")))
    numbers = {"rchar": 5, "wchar": 6, "syscr": 1, "syscw": 2}
    numbers |= {"read_bytes": 7, "write_bytes": 9, "cancelled_write_bytes": 3}
    (tmp_path / "io").write_text("".join(f"{name}: {number}\n" for name, number in numbers.items()))
    told: dict[str, float] = {}
    for each in disk_families(["broker"], str(tmp_path / "io")):
        assert each is not None
        ((_, told[each.name]),) = each.samples  # type: ignore[misc]
    name = "kafka_server_kafkaserver_linux_disk_"
    assert told == {f"{name}{kind}": number for kind, number in numbers.items()}


def test_refused_records_are_counted_by_what_is_wrong_with_them(shown: ShownNode) -> None:
    shown.create("orders")
    good = build_batch([Record(0, 0, b"k", b"v")], producer_id=-1, producer_epoch=-1, base_sequence=-1)
    broken = bytearray(good)
    broken[-1] ^= 1
    counted = {
        "invalidmessagecrcrecords": bytes(broken),
        "invalidoffsetorsequencerecords": build_batch(
            [Record(0, 0, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=-1
        ),
    }
    for records in counted.values():
        data = [PartitionProduceData(index=0, records=records)]
        topic = TopicProduceData(name="orders", partition_data=data)
        shown.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
    for name in counted:
        assert shown.value(f"kafka_server_brokertopicmetrics_{name}_total") == 1, name


def test_the_idle_time_is_shown_where_it_is_measured(shown: ShownNode) -> None:
    name = "kafka_network_socketserver_networkprocessoravgidlepercent"
    assert shown.value(name) is None
    shown.metrics.idle = lambda: Idle(0.7, 0.9)
    assert shown.value(name) == 0.7


def test_logs_that_the_cleaner_cannot_read_are_shown_by_directory(shown: ShownNode) -> None:
    shown.create("orders")
    broker = shown.node.server.broker
    assert broker is not None
    assert broker.broker_logs.cleaner is not None
    name = TopicPartition("orders", 0)
    log, home = broker.logs.get(name), broker.logs.directory_of(name)
    assert log is not None
    assert home is not None
    broker.broker_logs.cleaner.uncleanable[name] = log
    shown = {
        dict(labels)["logDirectory"]: value
        for (metric, labels), value in shown.scrape().items()
        if metric == "kafka_log_logcleanermanager_uncleanable_partitions_count"
    }
    assert shown == {f'"{each.path}"': each is home for each in broker.logs.directories}


class Bound:
    """A quota of the metadata."""

    value = 1000.0


CALLS_A_STEP_MAX = 10_000
"""Calls of functions between two turns of the loop. One takes 0.1 to 0.3 microseconds, so these take at most 3 ms."""


def test_a_scrape_of_a_thousand_topics_holds_the_loop_for_short_steps(shown: ShownNode) -> None:
    topics = [f"{'x' * 180}.{number}_-" for number in range(1_000)]
    for first in range(0, len(topics), 100):
        names = topics[first : first + 100]
        made = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        shown.ask(CreateTopicsRequest(topics=made, timeout_ms=5000), 7)
    shown.node.pass_time(1_000)  # their logs are opened in steps
    broker = shown.node.server.broker
    assert broker is not None
    broker.quotas.take({(((CLIENT_ID, None),), PRODUCER_BYTE_RATE): Bound()})
    for number in range(10_000):
        broker.quotas.produce.sensor("x", f"client {number}", number)
    for _, traffic in broker.partitions.hosted.traffic.topics():
        traffic.messages_in += 1
    steps: list[int] = []
    lines = calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    pieces = rendered(shown.metrics.families())
    while True:
        calls = 0
        sys.setprofile(count)
        piece = next(pieces, None)
        sys.setprofile(None)
        if piece is None:
            break
        steps.append(calls)
        lines += piece.count(b"\n")
    assert lines > 13_000
    assert max(steps) <= CALLS_A_STEP_MAX


def test_a_cleaner_that_is_switched_off_is_not_shown() -> None:
    node = FuzzedNode(1)
    node._config = ServerConfig.from_properties(node_properties() | {"log.cleaner.enable": "false"})
    node.start()
    shown = ShownNode(node)
    assert shown.value("kafka_log_logcleanermanager_max_dirty_percent") is None
    assert shown.value("kafka_server_kafkaserver_brokerstate") == 3
