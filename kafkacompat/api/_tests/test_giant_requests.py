"""Requests with as many elements as possible: no handler processes all of them in one turn of the loop.

The tests count pauses, with hundreds or thousands of elements in each kind of array. They include elements without
names and requests that are refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import CoroutineType, GeneratorType, SimpleNamespace
from typing import Any

import pytest

from kafkacompat import tasks
from kafkacompat._tests.doubles import HandTime
from kafkacompat.api import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    leave_group,
    list_config_resources,
    list_offsets,
    long_requests,
    metadata,
    offset_for_leader_epoch,
    write_txn_markers,
)
from kafkacompat.api._tests.kit import Api, pauses_of
from kafkacompat.api._tests.test_long_requests import in_steps, pausing, stepping_api
from kafkacompat.api.long_requests import CHARACTERS_A_STEP, slice_bounds
from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.request_context import RequestContext
from kafkacompat.controller.image import SCRAM_CREDENTIALS
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports import LogDirStatus, ProducerStateEntry
from kafkacompat.tasks import Tasks, at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkacompat.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from kafkacompat.wire.messages.describe_topic_partitions_request import TopicRequest as DescribedTopic
from kafkacompat.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from kafkacompat.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def handled(api: Api, request: Any, version: int) -> tuple[Any, int]:
    """Return the response and the number of the handler's pauses. Everything that the handler waits for is available."""
    handler = BROKER_APIS.load(request.API_KEY)
    asked = RequestContext(request.API_KEY, version, 0, None, 1, "PLAINTEXT", "h")
    long = handler.long
    if long is not None and long.size(api.node, request) > long.at_once:
        answer = long.steps(api.node, asked, request)
    else:
        answer = handler.function(api.node, asked, request)
    pauses: list[int] = []
    while isinstance(answer, GeneratorType | CoroutineType):
        answer = at_once(pausing(pauses_of(answer), pauses))
    return (answer.result() if isinstance(answer, Deferred) else answer), len(pauses)


def epochs(topics: int, partitions: int) -> OffsetForLeaderEpochRequest:
    asked = [OffsetForLeaderPartition(partition=index) for index in range(partitions)]
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=f"x{index}", partitions=asked) for index in range(topics)]
    )


def fetched(topics: int, partitions: int, isolation_level: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index) for index in range(partitions)]
    return FetchRequest(
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=f"x{index}", partitions=asked) for index in range(topics)],
    )


def markers(count: int, topics: int = 0) -> WriteTxnMarkersRequest:
    named = [WritableTxnMarkerTopic(name=f"x{index}") for index in range(topics)]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=named)] * count)


def moves(topics: int, partitions: int) -> AlterReplicaLogDirsRequest:
    asked = [
        AlterReplicaLogDirTopic(name=f"x{index}", partitions=list(range(partitions)))
        for index in range(topics)
    ]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data/b", topics=asked)])


def names(version: int, *, name: str | None = "x") -> tuple[MetadataRequest, int]:
    count = 4 * metadata.NAMED_A_STEP
    asked = [MetadataRequestTopic(name=name and f"{name}{index}") for index in range(count)]
    return MetadataRequest(topics=asked), version


MANY = 20_000
GIANTS: dict[str, tuple[Callable[[], Any], int, int]] = {
    "partitions whose epochs end": (
        lambda: epochs(1, MANY),
        4,
        MANY // offset_for_leader_epoch.LOOKED_UP_A_STEP,
    ),
    "topics without epochs": (lambda: epochs(MANY, 0), 4, MANY // offset_for_leader_epoch.LOOKED_UP_A_STEP),
    "partitions whose producers are described": (
        lambda: DescribeProducersRequest(
            topics=[TopicRequest(name="x", partition_indexes=list(range(MANY)))]
        ),
        0,
        MANY // describe_producers.DESCRIBED_A_STEP,
    ),
    "topics without producers": (
        lambda: DescribeProducersRequest(topics=[TopicRequest(name="x")] * MANY),
        0,
        MANY // describe_producers.DESCRIBED_A_STEP,
    ),
    "topics without anything to fetch": (lambda: fetched(MANY, 0), 12, MANY // fetch.NAMED_AT_ONCE),
    "topics without anything to forget": (
        lambda: FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="x", partitions=[])] * MANY),
        12,
        MANY // fetch.NAMED_AT_ONCE,
    ),
    "partitions of a fetch that is refused": (
        lambda: fetched(1, MANY, isolation_level=2),
        12,
        MANY // fetch.NAMED_AT_ONCE,
    ),
    "partitions of a lookup that is refused": (
        lambda: ListOffsetsRequest(
            isolation_level=2,
            topics=[ListOffsetsTopic(name="x", partitions=[ListOffsetsPartition()] * MANY)],
        ),
        7,
        MANY // list_offsets.COUNTED_A_STEP,
    ),
    "one partition that is looked up again and again": (
        lambda: ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="x", partitions=[ListOffsetsPartition()] * MANY)]
        ),
        7,
        # One pass counts the partitions, and one skips them.
        2 * MANY // list_offsets.COUNTED_A_STEP - 1,
    ),
    "topics that are named": (lambda: names(9)[0], 9, MANY // metadata.NAMED_A_STEP + 30),
    "topics without a name or an id": (
        lambda: names(10, name=None)[0],
        10,
        2 * MANY // metadata.NAMED_A_STEP - 2,
    ),
    "topics whose cursor is refused": (
        lambda: DescribeTopicPartitionsRequest(
            topics=[DescribedTopic(name="x")] * MANY, cursor=Cursor(topic_name="x", partition_index=-1)
        ),
        0,
        MANY // describe_topic_partitions.NAMED_A_STEP - 1,
    ),
    "resources of which one is of no known type": (
        lambda: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=99, resource_name="x")] * MANY
        ),
        4,
        9,
    ),
    "keys of coordinators": (
        lambda: FindCoordinatorRequest(key_type=9, coordinator_keys=["x"] * MANY),
        4,
        MANY // find_coordinator.LOCATED_A_STEP,
    ),
    "long keys of coordinators": (
        lambda: FindCoordinatorRequest(key_type=9, coordinator_keys=["x" * 32_000] * 20),
        4,
        20,
    ),
    "partitions whose records go": (
        lambda: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="x",
                    partitions=[DeleteRecordsPartition(partition_index=index) for index in range(MANY)],
                )
            ]
        ),
        2,
        MANY // delete_records.DELETED_A_STEP + MANY // delete_records.NAMED_A_STEP,
    ),
    "replicas that are to move": (lambda: moves(1, MANY), 2, MANY // alter_replica_log_dirs.ASKED_A_STEP),
    "topics of which nothing is to move": (
        lambda: moves(MANY, 0),
        2,
        MANY // alter_replica_log_dirs.WALKED_A_STEP,
    ),
    "partitions whose logs are described": (
        lambda: DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic="x", partitions=list(range(MANY)))]
        ),
        4,
        MANY // describe_log_dirs.NAMED_A_STEP,
    ),
    "topics of which no log is described": (
        lambda: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="x")] * MANY),
        4,
        MANY // describe_log_dirs.NAMED_A_STEP,
    ),
    "markers of no partition": (lambda: markers(MANY), 2, MANY // write_txn_markers.WALKED_A_STEP),
    "topics of a marker of no partition": (
        lambda: markers(1, MANY),
        2,
        MANY // write_txn_markers.WALKED_A_STEP,
    ),
}
"""The request, its version, and the minimum number of the handler's pauses."""


@pytest.mark.parametrize("name", GIANTS)
def test_what_a_request_holds_is_gone_through_in_steps(name: str) -> None:
    make, version, pauses = GIANTS[name]
    api = Api(topic_image("t"))
    api.node.transactions = SimpleNamespace(markers=None)  # type: ignore[assignment]  # nothing comes to it
    assert handled(api, make(), version)[1] >= pauses


def test_logs_are_described_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_log_dirs, "DESCRIBED_A_STEP", 10)
    api = Api(topic_image("t", 100))
    for index in range(100):
        api.world.manager.core(("t", index))
    response, pauses = handled(api, DescribeLogDirsRequest(topics=None), 4)
    ((topic,),) = [result.topics for result in response.results]
    told = [one.partition_index for one in topic.partitions]
    assert told == sorted(told)
    assert len(told) > 30
    assert pauses >= len(told) // 10


class Name(str):
    """Counts how often names are compared to be sorted."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return str.__lt__(self, other)


def _log_dirs(api: Api, names: list[Name]) -> Any:
    logs = {TopicPartition(name, 0): api.world.log("t") for name in names}
    status = LogDirStatus("/a", bytes(16), online=True, total_bytes=1, usable_bytes=1, logs=logs, futures={})
    api.node.log_manager = SimpleNamespace(  # type: ignore[assignment]
        log_dirs=lambda: [status], get=lambda partition: None
    )
    return DescribeLogDirsRequest(topics=None)


def _credentials(api: Api, names: list[Name]) -> Any:
    kept = {(name, 1): UserScramCredentialRecord(name=name, mechanism=1, iterations=4096) for name in names}
    api.node.image = replace(api.node.image, opaque={SCRAM_CREDENTIALS: kept})
    return DescribeUserScramCredentialsRequest(users=None)


def _topics(api: Api, names: list[Name], asked: Any) -> Any:
    topic = api.node.image.topics["t"]
    api.node.image = replace(api.node.image, topics={name: replace(topic, name=name) for name in names})
    return asked


SORTING: dict[str, Callable[[Api, list[Name]], Any]] = {
    "log directories": _log_dirs,
    "credentials of users": _credentials,
    "all topics": lambda api, names: _topics(api, names, MetadataRequest(topics=None)),
    "resources": lambda api, names: _topics(api, names, ListConfigResourcesRequest(resource_types=[2])),
}


@pytest.mark.parametrize("name", SORTING)
def test_what_an_answer_has_in_order_is_sorted_in_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SORTED_A_STEP", 20)
    api = Api(topic_image("t"))
    names = [Name(f"t{7_919 * each % 10_007}") for each in range(1_000)]
    request = SORTING[name](api, names)
    handler = BROKER_APIS.load(request.API_KEY)
    function: Any = handler.function if handler.long is None else handler.long.steps
    asked = RequestContext(request.API_KEY, 1, 0, None, 1, "PLAINTEXT", "h")
    before, most = Name.compared, 0
    for _ in function(api.node, asked, request):
        most, before = max(most, Name.compared - before), Name.compared
    most = max(most, Name.compared - before)
    assert 0 < most < 1_000


def test_resources_with_settings_are_listed_in_steps() -> None:
    api = Api(topic_image("t"))
    configs = {(32, f"g{index}"): {"some": "value"} for index in range(MANY)}
    api.publish(replace(api.node.image, configs=configs))
    response, pauses = handled(api, ListConfigResourcesRequest(resource_types=[32]), 1)
    assert len(response.config_resources) == MANY
    assert pauses >= MANY // list_config_resources.NAMED_A_STEP


def test_the_producers_of_a_partition_are_described_in_steps_as_far_as_they_are_still_known() -> None:
    api = Api(topic_image("t"))
    log: Any = api.world.manager.log(TopicPartition("t", 0))
    state = log._state
    for producer_id in range(3 * describe_producers.DESCRIBED_A_STEP):
        state.apply_data(producer_id, 0, 0, producer_id, producer_id, 5, False)
    entries = log.active_producers()
    assert next(entries) == ProducerStateEntry(0, 0, 0, 5, -1, -1)
    del state.producers[1]
    assert next(entries).producer_id == 2
    response, pauses = handled(
        api, DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]), 0
    )
    assert pauses >= 3
    assert len(response.topics[0].partitions[0].active_producers) == len(state.producers)


class LeftGroup:
    """Answers each member with its position in the request. From position `ends_at` on, the coordinator is on another node."""

    def __init__(self, ends_at: int) -> None:
        self.sizes: list[int] = []
        self._ends_at = ends_at

    def leave_group(self, request: LeaveGroupRequest, context: RequestContext) -> Deferred[Any]:
        assert request.group_id == "g"
        self.sizes.append(len(request.members))
        if len(self.sizes) > self._ends_at:
            return Deferred.of(LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        members = [MemberResponse(member_id=each.member_id, error_code=7) for each in request.members]
        return Deferred.of(LeaveGroupResponse(members=members))


@pytest.mark.parametrize(("ends_at", "error"), [(9, 0), (1, ErrorCode.NOT_COORDINATOR)])
def test_many_members_leave_a_group_in_pieces(ends_at: int, error: int) -> None:
    api = Api(topic_image("t"))
    api.node.groups = groups = LeftGroup(ends_at)  # type: ignore[assignment]  # as much as is used
    ids = [f"m{index}" for index in range(2 * leave_group.PIECE + 1)]
    members = [MemberIdentity(member_id=each) for each in ids]
    response, _ = handled(api, LeaveGroupRequest(group_id="g", members=members), 5)
    assert response.error_code == error
    assert [each.member_id for each in response.members] == ([] if error else ids)
    assert groups.sizes == [leave_group.PIECE, leave_group.PIECE, 1][: ends_at + 1]


def test_a_topic_named_twice_has_the_epochs_of_both_mentions_in_one_answer() -> None:
    request = epochs(2, 2)
    request.topics[1].topic = "x0"
    response, _ = handled(Api(topic_image("t")), request, 4)
    assert [(topic.topic, len(topic.partitions)) for topic in response.topics] == [("x0", 4)]


def test_slices_of_long_names_hold_few() -> None:
    """Each name is hashed, and a name may have 32,767 characters."""
    assert list(slice_bounds(["x"] * 5, 2)) == [(0, 2), (2, 4), (4, 5)]
    long = "x" * CHARACTERS_A_STEP
    assert list(slice_bounds([long, "x", long + "x", "y"], 100)) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert list(slice_bounds([object()] * 3, 2)) == [(0, 2), (2, 3)]


def test_groups_of_long_names_are_described_a_few_a_step() -> None:
    api = stepping_api(topic_image("t"))
    asked: list[int] = []

    class Groups:
        def describe_groups(self, request: DescribeGroupsRequest, context: RequestContext) -> Deferred[Any]:
            from kafkacompat.wire.messages.describe_groups_response import (
                DescribedGroup,
                DescribeGroupsResponse,
            )

            asked.append(len(request.groups))
            return Deferred.of(
                DescribeGroupsResponse(groups=[DescribedGroup(group_id=each) for each in request.groups])
            )

    api.node.groups = Groups()  # type: ignore[assignment]  # as much as is used
    names = [f"{index}" + "x" * 30_000 for index in range(10)]
    response, _ = in_steps(api, DescribeGroupsRequest(groups=names), 5)
    assert [group.group_id for group in response.groups] == names
    assert asked == [1] * 10


def test_an_answer_that_comes_in_steps_is_let_go_of_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small request may get an answer with half a million producers. Freeing them takes as long as creating them."""
    freed: list[int] = []
    original = long_requests.freed

    def noted(arrays: list[list[Any]]) -> Any:
        freed.append(sum(map(len, arrays)))
        return original(arrays)

    monkeypatch.setattr(long_requests, "freed", noted)
    api = stepping_api(topic_image("t"))
    request = DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=list(range(2_000)))])
    response, _ = in_steps(api, request, 0)
    assert len(response.topics[0].partitions) == 2_000
    assert freed == [1]


def test_only_so_many_missing_topics_are_looked_at_as_may_be_made() -> None:
    from kafkacompat.node.auto_topic_creation_manager import MAX_IN_FLIGHT, AutoTopicCreationManager

    looked: list[str] = []

    def named() -> Any:
        for index in range(10 * MAX_IN_FLIGHT):
            looked.append(f"x{index}")
            yield looked[-1]

    api = Api(topic_image("t"))
    made: list[Any] = []

    def create(request: Any, asker: Any) -> Deferred[Any]:
        made.append(request)
        return Deferred()

    creator = AutoTopicCreationManager(
        api.settings.config.effective, create, lambda *_: None, Tasks(HandTime()), HandTime()
    )
    creator.request(named())
    assert len(looked) <= MAX_IN_FLIGHT + 1
    assert [topic.name for topic in made[0].topics] == [f"x{index}" for index in range(MAX_IN_FLIGHT)]
    creator.request(named())
    assert len(made) == 1


def test_replicas_are_asked_for_in_their_order_whatever_the_steps() -> None:
    api = Api(topic_image("t"))
    asked: list[TopicPartition] = []

    class Directories:
        def alter(self, name: TopicPartition, path: str) -> ErrorCode:
            asked.append(name)
            return ErrorCode.NONE

    api.node.directories = Directories()
    response, _ = handled(api, moves(2, 50), 2)
    assert asked == [TopicPartition(f"x{topic}", index) for topic in range(2) for index in range(50)]
    assert [len(topic.partitions) for topic in response.results] == [50, 50]


def test_the_topics_and_partitions_of_a_page_are_described_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_topic_partitions, "DESCRIBED_A_STEP", 7)
    api = Api(topic_image("a", 30), *[topic_image(f"b{each:02}") for each in range(30)])
    response, pauses = handled(api, DescribeTopicPartitionsRequest(response_partition_limit=2000), 0)
    assert [len(topic.partitions) for topic in response.topics] == [30] + 30 * [1]
    assert pauses >= (31 + 60) // 7
    unknown = DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=f"x{each}") for each in range(70)])
    response, pauses = handled(api, unknown, 0)
    assert len(response.topics) == 70
    assert pauses >= 70 // 7


def test_all_topics_are_described_in_steps_in_version_0_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty array asks for all of them there."""
    monkeypatch.setattr(metadata, "DESCRIBED_A_STEP", 7)
    api = Api(*[topic_image(f"t{each:02}") for each in range(70)])
    response, pauses = handled(api, MetadataRequest(topics=[]), 0)
    assert len(response.topics) == 70
    assert pauses >= 70 // 7
    assert len(api.call(MetadataRequest(topics=[]), 0).topics) == 70
