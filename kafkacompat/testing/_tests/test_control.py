"""The control API: each operation once on a Kafka, and what a caller is told who is wrong."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from urllib.parse import quote

import pytest

from kafkacompat.testing import control_reference
from kafkacompat.testing.control import FAULT_ARGUMENTS, OPERATIONS, carry_out
from kafkacompat.testing.control_arguments import Problem
from kafkacompat.testing.control_openapi import openapi
from kafkacompat.testing.controlled import Control
from kafkacompat.testing.faults import EFFECTS, Rule, Selector
from kafkacompat.testing.kafka import Kafka


class Api:
    """What a program does over HTTP, without it."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.control = Control(kafka)

    def get(self, target: str) -> Any:
        return self._ask("GET", target, None)

    def post(self, target: str, **body: Any) -> Any:
        return self._ask("POST", target, body)

    def delete(self, target: str) -> Any:
        return self._ask("DELETE", target, None)

    def _ask(self, method: str, target: str, body: Any) -> Any:
        answer = carry_out(self.control, method, target, body)
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
        return answer

    def problem(self, method: str, target: str, body: Any = None) -> Problem:
        with pytest.raises(Problem) as raised:
            carry_out(self.control, method, target, body)
        assert str(raised.value)
        return raised.value


@pytest.fixture(scope="module")
def running() -> Iterator[Api]:
    kafka = Kafka()
    kafka.record_requests()
    with kafka:
        api = Api(kafka)
        yield api
        api.control.stop()


@pytest.fixture
def api(running: Api) -> Iterator[Api]:
    yield running
    running.post("/end_test", verify=False)
    running.post("/reset")


def test_records_are_written_and_read(api: Api) -> None:
    assert api.post("/topics", name="orders", partitions=2, configs={"retention.ms": 1000000}) == {
        "name": "orders"
    }
    headers = [{"name": "from", "value": "till"}, {"name": "empty"}]
    values = ["tea", None, {"base64": "/w=="}, {"cups": 2}]
    assert (
        api.post(
            "/topics/orders/records", values=values, key="k", headers=headers, partition=1, timestamp_ms=5
        )
        == {}
    )
    records = api.get("/topics/orders/records?partition=1")
    assert [each["value"] for each in records] == ["tea", None, {"base64": "/w=="}, '{"cups": 2}']
    assert records[0] == {
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp_ms": 5,
        "key": "k",
        "value": "tea",
        "headers": [{"name": "from", "value": "till"}, {"name": "empty", "value": None}],
        "producer_id": -1,
        "transaction": None,
    }
    assert api.get("/topics/orders/records?partition=0") == []
    assert api.get("/topics/orders/ends")[1] == {
        "partition": 1,
        "first": 0,
        "last_stable": 4,
        "high_watermark": 4,
    }
    assert api.get("/topics") == [{"name": "orders", "partitions": 2}]
    found = api.post("/topics/orders/expect", values=values, key="k", timeout_s=0)
    assert [each["offset"] for each in found] == [0, 1, 2, 3]
    assert api.delete("/topics/orders") == {}
    assert api.get("/topics") == []


def test_what_is_expected_is_waited_for_and_told(api: Api) -> None:
    api.post("/topics", name="late")
    later = threading.Timer(0.05, lambda: api.post("/topics/late/records", values=["tea"]))
    later.start()
    assert len(api.post("/topics/late/expect", values=["tea"], timeout_s=60)) == 1
    later.join()
    problem = api.problem("POST", "/topics/late/expect", {"values": ["milk"], "timeout_s": 0.01})
    assert problem.status == 409
    assert "missing: b'milk'" in str(problem)
    assert "(after 0.01 s)" in str(problem)


def test_a_topic_with_a_name_of_its_own_is_gone_when_the_test_ends(api: Api) -> None:
    name = api.post("/topics", name="orders", own_name=True)["name"]
    assert name.startswith("orders-")
    api.post("/end_test")
    assert api.get("/topics") == []


def test_groups_and_transactions_are_shown(api: Api) -> None:
    assert api.get("/groups") == api.get("/transactions") == []
    group = quote("a/b", safe="")
    assert api.get(f"/groups/{group}/committed") == []
    assert api.get(f"/groups/{group}/lag") == {"lag": 0}
    api.post("/topics", name="orders")
    api.post("/topics/orders/records", values=["tea"])
    assert api.get(f"/groups/{group}/lag?topic=orders") == {"lag": 1}
    problem = api.problem("POST", f"/groups/{group}/wait", {"lag": 0, "timeout_s": 0})
    assert (problem.status, "group a/b does not exist" in str(problem)) == (409, True)
    problem = api.problem("POST", f"/groups/{group}/expire_session")
    assert (problem.status, str(problem)) == (404, "group 'a/b' has no member")
    api.post("/transactions/till/move_coordinator", to=1)  # which makes the topic of transactions
    api.post("/transactions/till/fence")
    (shown,) = api.get("/transactions")
    assert (shown["transactional_id"], shown["state"], shown["partitions"]) == ("till", "Empty", {})


def test_states_are_kept_restored_and_forked(api: Api) -> None:
    api.post("/topics", name="orders")
    api.post("/topics/orders/records", values=["tea"])
    snapshot = api.post("/snapshots")["snapshot"]
    api.post("/topics/orders/records", values=["coffee"])
    fork = api.post("/forks")
    other = api.post("/forks", snapshot=snapshot)
    assert fork["bootstrap_servers"] != other["bootstrap_servers"]
    assert len(api.get(f"/topics/orders/records?fork={fork['fork']}")) == 2
    assert len(api.get(f"/topics/orders/records?fork={other['fork']}")) == 1
    api.post(f"/topics/orders/records?fork={other['fork']}", values=["milk", "sugar"])
    assert len(api.get("/topics/orders/records")) == 2
    api.post(f"/snapshots/{snapshot}/restore")
    assert [each["value"] for each in api.get("/topics/orders/records")] == ["tea"]
    for each in (fork, other):
        assert api.delete(f"/forks/{each['fork']}") == {}
        assert api.problem("GET", f"/topics?fork={each['fork']}").status == 404
    api.delete(f"/snapshots/{snapshot}")
    assert api.problem("POST", f"/snapshots/{snapshot}/restore").argument == "snapshot"
    api.post("/reset")
    assert api.get("/topics") == []


def test_the_clock_is_stopped_and_moved(api: Api) -> None:
    assert api.get("/clock")["is_frozen"] is False
    at = api.post("/clock/at", time="2040-01-01T01:00:00+01:00")
    assert at == {"time": "2040-01-01T00:00:00+00:00", "time_ms": 2208988800000, "is_frozen": True}
    assert api.post("/clock/advance", minutes=1, ms=5)["time_ms"] == at["time_ms"] + 60_005
    assert api.post("/clock/at", time_ms=at["time_ms"])["time_ms"] == at["time_ms"]
    assert api.post("/clock/freeze")["is_frozen"] is True
    assert api.post("/clock/settle")["is_frozen"] is True
    assert api.post("/clock/resume")["is_frozen"] is False
    for body in ({}, {"time": "2040-01-01"}, {"time": "soon"}, {"time_ms": -1}, {"time": "x", "time_ms": 1}):
        assert api.problem("POST", "/clock/at", body).status == 400
    for body in ({}, {"minutes": -1}, {"days": 4000}, {"days": 3650, "hours": 1}):
        assert api.problem("POST", "/clock/advance", body).status == 400


def test_faults_are_added_and_never_hit(api: Api) -> None:
    fault = api.post("/faults", fault="error", code="NOT_LEADER_OR_FOLLOWER", api="Produce", times=None)
    assert fault["hits"] == 0
    assert fault["rule"].startswith("error(NOT_LEADER_OR_FOLLOWER")
    optional = api.post("/faults", fault="delay", ms=10, optional=True)
    assert api.get("/faults") == [fault, optional]
    assert api.get(f"/faults/{fault['fault_id']}") == fault
    assert "was hit 0 of 1" in str(
        api.problem("POST", f"/faults/{fault['fault_id']}/wait", {"timeout_s": 0.01})
    )
    problem = api.problem("POST", "/faults/verify")
    assert problem.status == 409
    assert fault["rule"] in str(problem)
    assert optional["rule"] not in str(problem)
    assert api.delete(f"/faults/{fault['fault_id']}") == {}
    assert api.problem("POST", "/end_test").status == 409
    assert api.get("/faults") == []
    assert api.post("/faults/verify") == api.delete("/faults") == api.post("/end_test") == {}


@pytest.mark.parametrize(
    ("body", "argument"),
    [
        ({}, "fault"),
        ({"fault": "rain"}, "fault"),
        ({"fault": "error"}, "code"),
        ({"fault": "error", "code": "NONE"}, "code"),
        ({"fault": "error", "code": 3}, "code"),
        ({"fault": "delay"}, "ms"),
        ({"fault": "delay", "ms": "1"}, "ms"),
        ({"fault": "delay", "ms": True}, "ms"),
        ({"fault": "delay", "ms": -1}, "ms"),
        ({"fault": "delay", "ms": 1.5}, "ms"),
        ({"fault": "close", "ms": 1}, "ms"),
        ({"fault": "close", "api": "Nothing"}, "api"),
        ({"fault": "close", "times": 0}, "times"),
        ({"fault": "close", "probability": 1.1}, "probability"),
        ({"fault": "close", "when": "lambda: True"}, "when"),
        ({"fault": "corrupt", "api": "Produce"}, None),
        ({"fault": "full_disk", "api": "Produce"}, None),
    ],
)
def test_a_fault_that_cannot_be_is_refused(api: Api, body: Any, argument: str | None) -> None:
    problem = api.problem("POST", "/faults", body)
    assert (problem.status, problem.argument) == (400, argument)
    assert api.get("/faults") == []


def test_nodes_end_and_start(api: Api) -> None:
    assert api.get("/nodes") == [{"node": 1, "is_running": True, "is_paused": False}]
    api.post("/nodes/1/kill")
    assert api.problem("GET", "/topics").status == 409
    assert api.problem("POST", "/nodes/1/kill").status == 409
    api.post("/nodes/1/start")
    assert str(api.problem("POST", "/nodes/1/start")) == "node 1 runs already"
    api.post("/nodes/1/pause")
    assert api.get("/nodes")[0]["is_paused"] is True
    assert api.problem("GET", "/topics").status == 409
    api.post("/nodes/1/resume")
    api.post("/nodes/1/restart")
    api.post("/nodes/1/stop")
    api.post("/end_test")
    assert api.get("/topics") == []
    assert api.problem("POST", "/nodes/7/stop").argument == "node"
    assert api.problem("POST", "/partition", {"sides": [[1], [2]]}).argument == "sides"
    assert api.post("/partition", sides=[[1]]) == api.post("/heal") == {}
    assert "serving" in api.get("/log")["log"] or api.get("/log")["log"]


def test_a_cluster_under_stress() -> None:
    with Kafka(nodes=3) as kafka:
        kafka.record_requests()
        api = Api(kafka)
        api.post("/topics", name="orders", replication_factor=3)
        api.post("/topics/orders/move_leader", to=3)
        assert kafka.leads(3, "orders", 0)
        fault = api.post("/topics/orders/shrink_isr", partition=0, to=[3])
        assert api.problem("POST", "/topics/orders/shrink_isr", {"to": [1]}).status == 400
        assert api.problem("POST", "/topics/orders/shrink_isr", {"to": [4]}).argument == "to"
        api.delete(f"/faults/{fault['fault_id']}")
        api.post("/groups/g/move_coordinator", to=2)
        api.post("/partition", sides=[[1], [2, 3]])
        api.post("/heal")
        api.post("/topics/orders/records", values=["tea"])
        api.post("/nodes/1/kill")
        assert len(api.get("/topics/orders/records")) == 1
        api.post("/end_test")
        assert [each["is_running"] for each in api.get("/nodes")] == [True] * 3


def test_requests_are_shown_without_secrets(api: Api) -> None:
    from kafka import KafkaProducer

    topic = api.post("/topics", own_name=True)["name"]
    api.delete("/requests")
    assert api.get("/requests") == []
    fault = api.post("/faults", fault="error", code="NOT_LEADER_OR_FOLLOWER", topic=topic, api="Produce")
    producer = KafkaProducer(bootstrap_servers=api.kafka.bootstrap_servers, client_id="till")
    producer.send(topic, b"\xff").get(20)
    producer.close()
    assert api.post(f"/faults/{fault['fault_id']}/wait")["hits"] == 1
    refused, done = api.get("/requests?api=Produce&client_id=till")
    assert refused["errors"] == ["NOT_LEADER_OR_FOLLOWER"]
    assert refused["faults"]
    assert done["errors"] == []
    assert done["request"]["topic_data"][0]["partition_data"][0]["records"].keys() == {"base64"}
    assert api.get("/requests?api=Produce&limit=1") == [done]
    ids = [
        topic["topic_id"]
        for each in api.get("/requests?api=Metadata&limit=2000")
        for topic in each["response"]["topics"]
    ]
    assert ids
    assert all(re.fullmatch(r"[\w-]{22}", each) for each in ids)
    assert api.problem("GET", "/requests?api=Nothing").argument == "api"


def test_kafkas_error_is_named(api: Api) -> None:
    api.post("/topics", name="orders")
    problem = api.problem("POST", "/topics", {"name": "orders"})
    assert (problem.status, problem.error) == (409, "TOPIC_ALREADY_EXISTS")
    problem = api.problem("POST", "/topics", {"name": "x", "configs": {"no.such": 1}})
    assert problem.error == "INVALID_CONFIG"
    assert problem.as_json() == {"message": str(problem), "error": "INVALID_CONFIG", "argument": None}
    assert api.problem("GET", "/topics/nothing/records").status == 404
    assert api.problem("GET", "/topics/nothing/ends").argument == "topic"
    assert api.problem("POST", "/topics/nothing/move_leader", {"to": 1}).status == 404


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "argument"),
    [
        ("GET", "/nothing", None, 404, None),
        ("GET", "/", None, 404, None),
        ("GET", "/topics/%ff/records", None, 400, None),
        ("POST", "/groups", None, 405, None),
        ("DELETE", "/reset", None, 405, None),
        ("GET", "/nodes/x", None, 404, None),
        ("POST", "/nodes/0/stop", None, 400, "node"),
        ("GET", "/topics/x/records?partition=x", None, 400, "partition"),
        ("GET", "/topics/x/records?partition=1&partition=2", None, 400, None),
        ("GET", "/topics/x/records?" + "&".join(f"a{n}=1" for n in range(60)), None, 400, None),
        ("GET", "/topics?colour=red", None, 400, "colour"),
        ("GET", "/topics?fork=x", None, 404, "fork"),
        ("POST", "/topics?name=x", None, 400, "name"),
        ("POST", "/topics", [], 400, None),
        ("POST", "/topics", {}, 400, "name"),
        ("POST", "/topics", {"name": 1}, 400, "name"),
        ("POST", "/topics", {"name": "x", "partitions": 1 << 40}, 400, "partitions"),
        ("POST", "/topics", {"name": "x", "configs": []}, 400, "configs"),
        ("POST", "/topics", {"name": "\ud800"}, 409, None),
        ("POST", "/topics/x/records", {}, 400, "values"),
        ("POST", "/topics/x/records", {"values": [{"base64": "!"}]}, 400, None),
        ("POST", "/topics/x/records", {"values": ["\ud800"]}, 400, None),
        ("POST", "/topics/x/records", {"values": [], "headers": [{}]}, 400, "headers[0]"),
        ("POST", "/topics/x/records", {"values": [], "headers": [{"name": "a", "b": 1}]}, 400, "headers[0]"),
        ("POST", "/topics/x/expect", {"values": [], "timeout_s": 601}, 400, "timeout_s"),
        ("POST", "/topics/x/expect", {"values": [], "timeout_s": float("nan")}, 400, "timeout_s"),
        ("POST", "/groups/g/wait", {"timeout_s": 1}, 400, None),
        ("POST", "/groups/g/assign", {"assignment": {"m": {"t": [-1]}}}, 400, "assignment.m.t[0]"),
        ("POST", "/groups/g/assign", {"assignment": {"m": {"t": [1]}}}, 404, None),
        ("POST", "/groups/g/move_coordinator", {"to": 9}, 404, "to"),
        ("POST", "/topics/x/shrink_isr", {"to": []}, 404, "topic"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(
    api: Api, method: str, target: str, body: Any, status: int, argument: str | None
) -> None:
    problem = api.problem(method, target, body)
    assert (problem.status, problem.argument) == (status, argument), str(problem)


def test_a_long_wait_holds_up_nobody(api: Api) -> None:
    """Not even who replaces the nodes meanwhile."""
    done: list[Problem | None] = []

    def wait() -> None:
        try:
            api.post("/topics/orders/expect", values=["tea"], timeout_s=60)
        except Problem as problem:
            done.append(problem)
        else:
            done.append(None)

    waiting = threading.Thread(target=wait)
    waiting.start()
    for _ in range(5):
        api.post("/reset")
    api.post("/nodes/1/restart")
    api.post("/nodes/1/kill")
    assert "no node runs" in str(api.problem("POST", "/groups/g/wait", {"lag": 0, "timeout_s": 0}))
    api.post("/nodes/1/start")
    assert done == []
    api.post("/topics/orders/records", values=["tea"])
    waiting.join(30)
    assert done == [None]


def test_the_document_describes_every_operation() -> None:
    document = openapi()
    text = json.dumps(document)
    assert document["openapi"] == "3.1.0"
    told = [
        (method.upper(), path, each)
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]
    assert len(told) == len(OPERATIONS) == len({each["operationId"] for _, _, each in told})
    for _, path, each in told:
        in_path = {argument["name"] for argument in each["parameters"] if argument.get("in") == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
    for name in re.findall(r'"#/components/([\w/]+)"', text):
        kind, _, found = name.partition("/")
        assert found in document["components"][kind]


def test_the_page_of_the_control_api_says_what_the_table_says() -> None:
    assert control_reference.PAGE.read_text(encoding="utf-8") == control_reference.page(), (
        "python -m kafkacompat.testing.control_reference"
    )


def test_every_argument_of_a_fault_but_functions_is_there() -> None:
    of_effects = {each.name for effect in EFFECTS.values() for each in fields(effect)}
    of_rules = {each.name for kind in (Rule, Selector) for each in fields(kind)}
    known = {each.name for each in FAULT_ARGUMENTS}
    assert known == (of_effects | of_rules | {"fault"}) - {"effect", "selector", "when"}


def test_operations_that_change_nothing_are_gets() -> None:
    assert {each.name for each in OPERATIONS if each.method == "GET"} == {
        *("topics", "records", "ends", "groups", "committed", "lag", "transactions"),
        *("now", "faults", "fault", "requests", "log", "nodes"),
    }


def test_time_of_waits_is_real(api: Api) -> None:
    api.post("/clock/freeze")
    began = time.monotonic()
    assert api.problem("POST", "/groups/g/wait", {"members": 1, "timeout_s": 0.05}).status == 409
    assert time.monotonic() - began >= 0.05
