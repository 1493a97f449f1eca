"""Rights to the resources in requests: allowed elements are handled, denied ones refused, and hidden ones left out."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api import named_rights
from kafkacompat.api._tests.kit import Api, value_of
from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api._tests.test_produce import request as produce
from kafkacompat.api._tests.test_produce import results as produced
from kafkacompat.api.handler import NoResponse
from kafkacompat.api.named_rights import Order
from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS, ApiTable
from kafkacompat.api.request_context import NotController
from kafkacompat.api.serve import REFUSED_AT_ONCE, Route, serve
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import batch_of, image_of, partition_image, topic_image
from kafkacompat.ports.dispatcher import CloseConnection
from kafkacompat.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.apis import APIS, ApiKey, request_class, response_class
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
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
ANONYMOUS = "User:ANONYMOUS"


def request_of(key: ApiKey, **fields: Any) -> Any:
    make: Any = request_class(key)
    return make(**fields)


def mine(kind: ResourceType, operation: AclOperation, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, ANONYMOUS, "*", operation, AclPermissionType.ALLOW)


def secured(*acls: Acl, **settings: Any) -> Api:
    """An Api with the topics `a` and `b`, with two partitions each."""
    api = Api(topic_image("a", 2), topic_image("b", 2), **settings)
    api.node.authorizer = authorizer(*acls)
    return api


# Elements that are refused one by one.


def named(field: str) -> Callable[[type, str], Any]:
    """Return a function that makes an element whose field has the name."""
    return lambda element, name: element(**{field: name})


def config_of(kind: int) -> Callable[[type, str], Any]:
    return lambda element, name: element(resource_type=kind, resource_name=name, configs=[])


CASES = [
    pytest.param(BROKER_APIS, ApiKey.LIST_OFFSETS, "topics", TOPIC, AclOperation.DESCRIBE, named("name")),
    pytest.param(
        BROKER_APIS, ApiKey.OFFSET_FOR_LEADER_EPOCH, "topics", TOPIC, AclOperation.DESCRIBE, named("topic")
    ),
    pytest.param(BROKER_APIS, ApiKey.DESCRIBE_PRODUCERS, "topics", TOPIC, AclOperation.READ, named("name")),
    pytest.param(BROKER_APIS, ApiKey.DESCRIBE_GROUPS, "groups", GROUP, AclOperation.DESCRIBE, None),
    pytest.param(BROKER_APIS, ApiKey.DELETE_GROUPS, "groups_names", GROUP, AclOperation.DELETE, None),
    pytest.param(
        BROKER_APIS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        "transactional_ids",
        TRANSACTIONAL_ID,
        AclOperation.DESCRIBE,
        None,
    ),
    pytest.param(
        BROKER_APIS,
        ApiKey.DESCRIBE_CONFIGS,
        "resources",
        TOPIC,
        AclOperation.DESCRIBE_CONFIGS,
        lambda element, name: element(resource_type=2, resource_name=name),
    ),
    pytest.param(CONTROLLER_APIS, ApiKey.CREATE_TOPICS, "topics", TOPIC, AclOperation.CREATE, named("name")),
    pytest.param(
        CONTROLLER_APIS, ApiKey.CREATE_PARTITIONS, "topics", TOPIC, AclOperation.ALTER, named("name")
    ),
    pytest.param(CONTROLLER_APIS, ApiKey.DELETE_TOPICS, "topics", TOPIC, AclOperation.DELETE, named("name")),
    pytest.param(
        CONTROLLER_APIS, ApiKey.ALTER_CONFIGS, "resources", GROUP, AclOperation.ALTER_CONFIGS, config_of(32)
    ),
    pytest.param(
        CONTROLLER_APIS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "resources",
        TOPIC,
        AclOperation.ALTER_CONFIGS,
        config_of(2),
    ),
]
REFUSALS = {TOPIC: 29, GROUP: 30, TRANSACTIONAL_ID: 53}


def elements_of(key: ApiKey, field: str, make: Callable[[type, str], Any] | None, *names: str) -> list[Any]:
    if make is None:
        return list(names)
    module = __import__(request_class(int(key)).__module__, fromlist=["_"])
    annotation = request_class(int(key)).__init__.__annotations__[field]
    element = getattr(module, annotation.split("[")[1].split("]")[0])
    return [make(element, name) for name in names]


def id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


async def awaited(response: Any) -> Any:
    return response


def worked(response: Any) -> Work[Any]:
    yield TURN_COST
    return response


MESSAGE = "message"
ANSWERS_LATER: dict[str, Callable[[Any], Any]] = {
    "deferred": Deferred.of,
    "coroutine": awaited,
    "work": worked,
}
"""What a handler may return that does not answer at once."""


class Done:
    """The handler's answer to an element, with its name where answers are told apart by it."""

    def __init__(self, element: Any, name: str | None) -> None:
        if name is not None:
            setattr(self, name, element if isinstance(element, str) else getattr(element, name))


def asked(
    table: ApiTable,
    key: ApiKey,
    request: Any,
    *acls: Acl,
    kind_of_answer: str = MESSAGE,
    topics: tuple[str, ...] = (),
    is_active: bool = True,
    deletes: bool = True,
) -> tuple[Any, list[Any]]:
    """Return the answer and the requests that reached the handler. The handler answers with one element for each
    requested one. `topics` exist, besides `a` and `b`. `is_active`: on the active controller. `deletes`: the value of
    delete.topic.enable."""
    version = APIS[key].latest
    reached: list[Any] = []
    named = table.by_key[int(key)].named[0]
    field, answers = named.request_field, named.response_field

    def handler(node: Any, context: Any, request: Any) -> Any:
        reached.append(list(getattr(request, field)))
        response = response_class(int(key))(
            **{answers: [Done(each, named.answer_name) for each in reached[-1]]}
        )
        return response if kind_of_answer == MESSAGE else ANSWERS_LATER[kind_of_answer](response)

    route = Route(int(key), version, table)
    rights = table.by_key[int(key)].named
    function: Any = handler
    for each in rights:
        function = each.guarded(function, route.error_response)
    route.function, route.may_be_long = function, False
    known = {id_of(name): SimpleNamespace(name=name) for name in topics}
    image = SimpleNamespace(topics=dict.fromkeys(("a", "b", *topics), 1), topics_by_id=known)
    node: Any = SimpleNamespace(
        authorizer=authorizer(*acls),
        opening=None,
        coordinators=None,
        image=image,
        controller=SimpleNamespace(is_active=is_active),
        config=SimpleNamespace(get_boolean={"delete.topic.enable": deletes}.__getitem__),
    )
    return value_of(serve(route, node, context(int(key), version), request)), reached


@pytest.mark.parametrize("kind_of_answer", [MESSAGE, *ANSWERS_LATER])
@pytest.mark.parametrize(("table", "key", "field", "kind", "operation", "make"), CASES)
def test_what_is_allowed_reaches_the_handler_and_the_rest_is_refused_beside_it(
    table: ApiTable, key: ApiKey, field: str, kind: Any, operation: Any, make: Any, kind_of_answer: str
) -> None:
    request = request_of(key, **{field: elements_of(key, field, make, "b", "a")})
    answer, reached = asked(table, key, request, allow(kind, operation, "a"), kind_of_answer=kind_of_answer)
    (only,) = reached
    assert only == elements_of(key, field, make, "a")
    rights = table.by_key[int(key)].named[0]
    answers = getattr(answer, rights.response_field)
    refused, done = reversed(answers) if rights.order is Order.REFUSED_LAST else answers
    assert isinstance(done, Done)
    code = getattr(refused, "error_code", None)
    partitions = getattr(refused, "partitions", [])
    assert code == REFUSALS[kind] or (code is None and partitions == [])


@pytest.mark.parametrize(("table", "key", "field", "kind", "operation", "make"), CASES)
def test_nothing_reaches_the_handler_where_nothing_is_allowed(
    table: ApiTable, key: ApiKey, field: str, kind: Any, operation: Any, make: Any
) -> None:
    request = request_of(key, **{field: elements_of(key, field, make, "a", "b")})
    answer, reached = asked(table, key, request)
    assert reached == []
    assert len(getattr(answer, table.by_key[int(key)].named[0].response_field)) == 2
    assert not getattr(answer, "error_code", 0)


@pytest.mark.parametrize(("table", "key", "field", "kind", "operation", "make"), CASES)
def test_a_request_is_whole_again_for_the_next_controller(
    table: ApiTable, key: ApiKey, field: str, kind: Any, operation: Any, make: Any
) -> None:
    """If this controller loses its role, the request goes to the next one. An error of the whole request names all elements."""
    request = request_of(key, **{field: elements_of(key, field, make, "b", "a")})
    sent = deepcopy(request)
    asked(table, key, request, allow(kind, operation, "a"))
    assert request == sent


def test_a_topic_that_is_named_by_its_id_is_so_again_for_the_next_controller() -> None:
    (topic,) = elements_of(ApiKey.DELETE_TOPICS, "topics", named("name"), "")
    topic.name, topic.topic_id = None, id_of("c")
    request = request_of(ApiKey.DELETE_TOPICS, topics=[topic])
    right = allow(TOPIC, AclOperation.DESCRIBE, "c")
    answer, _ = asked(CONTROLLER_APIS, ApiKey.DELETE_TOPICS, request, right, topics=("c",))
    assert [(each.name, each.error_code) for each in answer.responses] == [("c", 29)]
    assert request.topics[0].name is None


@pytest.mark.parametrize(
    ("key", "operation"),
    [(ApiKey.CREATE_TOPICS, AclOperation.CREATE), (ApiKey.DELETE_TOPICS, AclOperation.DELETE)],
)
def test_a_right_to_the_cluster_is_one_to_all_topics(key: ApiKey, operation: AclOperation) -> None:
    request = request_of(key, topics=elements_of(key, "topics", named("name"), "a", "b"))
    _, reached = asked(CONTROLLER_APIS, key, request, allow(CLUSTER, operation, "kafka-cluster"))
    assert len(reached[0]) == 2


def test_who_names_very_many_elements_without_any_right_is_not_answered_for_each() -> None:
    def moves(partitions: int) -> AlterReplicaLogDirsRequest:
        topic = AlterReplicaLogDirTopic(name="a", partitions=list(range(partitions)))
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=[topic])])

    api = secured()
    (told,) = api.call(moves(10), 2).results
    assert {each.error_code for each in told.partitions} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    with pytest.raises(CloseConnection):
        api.call(moves(REFUSED_AT_ONCE), 2)


def test_what_is_named_twice_is_left_to_the_handler_which_refuses_it() -> None:
    key = ApiKey.CREATE_PARTITIONS
    request = request_of(key, topics=elements_of(key, "topics", named("name"), "a", "b", "a"))
    _, reached = asked(CONTROLLER_APIS, key, request)
    assert [each.name for each in reached[0]] == ["a", "a"]


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_flawed_settings_are_invalid_whoever_sends_them(key: ApiKey) -> None:
    (resource,) = elements_of(key, "resources", config_of(2), "a")
    config = SimpleNamespace(name="x", value=None, config_operation=0)
    resource.configs = [config]
    answer, reached = asked(CONTROLLER_APIS, key, request_of(key, resources=[resource]))
    assert (reached, answer.responses[0].error_code) == ([], ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_a_broker_asks_for_the_right_to_brokers_before_it_looks_at_their_settings(key: ApiKey) -> None:
    """As Apache Kafka 4.4 does. What else the request names is the controller's to judge."""
    (broker,) = elements_of(key, "resources", config_of(4), "a")
    (topic,) = elements_of(key, "resources", config_of(2), "a")
    request = request_of(key, resources=[broker, topic])
    answer, reached = asked(BROKER_APIS, key, request)
    assert reached == [[topic]]
    refusal = answer.responses[0]
    assert (refusal.error_code, refusal.error_message) == (31, None), "no text, as in Kafka"
    broker.configs = [SimpleNamespace(name="x", value="1", config_operation=0)] * 2
    flawed, _ = asked(BROKER_APIS, key, request_of(key, resources=[broker]))
    assert [each.error_code for each in flawed.responses] == [ErrorCode.INVALID_REQUEST]
    twice, reached = asked(BROKER_APIS, key, request_of(key, resources=[broker, broker]))
    assert (len(twice.responses), reached) == (2, [[broker, broker]])
    request = request_of(key, resources=[broker])
    _, reached = asked(BROKER_APIS, key, request, allow(CLUSTER, AclOperation.ALTER_CONFIGS, "kafka-cluster"))
    assert reached == [[broker]]


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_resources_are_answered_in_the_order_of_the_request(key: ApiKey) -> None:
    """As in Apache Kafka, whoever may change which of them."""
    brokers = elements_of(key, "resources", config_of(4), "1", "2")
    topics = elements_of(key, "resources", config_of(2), "a", "b")
    request = request_of(key, resources=[brokers[0], topics[0], brokers[1], topics[1]])
    answer, reached = asked(BROKER_APIS, key, request)
    assert reached == [topics]
    refused, done, refused_too, done_too = answer.responses
    assert (refused.resource_name, refused_too.resource_name) == ("1", "2")
    assert isinstance(done, Done)
    assert isinstance(done_too, Done)


def test_a_topic_that_is_not_there_is_told_to_those_who_may_see_it() -> None:
    """Only a name that the sender may delete reaches the controller: there the topic may exist when its turn comes."""
    names = ("gone", "a", "mine", "hidden")
    request = request_of(
        ApiKey.DELETE_TOPICS, topics=elements_of(ApiKey.DELETE_TOPICS, "topics", named("name"), *names)
    )
    acls = [
        allow(TOPIC, AclOperation.DESCRIBE, "gone"),
        allow(TOPIC, AclOperation.DESCRIBE, "a"),
        allow(TOPIC, AclOperation.DELETE, "mine"),
    ]
    answer, reached = asked(CONTROLLER_APIS, ApiKey.DELETE_TOPICS, request, *acls)
    assert [each.name for each in reached[0]] == ["mine"]
    assert {each.name: each.error_code for each in answer.responses[1:]} == {"gone": 3, "a": 29, "hidden": 29}


def test_only_the_active_controller_tells_that_a_topic_is_not_there() -> None:
    request = request_of(
        ApiKey.DELETE_TOPICS, topics=elements_of(ApiKey.DELETE_TOPICS, "topics", named("name"), "new")
    )
    right = allow(TOPIC, AclOperation.DESCRIBE, "new")
    with pytest.raises(NotController):
        asked(CONTROLLER_APIS, ApiKey.DELETE_TOPICS, request, right, is_active=False)


def test_a_topic_that_may_not_be_described_is_deleted_by_its_id_only() -> None:
    """As in Apache Kafka. Whoever may describe a topic is told its name when its deletion by id is refused."""
    names = ("hidden", "shown", "secret")
    elements = elements_of(ApiKey.DELETE_TOPICS, "topics", named("name"), "hidden", *names)
    for element, name in zip(elements[1:], names, strict=True):
        element.name, element.topic_id = None, id_of(name)
    acls = [
        allow(TOPIC, AclOperation.DELETE, "hidden"),
        allow(TOPIC, AclOperation.DESCRIBE, "hidden")._replace(permission_type=AclPermissionType.DENY),
        allow(TOPIC, AclOperation.DESCRIBE, "shown"),
    ]
    request = request_of(ApiKey.DELETE_TOPICS, topics=elements)
    answer, reached = asked(CONTROLLER_APIS, ApiKey.DELETE_TOPICS, request, *acls, topics=names)
    assert [each.topic_id for each in reached[0]] == [id_of("hidden")]
    assert [(each.name, each.topic_id, each.error_code) for each in answer.responses[-3:]] == [
        ("hidden", bytes(16), 29),
        ("shown", id_of("shown"), 29),
        (None, id_of("secret"), 29),
    ]


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize("named_by", ["topics", "topic_names"])
def test_whoever_deletes_topics_is_told_that_the_cluster_deletes_none(named_by: str, is_active: bool) -> None:
    """As in Apache Kafka: with delete.topic.enable=false no right is looked at, and the handler refuses all topics."""
    make = named("name") if named_by == "topics" else None
    elements = elements_of(ApiKey.DELETE_TOPICS, named_by, make, "a", "gone")
    request = request_of(ApiKey.DELETE_TOPICS, **{named_by: elements})
    answer, reached = asked(
        CONTROLLER_APIS, ApiKey.DELETE_TOPICS, request, deletes=False, is_active=is_active
    )
    assert reached == [request.topics]
    assert all(isinstance(each, Done) for each in answer.responses)


def test_settings_of_brokers_are_the_clusters_and_loggers_are_the_nodes() -> None:
    changes = named_rights.INCREMENTALLY_ALTER_CONFIGS
    asks = {
        kind: changes.asks(SimpleNamespace(), SimpleNamespace(resource_type=kind, resource_name="1"))  # type: ignore[arg-type]
        for kind in (4, 8, 16, 99)
    }
    assert asks[4] == asks[16] == (AclOperation.ALTER_CONFIGS, CLUSTER, "kafka-cluster")
    assert asks[8] == (AclOperation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    assert asks[99] is None


# Handlers that check rights themselves.


@pytest.mark.parametrize("version", range(3, 14))
def test_records_go_to_topics_that_may_be_written(version: int) -> None:
    api = secured(mine(TOPIC, AclOperation.WRITE, "a"))
    request = produce(("a", 0, batch_of(b"x")), ("b", 0, batch_of(b"y")), api=api)
    assert sorted(produced(api.call(request, version))) == [(0, 0, 0), (0, 29, -1)]
    only = produce(("b", 1, batch_of(b"y")), api=api)
    assert produced(api.call(only, version)) == [(1, 29, -1)]
    for partition in (0, 1):
        assert api.world.manager.log(TopicPartition("b", partition)).log_end_offset == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("topics", [("b",), ("b", "a")])
def test_a_denied_produce_is_one_line_of_the_audit_log(
    topics: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    api = secured(mine(TOPIC, AclOperation.WRITE, "a"))
    with caplog.at_level("INFO", "kafka.authorizer.logger"):
        api.call(produce(*((name, 0, batch_of(b"x")) for name in topics), api=api), 13)
    (line,) = caplog.messages
    assert "Denied operation = WRITE" in line


def test_without_a_reply_the_refusal_of_the_only_part_closes_the_connection() -> None:
    api = secured()
    with pytest.raises(CloseConnection):
        api.send(produce(("b", 0, batch_of(b"y")), acks=0), 9)
    assert api.world.manager.log(TopicPartition("b", 0)).log_end_offset == 0  # type: ignore[union-attr]


def test_without_a_reply_the_refusal_of_a_part_closes_the_connection() -> None:
    api = secured(mine(TOPIC, AclOperation.WRITE, "a"))
    request = produce(("a", 0, batch_of(b"x")), ("b", 0, batch_of(b"y")), acks=0)
    with pytest.raises(CloseConnection):
        api.send(request, 9)
    assert api.world.manager.log(TopicPartition("a", 0)).log_end_offset == 1  # type: ignore[union-attr]
    assert NoResponse.CLOSE is not NoResponse.SILENT


def test_a_transaction_needs_the_right_to_its_id_before_any_topic() -> None:
    api = secured(mine(TOPIC, AclOperation.WRITE, "a"))
    batch = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce(("a", 0, batch), ("b", 0, batch), transactional_id="tx")
    assert {code for _, code, _ in produced(api.call(request, 9))} == {53}


def test_a_topic_that_becomes_known_after_the_look_at_rights_takes_nothing() -> None:
    """Its id may be known from another broker, and the coordinator of the transaction may take its time."""
    rights = mine(TOPIC, AclOperation.WRITE, "a"), mine(TRANSACTIONAL_ID, AclOperation.WRITE, "tx")
    api = secured(*rights)
    batch = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = produce(("a", 0, batch), ("b", 0, batch_of(b"y")), transactional_id="tx", api=api)
    api.publish(image_of(topic_image("a", 2)))
    api.verifier.held = Deferred()
    pending = api.send(request, 13)
    api.publish(image_of(topic_image("a", 2), topic_image("b", 2)))
    api.verifier.held.resolve({TopicPartition("a", 0): ErrorCode.NONE})
    api.settle()
    answer = produced(api.decoded(pending.reply.result(), 0, 13))
    assert sorted(answer) == [(0, 0, 0), (0, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert api.world.manager.log(TopicPartition("b", 0)).log_end_offset == 0  # type: ignore[union-attr]


def fetch(api: Api, *topics: str, version: int = 12, **fields: Any) -> FetchRequest:
    return FetchRequest(
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=api.node.image.topics[name].id,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
            for name in topics
        ],
        **fields,
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_records_come_from_topics_that_may_be_read(version: int) -> None:
    api = secured(
        mine(TOPIC, AclOperation.READ, "a"), *(mine(TOPIC, AclOperation.WRITE, name) for name in "ab")
    )
    for name in "ab":
        api.call(produce((name, 0, batch_of(b"x"))), 9)
    response = api.call(fetch(api, "a", "b", version=version), version)
    told = [(one.error_code, bool(one.records)) for topic in response.responses for one in topic.partitions]
    assert told == [(0, True), (29, False)]


def test_a_session_is_asked_for_its_rights_with_each_fetch() -> None:
    api = secured(mine(TOPIC, AclOperation.READ, "a"))
    first = api.call(fetch(api, "a", session_epoch=0), 12)
    assert first.session_id
    api.node.authorizer = authorizer()
    again = api.call(FetchRequest(max_bytes=1 << 20, session_id=first.session_id, session_epoch=1), 12)
    assert [one.error_code for topic in again.responses for one in topic.partitions] == [29]


def test_what_is_refused_does_not_end_the_wait_for_the_rest() -> None:
    api = secured(mine(TOPIC, AclOperation.READ, "a"), mine(TOPIC, AclOperation.WRITE, "b"))
    parked = api.send(fetch(api, "a", "b", max_wait_ms=500, min_bytes=1), 12)
    api.call(produce(("b", 0, batch_of(b"x"))), 9)
    assert not parked.reply.done


def test_a_follower_reads_all_or_nothing() -> None:
    api = secured(mine(TOPIC, AclOperation.READ, "a"))
    request = fetch(api, "a", replica_state=ReplicaState(replica_id=2, replica_epoch=-1))
    (topic,) = api.call(request, 18).responses
    assert topic.partitions[0].error_code == 29
    api.node.authorizer = authorizer(mine(CLUSTER, AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    (topic,) = api.call(request, 18).responses
    assert topic.partitions[0].error_code != 29


@pytest.mark.parametrize("version", range(14))
def test_topics_that_may_not_be_seen_are_left_out_or_refused(version: int) -> None:
    api = secured(mine(TOPIC, AclOperation.READ, "a"), mine(TOPIC, AclOperation.DESCRIBE, "absent"))
    everything = api.call(MetadataRequest(topics=None if version else []), version)
    assert [topic.name for topic in everything.topics] == ["a"]
    wanted = [MetadataRequestTopic(name=name) for name in ("a", "b", "absent", "hidden")]
    request = MetadataRequest(topics=wanted)
    if version >= 4:
        request.allow_auto_topic_creation = False
    answer = api.call(request, version)
    found = {topic.name: topic.error_code for topic in answer.topics}
    creates = version < 4  # older versions cannot forbid creation
    assert found == {"a": 0, "b": 29, "hidden": 29, "absent": 29 if creates else 3}
    assert all(topic.topic_id == bytes(16) for topic in answer.topics if topic.error_code)


@pytest.mark.parametrize(
    "enough", [(CLUSTER, "kafka-cluster"), (TOPIC, "absent")], ids=["to the cluster", "to the topic"]
)
def test_topics_are_made_on_demand_for_those_who_may_make_them(enough: tuple[Any, str]) -> None:
    seen = mine(TOPIC, AclOperation.DESCRIBE, "absent")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="absent")], allow_auto_topic_creation=True)
    api = secured(seen)
    assert [each.error_code for each in api.call(request, 12).topics] == [29]
    assert api.creator.asked == []
    api = secured(seen, mine(enough[0], AclOperation.CREATE, enough[1]))
    assert [each.error_code for each in api.call(request, 12).topics] == [3]
    assert api.creator.asked == [["absent"]]


def test_an_id_tells_nothing_of_a_hidden_topic_but_that_it_is_refused() -> None:
    api = secured()
    topic_id = api.node.image.topics["b"].id
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    (topic,) = api.call(request, 12).topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.partitions) == (29, None, topic_id, [])


def test_operations_that_are_told_are_the_senders() -> None:
    api = secured(mine(TOPIC, AclOperation.READ, "a"), mine(CLUSTER, AclOperation.ALTER, "kafka-cluster"))
    topic_bits = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    cluster_bits = 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
    for _ in range(2):  # an answer for one sender is not cached for others
        answer = api.call(
            MetadataRequest(
                topics=None,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
            8,
        )
        assert [each.topic_authorized_operations for each in answer.topics] == [topic_bits]
        assert answer.cluster_authorized_operations == cluster_bits
    api.node.authorizer = authorizer(mine(TOPIC, AclOperation.DESCRIBE, "a"))
    answer = api.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 8)
    assert [each.topic_authorized_operations for each in answer.topics] == [1 << AclOperation.DESCRIBE]
    api.node.authorizer = authorizer(mine(CLUSTER, AclOperation.ALTER, "kafka-cluster"))
    described = api.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert described.cluster_authorized_operations == cluster_bits
    api.node.authorizer = authorizer()
    described = api.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert described.cluster_authorized_operations == 0


def test_pages_of_partitions_leave_out_what_may_not_be_seen() -> None:
    api = secured(
        mine(TOPIC, AclOperation.DESCRIBE, "b"), overrides={"max.request.partition.size.limit": "1"}
    )
    page = api.call(DescribeTopicPartitionsRequest(response_partition_limit=1), 0)
    assert [(topic.name, len(topic.partitions)) for topic in page.topics] == [("b", 1)]
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("b", 1)
    wanted = [TopicRequest(name=name) for name in ("a", "b", "c")]
    page = api.call(DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=1), 0)
    assert [(topic.name, topic.error_code) for topic in page.topics] == [("b", 0), ("a", 29), ("c", 29)]


def test_records_are_deleted_where_that_is_allowed() -> None:
    api = secured(mine(TOPIC, AclOperation.DELETE, "a"), mine(TOPIC, AclOperation.WRITE, "a"))
    api.call(produce(("a", 0, batch_of(b"x"))), 9)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
            for name in "ab"
        ],
        timeout_ms=1000,
    )
    answer = api.call(request, 2)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {"a": 0, "b": 29}


def test_one_partition_of_the_fakes_is_led_here() -> None:
    """Otherwise the requests above would be refused for another reason."""
    assert partition_image().leader == 1


@pytest.mark.parametrize(
    ("key", "field", "make", "text"),
    [
        (ApiKey.CREATE_TOPICS, "topics", named("name"), "Authorization failed."),
        (ApiKey.DELETE_TOPICS, "topics", named("name"), "Topic authorization failed."),
        (ApiKey.ALTER_CONFIGS, "resources", config_of(2), "Topic authorization failed."),
        (ApiKey.ALTER_CONFIGS, "resources", config_of(4), "Cluster authorization failed."),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources", config_of(32), "Group authorization failed."),
        (ApiKey.CREATE_PARTITIONS, "topics", named("name"), None),
        (
            ApiKey.DESCRIBE_CONFIGS,
            "resources",
            lambda element, name: element(resource_type=2, resource_name=name),
            "Topic authorization failed.",
        ),
    ],
)
def test_refusals_have_the_texts_of_kafka(key: ApiKey, field: str, make: Any, text: str | None) -> None:
    request = request_of(key, **{field: elements_of(key, field, make, "a")})
    answer, reached = asked(CONTROLLER_APIS, key, request)
    (refusal,) = next(
        told for name in ("topics", "responses", "results") if (told := getattr(answer, name, None))
    )
    assert (reached, refusal.error_message) == ([], text)


def test_refusals_are_in_their_places_where_what_is_named_twice_is_answered_together() -> None:
    acls = (allow(ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, name) for name in "ab")
    request = request_of(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=["no", "a", "b", "a", "nor"])
    answer, _ = asked(BROKER_APIS, ApiKey.DESCRIBE_TRANSACTIONS, request, *acls)
    assert [each.transactional_id for each in answer.transaction_states] == ["no", "a", "a", "b", "nor"]


def test_groups_that_may_not_be_described_come_first() -> None:
    request = request_of(ApiKey.DESCRIBE_GROUPS, groups=["a", "no"])
    acl = allow(ResourceType.GROUP, AclOperation.DESCRIBE, "a")
    answer, _ = asked(BROKER_APIS, ApiKey.DESCRIBE_GROUPS, request, acl)
    refused, done = answer.groups
    assert refused.group_id == "no"
    assert isinstance(done, Done)
