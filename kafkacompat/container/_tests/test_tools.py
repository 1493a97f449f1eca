"""Kafka's tools under their own names: options, refusals, formats. What needs a broker is in the interop tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkacompat.cli import produce
from kafkacompat.cli.reader import EARLIEST, LATEST
from kafkacompat.cli.view import Broker
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.container.tools import cluster, topics
from kafkacompat.container.tools.__main__ import TOOLS, main
from kafkacompat.container.tools.cluster import offset_lines, told
from kafkacompat.container.tools.console import (
    headers_text,
    line_of,
    refuse_others,
    start_of,
)
from kafkacompat.container.tools.groups import state_and_owners
from kafkacompat.container.tools.options import pairs_of
from kafkacompat.container.tools.quorum import replication_lines, status_lines
from kafkacompat.failure import CommandFailed
from kafkacompat.records.record import Record
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from kafkacompat.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    TopicPartitions,
)
from kafkacompat.wire.messages.consumer_group_describe_response import (
    DescribedGroup as ConsumerGroupDescribed,
)
from kafkacompat.wire.messages.consumer_group_describe_response import Member as ConsumerGroupMember
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest
from kafkacompat.wire.messages.create_partitions_response import CreatePartitionsResponse
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from kafkacompat.wire.messages.describe_quorum_response import Listener, Node, PartitionData, ReplicaState
from kafkacompat.wire.messages.describe_topic_partitions_response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafkacompat.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

CHECKOUT = Path(__file__).resolve().parents[3]
DOCKERFILE = CHECKOUT / "Dockerfile"
PAGE = CHECKOUT / "docs" / "how-to" / "run-in-a-container.md"
NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]


class Brokers:
    """Stands for a cluster: answers each request by the type of the response, and keeps what it is asked."""

    def __init__(self, *answers: Message, topics: Mapping[str, int] | None = None) -> None:
        self._answers = {type(each): each for each in answers}
        self._topics = topics or {}
        self.asked: list[Message] = []

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None: ...

    def any(self) -> Brokers:
        return self

    def serves(self, api_key: int, version: int) -> bool:
        return True

    def metadata(self, names: list[str] | None) -> MetadataResponse:
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[MetadataResponsePartition(partition_index=number) for number in range(count)],
                )
                for name, count in self._topics.items()
                if names is None or name in names
            ]
        )

    def call(self, request: Message, response_type: type[Message]) -> Message:
        self.asked.append(request)
        return self._answers[response_type]

    def coordinator_call(
        self, group: str, request: Message, response_type: type[Message], _: object
    ) -> Message:
        return self.call(request, response_type)


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_tells_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"{name}.sh", "--help"])
    assert ended.value.code == 0
    assert f"usage: {name}.sh" in capsys.readouterr().out


def test_a_tool_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Health checks of compose files ask for it, because it needs no broker."""
    with pytest.raises(SystemExit) as ended:
        main(["kafka-topics.sh", "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("4.4.0 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kafka-topics", "--list"], "--bootstrap-server"),
        (
            ["kafka-topics", *NOWHERE, "--list", "--partition-size-limit-per-response=3"],
            "--partition-size-limit",
        ),
        (["kafka-topics.sh", *NOWHERE, "--zookeeper", "z:2181", "--list"], "--zookeeper"),
        (["kafka-storage", "info"], "info"),
        (["kafka-cluster", "unregister", *NOWHERE], "unregister"),
    ],
)
def test_an_option_that_is_not_served_is_refused_by_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kafka-topics", *NOWHERE], "exactly one action"),
        (["kafka-topics", *NOWHERE, "--list", "--describe"], "exactly one action"),
        (["kafka-topics", *NOWHERE, "--create"], "[topic]"),
        (
            ["kafka-topics", *NOWHERE, "--alter", "--topic", "t", "--config", "retention.ms=1"],
            'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--alter", "--topic=t", "--partitions=3", "--replication-factor=3"],
            'Option "[replication-factor]" can\'t be used with option "[alter]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--create", "--topic=t", "--replica-assignment=1", "--partitions=3"],
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--describe", "--partitions", "3"],
            'Option "[partitions]" can\'t be used with option "[describe]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--delete", "--topic", "t", "--if-not-exists"],
            'Option "[if-not-exists]" can\'t be used with option "[delete]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--list", "--unavailable-partitions"],
            'Option "[unavailable-partitions]" can\'t be used with option "[list]"',
        ),
        (
            ["kafka-topics", *NOWHERE, "--describe", "--topics-with-overrides", "--at-min-isr-partitions"],
            'Option "[at-min-isr-partitions]" can\'t be used with option "[topics-with-overrides]"',
        ),
        (["kafka-consumer-groups", *NOWHERE, "--describe"], "[group]"),
        (["kafka-consumer-groups", *NOWHERE, "--list", "--delete"], "exactly one action"),
        (["kafka-console-consumer", *NOWHERE, "--topic", "t", "--offset", "3"], "The partition is required"),
        (
            ["kafka-console-consumer", *NOWHERE, "--topic", "t", "--property", "print.epoch=true"],
            "print.epoch",
        ),
        (["kafka-console-producer", *NOWHERE, "--topic", "t", "--property", "headers=x"], "headers"),
        (["kafka-get-offsets", *NOWHERE, "--topic", "t", "--time", "soon"], "soon"),
        (["kafka-metadata-quorum", "describe", *NOWHERE], "--status, --replication"),
        (["kafka-storage", "format", "-t", "5L6g3nShT-eMCtK--X86sw"], "--config"),
        (["kafka-topics", *NOWHERE, "--list"], "no broker answers at 127.0.0.1:1"),
        (["kafka-acls", *NOWHERE], "there is no tool 'kafka-acls'"),
        ([], "there is no tool ''"),
    ],
)
def test_a_refused_command_is_one_line_and_status_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err.splitlines()[0]


def test_a_random_id_has_the_form_of_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-storage.sh", "random-uuid"]) == 0
    assert re.fullmatch(r"[\w-]{22}", capsys.readouterr().out.strip())


def test_records_are_printed_as_kafkas_formatter_prints_them() -> None:
    record = Record(0, 1_000, b"k", None, (("a", b"1"), ("b", None)))
    everything = {f"print.{each}": "true" for each in ("partition", "offset", "headers", "key")}
    assert line_of({})(3, 7, record) == b"null\n"
    assert line_of({**everything, "key.separator": "|"})(3, 7, record) == (
        b"Partition:3|Offset:7|a:1,b:null|k|null\n"
    )
    assert line_of({"print.key": "true", "print.value": "false"})(3, 7, record) == b"k\n"
    assert line_of({"print.key": " TRUE", "print.value": "no"})(3, 7, record) == b"k\n"
    assert headers_text(()) == b"NO_HEADERS"


def test_a_console_producer_stops_at_a_line_without_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What comes before the line is sent."""
    sent: list[tuple[bytes | None, bytes | None]] = []

    class Sender:
        partition_count = 1

        def __init__(self, *_: object) -> None: ...

        def send(self, partition: int, records: list[Record], codec: int) -> None:
            sent.extend((each.key, each.value) for each in records)

    monkeypatch.setattr(produce, "Cluster", lambda _: Brokers())
    monkeypatch.setattr(produce, "Sender", Sender)
    monkeypatch.setattr(produce, "line_batches", lambda _: iter([[b"a:1"], [b"b:2", b"oops", b"c:3"]]))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=lambda: 0))
    words = ["--topic", "t", "--property", "parse.key=True", "--property", "key.separator=:"]
    assert main(["kafka-console-producer", *NOWHERE, *words]) == 1
    assert "No key separator found on line number 3: 'oops'" in capsys.readouterr().err
    assert sent == [(b"a", b"1"), (b"b", b"2")]


def test_where_a_console_consumer_starts() -> None:
    assert start_of(None, from_beginning=False) == (LATEST, None)
    assert start_of(None, from_beginning=True) == (EARLIEST, None)
    assert start_of("earliest", from_beginning=False) == (EARLIEST, None)
    assert start_of("latest", from_beginning=False) == (LATEST, None)
    assert start_of("12", from_beginning=False)[1] == 12
    with pytest.raises(CommandFailed, match="'-3' is incorrect"):
        start_of("-3", from_beginning=False)


def test_properties_are_pairs() -> None:
    assert pairs_of(["a=b=c", "d"], "property") == {"a": "b=c", "d": ""}
    with pytest.raises(CommandFailed, match="NAME=VALUE"):
        pairs_of(["=b"], "property")
    with pytest.raises(CommandFailed, match="takes a here, not b, c"):
        refuse_others({"c": "", "a": "", "b": ""}, ("a",), "--property")


def test_versions_are_told_with_the_highest_that_both_know() -> None:
    assert told(ApiVersion(api_key=0, min_version=0, max_version=99)) == "Produce(0): 0 to 99 [usable: 13]"
    assert (
        told(ApiVersion(api_key=0, min_version=50, max_version=99))
        == "Produce(0): 50 to 99 [unusable: node too new]"
    )
    assert (
        told(ApiVersion(api_key=0, min_version=0, max_version=0)) == "Produce(0): 0 [unusable: node too old]"
    )
    assert told(ApiVersion(api_key=9999, min_version=1, max_version=1)) == "UNKNOWN(9999): 1"


def test_new_partitions_go_to_the_brokers_that_the_caller_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assignment begins with the partitions that the topic has."""
    brokers = Brokers(CreatePartitionsResponse(), topics={"t": 2, "other": 1})
    monkeypatch.setattr(topics, "Cluster", lambda _: brokers)
    words = ["--alter", "--topic", "'t'", "--partitions", "4", "--replica-assignment", "1:2,2:1,2:3,3:1"]
    assert main(["kafka-topics", *NOWHERE, *words]) == 0
    (asked,) = brokers.asked
    assert isinstance(asked, CreatePartitionsRequest)
    (topic,) = asked.topics
    assert (topic.name, topic.count) == ("t", 4)
    assert [each.broker_ids for each in topic.assignments or ()] == [[2, 3], [3, 1]]
    assert main(["kafka-topics", *NOWHERE, "--alter", "--topic", "t", "--partitions", "4"]) == 0
    assert isinstance(brokers.asked[-1], CreatePartitionsRequest)
    assert brokers.asked[-1].topics[0].assignments is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--partitions", "-1"], topics.COUNT_TEXT),
        (["--replication-factor", "0"], topics.FACTOR_TEXT),
        (["--config", "cleanup.policy="], topics.CONFIG_TEXT),
        (["--config", "retention.ms"], topics.CONFIG_TEXT),
        (["--config", "a=b=c"], topics.CONFIG_TEXT),
    ],
)
def test_a_topic_is_not_created_with_what_the_tool_can_refuse(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "Cluster", lambda _: Brokers())
    assert main(["kafka-topics", *NOWHERE, "--create", "--topic", "t", *words]) == 1
    assert capsys.readouterr().out == f"Error while executing topic command : {text}\n"


def described_topic() -> DescribeTopicPartitionsResponseTopic:
    """Well; without a leader; being moved from broker 2 to broker 3."""
    return DescribeTopicPartitionsResponseTopic(
        name="t",
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=in_sync
            )
            for index, leader, replicas, in_sync in (
                (0, 1, [1, 2], [1, 2]),
                (1, -1, [1], [1]),
                (2, 1, [1, 3, 2], [1, 2]),
            )
        ],
    )


MOVE = OngoingPartitionReassignment(replicas=[1, 3, 2], adding_replicas=[3], removing_replicas=[2])


@pytest.mark.parametrize(
    ("only", "shown"),
    [
        (set(), [0, 1, 2]),
        ({"under-replicated-partitions"}, []),
        ({"unavailable-partitions"}, [1]),
        ({"under-min-isr-partitions"}, [1]),
        ({"at-min-isr-partitions"}, [1]),
        ({"under-min-isr-partitions", "under-replicated-partitions"}, [1]),
    ],
)
def test_partitions_are_reported_as_kafkas_tool_reports_them(only: set[str], shown: list[int]) -> None:
    """A partition without a leader is below its least ISR. Replicas that are being added are not missed."""
    lines = list(topics.partition_lines(described_topic(), only, 1, {("t", 2): MOVE}))
    assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines] == shown


def test_a_partition_that_is_being_moved_is_shown_with_the_move() -> None:
    topic = described_topic()
    topic.partitions = topic.partitions[2:]
    (line,) = topics.partition_lines(topic, (), 1, {("t", 2): MOVE})
    assert line == (
        "\tTopic: t\tPartition: 2\tLeader: 1\tReplicas: 1,3,2\tIsr: 1,2"
        "\tAdding Replicas: 3\tRemoving Replicas: 2\tElr: \tLastKnownElr: "
    )
    assert "ReplicationFactor: 2" in topics.headline(topic, (), {("t", 2): MOVE})
    assert "ReplicationFactor: 3" in topics.headline(topic, (), {})


@pytest.mark.parametrize("refusal", [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_a_topic_with_any_setting_that_is_no_default_has_overrides(
    refusal: ErrorCode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the setting is from a broker's file, and if the caller may not know what is being moved."""
    least = DescribeConfigsResourceResult(name="min.insync.replicas", value="1", config_source=5)
    of_broker = DescribeConfigsResourceResult(name="retention.ms", value="7", config_source=4)
    brokers = Brokers(
        DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_name="t", configs=[least, of_broker]),
                DescribeConfigsResult(resource_name="u", configs=[least]),
            ]
        ),
        ListPartitionReassignmentsResponse(error_code=refusal),
        DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(name=name, partitions=described_topic().partitions)
                for name in ("t", "u")
            ]
        ),
        topics={"t": 3, "u": 3},
    )
    monkeypatch.setattr(topics, "Cluster", lambda _: brokers)
    assert main(["kafka-topics", *NOWHERE, "--describe", "--topics-with-overrides"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Topic: t\t")
    assert line.endswith("Configs: retention.ms=7")


def test_offsets_are_printed_in_the_order_of_kafkas_tool() -> None:
    """Partitions without such an offset are left out."""
    offsets = {("t", 2): 5, ("t", 10): 0, ("t", 1): -1, ("a", 0): 7}
    assert offset_lines(offsets) == ["a:0:7\n", "t:10:0\n", "t:2:5\n"]


def test_offsets_are_told_of_every_topic_that_matches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Reader:
        def __init__(self, _: object, name: str, only: list[int]) -> None:
            self.name, self.only = name, only

        def offsets(self, time: int) -> dict[int, int]:
            return {number: 10 * len(self.name) - time for number in self.only}

    monkeypatch.setattr(cluster, "Cluster", lambda _: Brokers(topics={"bbb": 2, "cc": 1, "d": 3}))
    monkeypatch.setattr(cluster, "Reader", Reader)
    words = ["kafka-get-offsets", *NOWHERE]
    assert main([*words, "--topic", "b.*, c+", "--partitions", "0,7", "--time", "earliest-local"]) == 0
    assert capsys.readouterr().out == "bbb:0:34\ncc:0:24\n"
    assert main([*words, "--time", "-3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert main([*words, "--topic", "nothing"]) == 1
    assert "Could not match any topic-partitions with the specified filters" in capsys.readouterr().err


def test_offsets_that_cannot_be_had_hide_no_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Partial(Brokers):
        def metadata(self, names: list[str] | None) -> MetadataResponse:
            told = super().metadata(names)
            told.topics[0].partitions[1].leader_id = -1
            return told

    class Reader:
        def __init__(self, _: object, name: str, only: list[int]) -> None:
            self.name, self.only = name, only

        def offsets(self, time: int) -> dict[int, int]:
            if self.name == "c":
                raise CommandFailed("c-0: KAFKA_STORAGE_ERROR")
            return dict.fromkeys(self.only, 7)

    monkeypatch.setattr(cluster, "Cluster", lambda _: Partial(topics={"b": 2, "c": 1, "d": 1}))
    monkeypatch.setattr(cluster, "Reader", Reader)
    monkeypatch.setattr(cluster, "Backoff", lambda _: SimpleNamespace(is_over=True))
    assert main(["kafka-get-offsets", *NOWHERE]) == 0
    told = capsys.readouterr()
    assert told.out == "b:0:7\nd:0:7\n"
    assert told.err.splitlines() == [
        "Skip getting offsets for topic-partition b-1 due to error: it has no leader",
        "Skip getting offsets for topic-partition c-0 due to error: c-0: KAFKA_STORAGE_ERROR",
    ]


def test_members_of_both_protocols_are_told_by_their_partitions() -> None:
    who = {"member_id": "m", "client_host": "/10.0.0.1", "client_id": "c"}
    assignment = Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=[0, 2])])
    group = ConsumerGroupDescribed(
        group_state="Reconciling", members=[ConsumerGroupMember(assignment=assignment, **who)]
    )
    found = state_and_owners(Brokers(ConsumerGroupDescribeResponse(groups=[group])), "g")  # type: ignore[arg-type]
    owner = ("m", "/10.0.0.1", "c")
    assert found == ("Reconciling", {("t", 0): owner, ("t", 2): owner})
    classic = DescribeGroupsResponse(groups=[DescribedGroup(group_state="Empty")])
    unknown = ConsumerGroupDescribed(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    answers = Brokers(ConsumerGroupDescribeResponse(groups=[unknown]), classic)
    assert state_and_owners(answers, "g") == ("Empty", {})  # type: ignore[arg-type]


def test_versions_of_the_other_brokers_are_told_while_one_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tool asks the brokers that are not fenced."""
    brokers = {each: Broker(each, f"h{each}", 9, None, is_fenced=each == 3) for each in (1, 2, 3)}

    def versions(broker: Broker, _: object) -> ApiVersionsResponse:
        if broker.node_id == 1:
            raise BrokerAway("h1:9 does not answer")
        return ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=0, max_version=13)])

    monkeypatch.setattr(cluster, "Cluster", lambda _: Brokers())
    monkeypatch.setattr(cluster, "brokers_of", lambda _: ("cluster", brokers))
    monkeypatch.setattr(cluster, "versions_of", versions)
    assert main(["kafka-broker-api-versions", *NOWHERE]) == 0
    away, well, *lines = capsys.readouterr().out.splitlines()
    assert away == "h1:9 (id: 1 rack: null isFenced: false) -> ERROR: h1:9 does not answer"
    assert well == "h2:9 (id: 2 rack: null isFenced: false) -> ("
    assert lines[0] == "\tProduce(0): 0 to 13 [usable: 13],"
    assert lines[-1] == ")"
    assert not any(line.startswith("h3") for line in lines)


def test_the_image_has_every_tool() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    for name in TOOLS:
        assert f"{name.removeprefix('kafka-')}" in text, name


@pytest.mark.parametrize("name", sorted(TOOLS.keys() - {"kafka-storage"}))
def test_the_page_has_the_options_of_each_tool(name: str) -> None:
    """Those of kafka-storage are on the page of `kafkacompat format`."""
    rows = re.findall(r"^\| (all.*|`kafka-.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {
        option
        for tool, options in rows
        if (name not in tool if tool.startswith("all") else tool.startswith(f"`{name}.sh"))
        for option in re.findall(r"`(--[\w.-]+)`", options)
    }
    options, _ = TOOLS[name]
    assert told == {option for action in options()._actions for option in action.option_strings}


def test_a_quorum_is_described_as_kafkas_tool_describes_it() -> None:
    told = PartitionData(
        leader_id=2,
        leader_epoch=7,
        high_watermark=90,
        current_voters=[
            ReplicaState(
                replica_id=1, log_end_offset=80, last_fetch_timestamp=5, last_caught_up_timestamp=60
            ),
            ReplicaState(
                replica_id=2,
                replica_directory_id=bytes(range(16)),
                log_end_offset=100,
                last_fetch_timestamp=100,
                last_caught_up_timestamp=100,
            ),
        ],
        observers=[ReplicaState(replica_id=3)],
    )
    nodes = [Node(node_id=1, listeners=[Listener(name="C", host="::1", port=9)])]
    assert status_lines("c", told, nodes) == [
        "ClusterId:              c",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          90",
        "MaxFollowerLag:         20",
        "MaxFollowerLagTimeMs:   40",
        'CurrentVoters:          [{"id": 1, "endpoints": ["C://[::1]:9"]}, {"id": 2, "directoryId": "AAECAwQFBgcICQoLDA0ODw"}]',
        'CurrentObservers:       [{"id": 3}]',
    ]
    rows = [line.split("\t") for line in replication_lines(told)]
    assert [row[0].strip() for row in rows] == ["NodeId", "2", "1", "3"]
    assert [cell.strip() for cell in rows[2]] == ["1", "A" * 22, "80", "20", "5", "60", "Follower", ""]
    assert len({tuple(map(len, row)) for row in rows}) == 1
    with pytest.raises(CommandFailed, match="no leader"):
        replication_lines(PartitionData(leader_id=-1))
