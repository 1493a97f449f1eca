"""The operations of a Kafka of tests as plain JSON, for programs in any language.

`OPERATIONS` is the one table: routes, the checks of arguments and the OpenAPI document follow from it.
control_server.py serves it over HTTP, and control_openapi.py describes it.

JSON has no bytes. Keys, values and headers that are UTF-8 are text, others are `{"base64": "..."}`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_type_hints
from urllib.parse import parse_qsl, unquote

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.recorded import APIS_BY_NAME, Recorded
from kafkacompat.faults import report
from kafkacompat.testing.clock import NotAtRest
from kafkacompat.testing.control_arguments import (
    BYTES_TEXT,
    HEADERS,
    INT32_MAX,
    INT64_MAX,
    KEY,
    NODE_ID,
    PARTITION,
    TIMEOUT,
    TO_NODE,
    VALUES,
    WAIT_S,
    Argument,
    Problem,
    Values,
    anything,
    arguments_of,
    checked,
    flag,
    many,
    mapping,
    of_query,
    real,
    string,
    whole,
)
from kafkacompat.testing.control_json import as_json, from_json
from kafkacompat.testing.controlled import Control, Controlled
from kafkacompat.testing.exchanges import KEPT_MAX
from kafkacompat.testing.faults import EFFECTS, Fault, rule_of
from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.node import NodeEnded
from kafkacompat.testing.operations import Refused
from kafkacompat.testing.values import Committed, Ends, Group, Record, Transaction
from kafkacompat.testing.waiting import LOOK_MAX_S, LOOK_S
from kafkacompat.wire.errors import ErrorCode

T = TypeVar("T")
FORKS_MAX, SNAPSHOTS_MAX, FAULTS_MAX = 16, 100, 1_000
NO_NODE = "no node runs that could be asked"
QUERY_FIELDS_MAX = 50
DELAY_MAX_MS = 86_400_000
ADVANCE_MAX = timedelta(days=3_650)
TIME_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    text: str
    run: Callable[[Control, Controlled, dict[str, Any]], Any]
    arguments: tuple[Argument, ...] = ()
    answer: Any = None
    """The type of the answer, or its schema. None: an empty object."""
    turn: Literal["shared", "nodes", "alone", "free"] = "shared"
    """Which turn it takes. `free`: it takes its turns itself, or none."""

    @property
    def in_path(self) -> tuple[Argument, ...]:
        return tuple(PATH_ARGUMENTS[part[1:-1]] for part in self.path.split("/") if part.startswith("{"))

    def carry_out(self, control: Control, controlled: Controlled, values: dict[str, Any]) -> Any:
        with getattr(controlled.turns, self.turn)():
            if self.turn == "shared" and not controlled.has_node():
                raise Problem(409, NO_NODE)
            found = self.run(control, controlled, values)
        return {} if self.answer is None else found


PATH_ARGUMENTS = {
    "topic": string("topic", "The name of the topic.", required=True),
    "group": string("group", "The id of the group.", required=True),
    "transactional_id": string("transactional_id", "The transactional id.", required=True),
    "node": Argument("node", "The id of the node. Nodes are numbered from 1.", NODE_ID, True),
    "fault_id": whole("fault_id", "The number of the fault.", 1, required=True),
    "snapshot": whole("snapshot", "The number of the snapshot.", 1, required=True),
    "fork": whole("fork", "The number of the fork.", 1, required=True),
}


def _only(values: Values, *names: str) -> dict[str, Any]:
    """Those of the values that were given."""
    return {name: values[name] for name in names if name in values}


def _content(values: Values) -> dict[str, Any]:
    """What is said of records, with bytes in place of their JSON."""
    found = _only(values, "partition", "timestamp_ms")
    if "key" in values:
        found["key"] = from_json(values["key"], "key")
    if "headers" in values:
        found["headers"] = [
            (each["name"], from_json(each.get("value"), f"headers[{at}].value"))
            for at, each in enumerate(values["headers"])
        ]
    return found


def _values(values: Values) -> list[Any]:
    return [from_json(each, f"values[{at}]") for at, each in enumerate(values["values"])]


def _wait(held: Controlled, look: Callable[[], T], timeout_s: float) -> T:
    """Look until nothing is missed any more. Between two looks, nodes may be replaced."""
    end_s, pause_s = time.monotonic() + timeout_s, LOOK_S
    while True:
        try:
            with held.turns.shared():
                if not held.has_node():
                    raise AssertionError(NO_NODE)
                return look()
        except (AssertionError, NodeEnded) as missed:
            if time.monotonic() > end_s:
                if isinstance(missed, NodeEnded):
                    raise
                told = str(missed).removesuffix(" (after 0 s)")
                raise AssertionError(f"{told} (after {timeout_s:g} s)") from None
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_MAX_S)


def _create_topic(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    rest = _only(values, "partitions", "replication_factor", "configs")
    name = values.get("name")
    if values.get("own_name", False):
        return {"name": str(held.kafka.topic(name or "topic", **rest))}
    if name is None:
        raise Problem(400, "name is missing", argument="name")
    held.kafka.create_topic(name, **rest)
    return {"name": name}


def _expect(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    wanted, rest = _values(values), _content(values)
    return _wait(
        held,
        lambda: held.kafka.assert_produced(values["topic"], wanted, timeout_s=0, **rest),
        values.get("timeout_s", WAIT_S),
    )


def _ends(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    ends = held.kafka.ends(held.topic(values["topic"]))
    return [{"partition": index, **as_json(each)} for index, each in sorted(ends.items())]


def _committed(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    return [
        {"topic": topic, "partition": index, **as_json(each)}
        for (topic, index), each in sorted(held.kafka.committed(values["group"]).items())
    ]


def _wait_for_group(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    wanted = _only(values, "lag", "topic", "members", "state")
    if not wanted.keys() & {"lag", "members", "state"}:
        raise Problem(400, "one of lag, members and state is needed")
    group = values["group"]
    _wait(
        held,
        lambda: held.kafka.wait_until(group=group, timeout_s=0, **wanted),
        values.get("timeout_s", WAIT_S),
    )


def _expire_session(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    held.kafka.expire_session(values["group"], values.get("member_id"))


def _nodes(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    return [
        {"node": node_id, "is_running": node.is_running, "is_paused": node_id in held.kafka.paused}
        for node_id, node in sorted(held.kafka.nodes.items())
    ]


def _of_node(
    act: Callable[[Kafka, int], object], *, runs: bool | None = None
) -> Callable[[Control, Controlled, dict[str, Any]], Any]:
    def run(_: Control, held: Controlled, values: dict[str, Any]) -> None:
        act(held.kafka, held.node(values["node"], "node", runs=runs))

    return run


def _cut(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    for side in values["sides"]:
        for node_id in side:
            held.node(node_id, "sides")
    held.kafka.partition(*values["sides"])


def _move_leader(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    to = held.node(values["to"], "to")
    held.kafka.move_leader(held.topic(values["topic"]), values.get("partition", 0), to=to)


def _move_coordinator(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    held.kafka.move_coordinator(
        to=held.node(values["to"], "to"), **_only(values, "group", "transactional_id")
    )


def _shrink_isr(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    to = [held.node(each, "to") for each in values["to"]]
    topic = held.topic(values["topic"])
    fault = held.kafka.shrink_isr(topic, values.get("partition", 0), to=to)
    return _told_fault(held.keep(fault), fault)


def _reset(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    held.kafka.reset()


def _snapshot(control: Control, held: Controlled, _: dict[str, Any]) -> Any:
    _refuse_more(control.snapshots, SNAPSHOTS_MAX, "snapshots")
    number = control.number()
    control.snapshots[number] = held.kafka.snapshot()
    return {"snapshot": number}


def _restore(control: Control, held: Controlled, values: dict[str, Any]) -> Any:
    held.kafka.restore(_one(control.snapshots, values["snapshot"], "snapshot"))


def _forget_snapshot(control: Control, _: Controlled, values: dict[str, Any]) -> Any:
    _one(control.snapshots, values["snapshot"], "snapshot")
    control.snapshots.pop(values["snapshot"]).close()


def _fork(control: Control, held: Controlled, values: dict[str, Any]) -> Any:
    _refuse_more(control.forks, FORKS_MAX, "forks")
    snapshot = values.get("snapshot")
    kept = None if snapshot is None else _one(control.snapshots, snapshot, "snapshot")
    number = control.number()
    control.forks[number] = control.controlled(held.kafka.fork(kept))
    return {"fork": number, "bootstrap_servers": control.forks[number].kafka.bootstrap_servers}


def _end_fork(control: Control, _: Controlled, values: dict[str, Any]) -> Any:
    fork = _one(control.forks, values["fork"], "fork")
    with fork.turns.nodes():
        control.forks.pop(values["fork"], None)
        fork.kafka.stop()


def _one(known: Mapping[int, T], number: int, kind: str) -> T:
    if number not in known:
        raise Problem(404, f"there is no {kind} {number}", argument=kind)
    return known[number]


def _refuse_more(known: Mapping[int, Any], most: int, kind: str) -> None:
    if len(known) >= most:
        raise Problem(409, f"there are {most} {kind} already, which is the most")


def _end_test(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    kafka = held.kafka
    missed: AssertionError | None = None
    if values.get("verify", True):
        try:
            kafka.faults.verify()
        except AssertionError as error:
            missed = error
    _clear_faults(_, held, values)
    kafka.paused.resume_all()
    with held.turns.alone():
        kafka.end_test()
    if missed is not None:
        raise missed


def _clock(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    clock = held.kafka.clock
    return {"time": clock.now().isoformat(), "time_ms": clock.now_ms(), "is_frozen": clock.is_frozen}


def _of_clock(act: Callable[[Kafka], object]) -> Callable[[Control, Controlled, dict[str, Any]], Any]:
    def run(control: Control, held: Controlled, values: dict[str, Any]) -> Any:
        act(held.kafka)
        return _clock(control, held, values)

    return run


def _advance(control: Control, held: Controlled, values: dict[str, Any]) -> Any:
    by = timedelta(**{_PARTS[name]: value for name, value in values.items()})
    if not values or by > ADVANCE_MAX:
        raise Problem(400, f"by how much, up to {ADVANCE_MAX.days} days: {', '.join(_PARTS)}")
    held.kafka.clock.advance(by)
    return _clock(control, held, values)


_PARTS = {"ms": "milliseconds", "seconds": "seconds", "minutes": "minutes", "hours": "hours", "days": "days"}


def _at(control: Control, held: Controlled, values: dict[str, Any]) -> Any:
    if len(values) != 1:
        raise Problem(400, "one of time and time_ms is needed")
    moment_ms = values.get("time_ms")
    if moment_ms is None:
        try:
            moment = datetime.fromisoformat(values["time"])
            moment_ms = round(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            raise Problem(400, "time is not as in 2040-01-01T00:00:00Z", argument="time") from None
        if moment.tzinfo is None:
            raise Problem(400, "time has no time zone, as in 2040-01-01T00:00:00Z", argument="time")
        checked(moment_ms, {"type": "integer", "minimum": 0, "maximum": TIME_MAX_MS}, "time")
    held.kafka.clock.at(moment_ms)
    return _clock(control, held, values)


CLOCK_ANSWER = {"time": str, "time_ms": int, "is_frozen": bool}


def _add_fault(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    _refuse_more(held.faults, FAULTS_MAX, "faults")
    name = values["fault"]
    own = fields(EFFECTS[name])
    for each in own:
        if each.default is MISSING and each.name not in values:
            raise Problem(400, f"{name} needs {each.name}", argument=each.name)
    of_others = _EFFECT_ARGUMENTS - {each.name for each in own}
    for argument in values:
        if argument in of_others:
            raise Problem(400, f"{name} has no {argument}", argument=argument)
    fault = held.kafka.faults.add(rule_of(values))
    return _told_fault(held.keep(fault), fault)


_EFFECT_ARGUMENTS = {each.name for effect in EFFECTS.values() for each in fields(effect)}


def _told_fault(number: int, fault: Fault) -> dict[str, Any]:
    return {"fault_id": number, "rule": str(fault.rule), "hits": fault.hits, "optional": fault.rule.optional}


def _fault(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    return _told_fault(values["fault_id"], held.fault(values["fault_id"]))


def _faults(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    return [_told_fault(number, fault) for number, fault in sorted(held.faults.items())]


def _wait_for_fault(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    number = values["fault_id"]
    fault = held.fault(number)
    fault.wait(values.get("times", 1), values.get("timeout_s", WAIT_S))
    return _told_fault(number, fault)


def _remove_fault(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    held.fault(values["fault_id"]).remove()


def _verify_faults(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    held.kafka.faults.verify()


def _clear_faults(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    held.kafka.faults.clear()
    held.faults.clear()


FAULT_ANSWER = {"fault_id": int, "rule": str, "hits": int, "optional": bool}


def _requests(_: Control, held: Controlled, values: dict[str, Any]) -> Any:
    wanted = dict(values)
    limit = wanted.pop("limit", 100)
    return held.kafka.requests(**wanted)[-limit:]


def _forget_requests(_: Control, held: Controlled, __: dict[str, Any]) -> Any:
    held.kafka.exchanges.clear()


def _effects_with(argument: str) -> str:
    return ", ".join(
        name for name, effect in EFFECTS.items() if argument in {each.name for each in fields(effect)}
    )


CODES = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
FAULT_ARGUMENTS = (
    string("fault", "What goes wrong.", required=True, among=[*EFFECTS]),
    string("code", f"{_effects_with('code')}: the name of Kafka's error.", among=CODES),
    flag("applied", f"{_effects_with('applied')}: the request is carried out nevertheless."),
    whole("ms", f"{_effects_with('ms')}: for how long.", 0, DELAY_MAX_MS),
    flag("reply", f"{_effects_with('reply')}: the reply, and not the request, is held back."),
    whole("at", f"{_effects_with('at')}: how many bytes of the reply are sent. Half of them by default."),
    string("api", "Only requests of this API.", among=sorted(APIS_BY_NAME)),
    whole("version", "Only of this version."),
    string("topic", "Only what names this topic, by name or id."),
    whole("partition", "Only what names this partition."),
    string("group", "Only what names this group."),
    string("transactional_id", "Only what names this transactional id."),
    string("client_id", "Only of this client."),
    string("principal", "Only of this principal, such as User:alice."),
    whole("node", "Only what this node receives."),
    string("listener", "Only what comes by this listener."),
    whole("nth", "The first that is hit, of those that fit. 1 by default.", 1),
    whole("times", "How many are hit. 1 by default. null: until it is removed.", 1, takes_null=True),
    real("probability", "How likely each of them is hit.", 0, 1),
    whole("seed", "Of the probability. The same seed hits the same ones.", 0, INT64_MAX),
    flag("optional", "Nobody complains if it is never hit."),
)
CREATED = {"name": str}

OPERATIONS: tuple[Operation, ...] = (
    # Topics and records.
    Operation(
        "GET",
        "/topics",
        "topics",
        "The topics, without Kafka's internal ones.",
        lambda _, held, __: [
            {"name": name, "partitions": count} for name, count in sorted(held.kafka.topics().items())
        ],
        answer=[{"name": str, "partitions": int}],
    ),
    Operation(
        "POST",
        "/topics",
        "create_topic",
        "Create a topic. Every node knows it when the answer comes.",
        _create_topic,
        (
            string("name", "Its name, or the beginning of it."),
            flag("own_name", "The name gets an end of its own, and the topic is gone when the test ends."),
            whole("partitions", "1 by default.", -1),
            whole("replication_factor", "The cluster's default by default.", -1),
            mapping("configs", "The topic's settings, by Kafka's names.", {}),
        ),
        CREATED,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}",
        "delete_topic",
        "Delete a topic, if it exists.",
        lambda _, held, values: held.kafka.delete_topic(values["topic"]),
    ),
    Operation(
        "GET",
        "/topics/{topic}/records",
        "records",
        "All records, from the brokers' logs.",
        lambda _, held, values: held.kafka.records(values["topic"], partition=values.get("partition")),
        (PARTITION,),
        [Record],
    ),
    Operation(
        "POST",
        "/topics/{topic}/records",
        "produce",
        "Append records. They are committed when the answer comes.",
        lambda _, held, values: held.kafka.produce(values["topic"], _values(values), **_content(values)),
        (
            VALUES,
            KEY,
            HEADERS,
            whole("partition", "By default a key decides as in Kafka's clients, or it is 0."),
            whole("timestamp_ms", "By default that of the clock.", 0, TIME_MAX_MS),
        ),
    ),
    Operation(
        "POST",
        "/topics/{topic}/expect",
        "expect",
        "Wait until the topic has exactly these values, in this order in each partition.",
        _expect,
        (
            VALUES,
            anything("key", f"Only records with this key count. {BYTES_TEXT}"),
            HEADERS,
            PARTITION,
            TIMEOUT,
        ),
        [Record],
        "free",
    ),
    Operation(
        "GET",
        "/topics/{topic}/ends",
        "ends",
        "Where each partition begins and ends.",
        _ends,
        answer=[{"partition": int, **get_type_hints(Ends)}],
    ),
    # Groups and transactions.
    Operation(
        "GET",
        "/groups",
        "groups",
        "All groups.",
        lambda _, held, __: [*held.kafka.groups().values()],
        answer=[Group],
    ),
    Operation(
        "GET",
        "/groups/{group}/committed",
        "committed",
        "What a group has committed.",
        _committed,
        answer=[{"topic": str, "partition": int, **get_type_hints(Committed)}],
    ),
    Operation(
        "GET",
        "/groups/{group}/lag",
        "lag",
        "How many offsets a group is behind.",
        lambda _, held, values: {"lag": held.kafka.lag(values["group"], values.get("topic"))},
        (string("topic", "Only in this topic."),),
        {"lag": int},
    ),
    Operation(
        "POST",
        "/groups/{group}/wait",
        "wait",
        "Wait until all that is said holds for a group.",
        _wait_for_group,
        (
            whole("lag", "It is no further behind.", 0, INT64_MAX),
            string("topic", "The lag is that in this topic."),
            whole("members", "It is stable with so many members."),
            string("state", "It is in this state, such as Stable."),
            TIMEOUT,
        ),
        turn="free",
    ),
    Operation(
        "POST",
        "/groups/{group}/expire_session",
        "expire_session",
        "Remove a member, or all members, as when their sessions end.",
        _expire_session,
        (string("member_id", "The member. All of them by default."),),
    ),
    Operation(
        "POST",
        "/groups/{group}/assign",
        "assign",
        "Give a group of the protocol of KIP-848 a target assignment.",
        lambda _, held, values: held.kafka.assign(values["group"], values["assignment"]),
        (
            mapping(
                "assignment",
                "Partitions by topic, by member id.",
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "items": {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
                    },
                },
                required=True,
            ),
        ),
    ),
    Operation(
        "POST",
        "/groups/{group}/move_coordinator",
        "move_coordinator_of_group",
        "Make a node the coordinator of a group.",
        _move_coordinator,
        (TO_NODE,),
    ),
    Operation(
        "GET",
        "/transactions",
        "transactions",
        "All transactional ids.",
        lambda _, held, __: [*held.kafka.transactions().values()],
        answer=[Transaction],
    ),
    Operation(
        "POST",
        "/transactions/{transactional_id}/fence",
        "fence_producer",
        "Fence the producers that have this transactional id now.",
        lambda _, held, values: held.kafka.fence_producer(values["transactional_id"]),
    ),
    Operation(
        "POST",
        "/transactions/{transactional_id}/move_coordinator",
        "move_coordinator_of_transactions",
        "Make a node the coordinator of a transactional id.",
        _move_coordinator,
        (TO_NODE,),
    ),
    # The state as a whole.
    Operation("POST", "/reset", "reset", "Forget everything.", _reset, turn="alone"),
    Operation(
        "POST",
        "/snapshots",
        "snapshot",
        "Keep the present state.",
        _snapshot,
        answer={"snapshot": int},
        turn="alone",
    ),
    Operation(
        "POST",
        "/snapshots/{snapshot}/restore",
        "restore",
        "Go back to a state, as often as you like.",
        _restore,
        turn="alone",
    ),
    Operation(
        "DELETE",
        "/snapshots/{snapshot}",
        "forget_snapshot",
        "Free its memory.",
        _forget_snapshot,
        turn="alone",
    ),
    Operation(
        "POST",
        "/forks",
        "fork",
        "Start another Kafka with the same state. `?fork=` makes any request one to it.",
        _fork,
        (whole("snapshot", "With the state of this snapshot.", 1),),
        {"fork": int, "bootstrap_servers": str},
        "alone",
    ),
    Operation("DELETE", "/forks/{fork}", "end_fork", "End another Kafka.", _end_fork, turn="free"),
    Operation(
        "POST",
        "/end_test",
        "end_test",
        "Make ready for the next test: forget the faults, start the nodes, mend the links, let the clock go on, "
        "and delete the topics with names of their own. An error tells, when all that is done, that a fault was never hit.",
        _end_test,
        (flag("verify", "Whether faults that were never hit are an error. true by default."),),
        turn="free",
    ),
    # The clock.
    Operation("GET", "/clock", "now", "The nodes' time.", _clock, answer=CLOCK_ANSWER, turn="free"),
    Operation(
        "POST",
        "/clock/freeze",
        "freeze",
        "Stop time.",
        _of_clock(lambda kafka: kafka.clock.freeze()),
        answer=CLOCK_ANSWER,
    ),
    Operation(
        "POST",
        "/clock/resume",
        "resume",
        "Let time go on.",
        _of_clock(lambda kafka: kafka.clock.resume()),
        answer=CLOCK_ANSWER,
        turn="free",
    ),
    Operation(
        "POST",
        "/clock/advance",
        "advance",
        "Move time on. What is due has happened, and is committed, when the answer comes.",
        _advance,
        tuple(
            real(name, "By so many. The parts are added.", 0, ADVANCE_MAX / timedelta(**{part: 1}))
            for name, part in _PARTS.items()
        ),
        CLOCK_ANSWER,
    ),
    Operation(
        "POST",
        "/clock/at",
        "at",
        "Stop time at a moment. An earlier one sets only the wall clock back.",
        _at,
        (
            string("time", "As in 2040-01-01T00:00:00Z."),
            whole("time_ms", "Milliseconds since 1970.", 0, TIME_MAX_MS),
        ),
        CLOCK_ANSWER,
    ),
    Operation(
        "POST",
        "/clock/settle",
        "settle",
        "Wait until the nodes have done all that is due.",
        _of_clock(lambda kafka: kafka.clock.settle()),
        answer=CLOCK_ANSWER,
    ),
    # Faults and requests.
    Operation(
        "POST",
        "/faults",
        "add_fault",
        "Let something go wrong.",
        _add_fault,
        FAULT_ARGUMENTS,
        FAULT_ANSWER,
        "free",
    ),
    Operation("GET", "/faults", "faults", "The faults.", _faults, answer=[FAULT_ANSWER], turn="free"),
    Operation(
        "GET",
        "/faults/{fault_id}",
        "fault",
        "A fault and its hits.",
        _fault,
        answer=FAULT_ANSWER,
        turn="free",
    ),
    Operation(
        "POST",
        "/faults/{fault_id}/wait",
        "wait_for_fault",
        "Wait until it was hit so often.",
        _wait_for_fault,
        (whole("times", "1 by default.", 1), TIMEOUT),
        FAULT_ANSWER,
        "free",
    ),
    Operation(
        "DELETE",
        "/faults/{fault_id}",
        "remove_fault",
        "Let it hit nothing any more. It stays in the list.",
        _remove_fault,
        turn="free",
    ),
    Operation(
        "POST",
        "/faults/verify",
        "verify_faults",
        "An error tells which faults were never hit and are not optional.",
        _verify_faults,
        turn="free",
    ),
    Operation("DELETE", "/faults", "clear_faults", "Forget all faults.", _clear_faults, turn="free"),
    Operation(
        "GET",
        "/requests",
        "requests",
        f"The last of the last {KEPT_MAX} requests, oldest first.",
        _requests,
        (
            string("api", "Only of this API.", among=sorted(APIS_BY_NAME)),
            whole("version", "Only of this version."),
            string("client_id", "Only of this client."),
            string("principal", "Only of this principal."),
            whole("node", "Only what this node has received."),
            string("listener", "Only what came by this listener."),
            whole("limit", "At most so many. 100 by default.", 1, KEPT_MAX),
        ),
        [Recorded],
        "free",
    ),
    Operation("DELETE", "/requests", "forget_requests", "Forget them.", _forget_requests, turn="free"),
    Operation(
        "GET",
        "/log",
        "log",
        "What the nodes have logged.",
        lambda _, held, __: {"log": str(held.kafka.log)},
        answer={"log": str},
        turn="free",
    ),
    # Nodes.
    Operation(
        "GET",
        "/nodes",
        "nodes",
        "The nodes.",
        _nodes,
        answer=[{"node": int, "is_running": bool, "is_paused": bool}],
        turn="free",
    ),
    Operation(
        "POST",
        "/nodes/{node}/start",
        "start_node",
        "Start a node that does not run.",
        _of_node(Kafka.start_node, runs=False),
        turn="alone",
    ),
    Operation(
        "POST",
        "/nodes/{node}/stop",
        "stop_node",
        "Stop a node in order.",
        _of_node(Kafka.stop_node, runs=True),
        turn="alone",
    ),
    Operation(
        "POST",
        "/nodes/{node}/kill",
        "kill_node",
        "End a node as kill -9 does.",
        _of_node(Kafka.kill_node, runs=True),
        turn="nodes",
    ),
    Operation(
        "POST",
        "/nodes/{node}/restart",
        "restart_node",
        "Stop a node in order, and start it again.",
        _of_node(Kafka.restart_node, runs=True),
        turn="alone",
    ),
    Operation(
        "POST",
        "/nodes/{node}/pause",
        "pause_node",
        "Let a node stand still, as kill -STOP does.",
        _of_node(Kafka.pause_node, runs=True),
        turn="nodes",
    ),
    Operation(
        "POST",
        "/nodes/{node}/resume",
        "resume_node",
        "Let it go on.",
        _of_node(Kafka.resume_node),
        turn="free",
    ),
    Operation(
        "POST",
        "/partition",
        "partition",
        "Cut the links between nodes of different sides. Clients reach all of them.",
        _cut,
        (
            many(
                "sides",
                "The ids of the nodes of each side, as in [[1], [2, 3]].",
                {"type": "array", "items": NODE_ID},
                required=True,
            ),
        ),
        turn="free",
    ),
    Operation("POST", "/heal", "heal", "Mend all links.", lambda _, held, __: held.kafka.heal(), turn="free"),
    Operation(
        "POST",
        "/topics/{topic}/move_leader",
        "move_leader",
        "Make a node the leader of a partition, and a replica if it is none.",
        _move_leader,
        (whole("partition", "0 by default."), TO_NODE),
    ),
    Operation(
        "POST",
        "/topics/{topic}/shrink_isr",
        "shrink_isr",
        "Leave only these replicas in sync, until the fault that is the answer is removed.",
        _shrink_isr,
        (
            whole("partition", "0 by default."),
            many("to", "The ids of their nodes.", NODE_ID, required=True),
        ),
        FAULT_ANSWER,
    ),
)


def _parts(path: str) -> list[str]:
    return [unquote(part, errors="strict") for part in path.split("/")]


def _found(method: str, path: str) -> tuple[Operation, dict[str, Any]]:
    """The operation, and the arguments in its path. Raises Problem."""
    try:
        parts = _parts(path)
    except UnicodeDecodeError:
        raise Problem(400, "the path is not UTF-8") from None
    allowed: list[str] = []
    for operation in OPERATIONS:
        wanted = operation.path.split("/")
        if len(wanted) != len(parts):
            continue
        given = {name[1:-1]: part for name, part in zip(wanted, parts, strict=True) if name.startswith("{")}
        if any(not name.startswith("{") and name != part for name, part in zip(wanted, parts, strict=True)):
            continue
        known = {each.name: each for each in operation.in_path}
        try:
            values = {name: of_query(text, known[name]) for name, text in given.items()}
        except Problem:
            continue
        if operation.method == method:
            return operation, values
        allowed.append(operation.method)
    if allowed:
        raise Problem(405, f"{path} takes {', '.join(allowed)}")
    raise Problem(404, f"there is no {path}; GET /openapi.json lists what there is")


def carry_out(control: Control, method: str, target: str, body: Any = None) -> Any:
    """The answer to a request, as JSON. `target`: path and query. `body`: its JSON. Raises Problem."""
    path, _, query = target.partition("?")
    operation, in_path = _found(method, path)
    if body is not None and not isinstance(body, dict):
        raise Problem(400, "the body is not an object")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError:
        raise Problem(400, f"a query has at most {QUERY_FIELDS_MAX} arguments") from None
    asked = dict(pairs)
    if len(asked) < len(pairs):
        raise Problem(400, "an argument is given twice")
    held = control.fork(asked.pop("fork", None))
    if method == "GET":
        known = {each.name: each for each in operation.arguments}
        given = {name: of_query(text, known[name]) if name in known else text for name, text in asked.items()}
    elif asked:
        raise Problem(400, "arguments are given in the body", argument=next(iter(asked)))
    else:
        given = body or {}
    values = {**arguments_of(operation.in_path, in_path), **arguments_of(operation.arguments, given)}
    return _answer(lambda: operation.carry_out(control, held, values))


def _answer(carry_out: Callable[[], Any]) -> Any:
    """The answer. What cannot be done is a Problem."""
    try:
        return as_json(carry_out())
    except Problem:
        raise
    except Refused as refused:
        raise Problem(409, str(refused), error=refused.code.name) from refused
    except (AssertionError, TimeoutError, NotAtRest) as error:
        raise Problem(409, str(error) or type(error).__name__) from error
    except NodeEnded as error:
        raise Problem(409, f"a node has ended meanwhile: {error}") from error
    except ValueError as error:
        raise Problem(400, str(error)) from error
    except Exception as error:
        if type(error) is LookupError:  # and no key or index of a bug
            raise Problem(404, str(error)) from error
        report("an operation of the control API", error)
        raise Problem(500, f"{type(error).__name__}: {error}") from error
