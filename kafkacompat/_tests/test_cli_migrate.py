"""What `kafkacompat migrate` concludes from what a cluster tells."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, cast

import pytest

from kafkacompat.__main__ import main
from kafkacompat.cli import migrate, migration_survey
from kafkacompat.cli.diagnosis import Level
from kafkacompat.cli.migration import (
    MoveFacts,
    NodeFacts,
    State,
    check,
    controller_address,
    in_the_way,
    known_controllers,
    plan,
)
from kafkacompat.cli.migration_survey import survey
from kafkacompat.cli.view import Partition, Quorum
from kafkacompat.config import own_names
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.remote.stores import CLASS_NAME as STORE
from kafkacompat.remote.stores import LOCAL_TIERED_STORAGE
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.testing import Kafka

TIERED = {"a": {"remote.storage.enable": "true"}, "b": {"remote.storage.enable": "false"}}
LEVELS = {"kraft.version": 1, "metadata.version": 33, "transaction.version": 2}


def node(node_id: int, ours: bool | None = False, fenced: bool = False, **settings: str) -> NodeFacts:
    given = {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://10.0.0.{node_id}:9092,CONTROLLER://10.0.0.{node_id}:9093",
        "controller.quorum.bootstrap.servers": "10.0.0.1:9093,10.0.0.2:9093",
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    return NodeFacts(node_id, fenced, ours, {} if fenced else given, {} if fenced else SUPPORTED_FEATURES)


def partition(topic: str, *replicas: int, leader: int | None = None) -> Partition:
    return Partition(topic, 0, replicas[0] if leader is None else leader, replicas, replicas, ())


KAFKA = MoveFacts(
    cluster_id="cluster",
    nodes={1: node(1)},
    voters=[1],
    observers=[],
    leader=1,
    controllers={1: "10.0.0.1:9093"},
    features=LEVELS,
    partitions=[partition("a", 1), partition("b", 1)],
    moving=0,
    topic_settings={},
    groups={},
)
BOTH = replace(
    KAFKA,
    nodes={1: node(1), 2: node(2, ours=True)},
    observers=[2],
    controllers={1: "h:1", 2: "10.0.0.2:9093"},
)


def following(facts: MoveFacts, *to: int) -> list[str]:
    """The next commands."""
    return next((list(each.commands) for each in plan(facts, to or None) if each.state is State.NEXT), [])


def complaints(facts: MoveFacts, *to: int) -> list[tuple[str, str, str]]:
    found = [each for each in check(facts, to or None) if each.level is not Level.OK]
    assert all(each.action for each in found), "each complaint says what to do"
    return [(each.check, each.level.value, each.text) for each in found]


# --- the steps


def test_each_step_of_a_move_follows_from_the_cluster() -> None:
    assert following(KAFKA, 2) == [
        "kafkacompat format --cluster-id cluster --no-initial-controllers node-2.properties",
        "kafkacompat start node-2.properties",
    ]
    assert following(BOTH) == ["kafkacompat quorum add 2 10.0.0.2:9093"]
    votes = replace(BOTH, voters=[1, 2], observers=[])
    assert following(votes) == ["kafkacompat reassign --brokers 2"]
    moves = replace(votes, moving=1)
    assert following(moves) == ["kafkacompat reassign --watch"]
    moved = replace(votes, partitions=[partition("a", 2), partition("b", 2)])
    assert following(moved) == ["kafkacompat quorum remove 1"]
    alone = replace(moved, voters=[2], observers=[1], leader=2)
    assert following(alone) == ["kafka-server-stop.sh --node-id=1"]
    stopped = replace(alone, nodes={1: node(1, None, fenced=True), 2: BOTH.nodes[2]}, controllers={2: "h:2"})
    assert following(stopped) == ["kafkacompat quorum unregister 1"]
    done = replace(stopped, nodes={2: BOTH.nodes[2]}, observers=[])
    assert following(done) == []
    assert {each.state for each in plan(done, None)} == {State.DONE}


def test_the_way_back_is_the_same_with_kafkas_programs() -> None:
    ours = replace(KAFKA, nodes={2: node(2, ours=True)}, voters=[2], leader=2)
    assert following(ours, 3) == [
        "kafka-storage.sh format -t cluster --no-initial-controllers -c node-3.properties",
        "kafka-server-start.sh node-3.properties",
    ]
    back = replace(
        ours, nodes={2: node(2, ours=True), 3: node(3)}, voters=[3], partitions=[partition("a", 3)]
    )
    assert following(back, 3) == ["kill $(cat node-2.pid)"]


def test_without_a_node_of_kafkacompat_one_has_to_join() -> None:
    assert following(KAFKA)[-1] == "kafkacompat start node-N.properties"
    assert [each.state for each in plan(KAFKA, None)][:2] == [State.NEXT, State.LATER]


def test_a_fenced_node_has_to_join_again() -> None:
    fenced = replace(BOTH, nodes={1: node(1), 2: node(2, None, fenced=True)})
    assert "kafkacompat start node-2.properties" in following(fenced, 2)


def test_the_leader_of_the_quorum_gives_up_its_vote_last() -> None:
    nodes = {each: node(each) for each in (1, 2, 3)} | {4: node(4, ours=True)}
    facts = replace(BOTH, nodes=nodes, voters=[1, 2, 3, 4], leader=2, partitions=[partition("a", 4)])
    assert following(facts) == [f"kafkacompat quorum remove {each}" for each in (1, 3, 2)]


def test_controllers_that_are_no_brokers_vote_and_are_unregistered() -> None:
    nodes = {1: node(1, process_roles="broker"), 2: node(2, ours=True, process_roles="broker")}
    facts = replace(
        BOTH, nodes=nodes, voters=[11], observers=[1, 2, 12], controllers={11: "h:11", 12: "h:12"}, leader=11
    )
    assert following(facts, 2, 12) == ["kafkacompat quorum add 12 h:12"]
    moved = replace(
        facts, nodes={2: nodes[2]}, voters=[12], observers=[2, 11], leader=12, partitions=[partition("a", 2)]
    )
    assert following(moved, 2, 12) == ["kafka-server-stop.sh --node-id=11"]
    gone = replace(moved, observers=[2])
    assert following(gone, 2, 12) == ["kafkacompat quorum unregister-controller 11"]
    # Before 4.4-IV2 controllers are not unregistered.
    assert following(replace(gone, features={**LEVELS, "metadata.version": 30}), 2, 12) == []


def test_the_plan_names_all_nodes_that_will_stop() -> None:
    nodes = {1: node(1, process_roles="broker"), 2: node(2, ours=True)}
    facts = replace(BOTH, nodes=nodes, voters=[11], observers=[1, 2], leader=11)
    stop = next(each for each in plan(facts, [2]) if each.name == "stop")
    assert stop.commands == ["kafka-server-stop.sh --node-id=1", "kafka-server-stop.sh --node-id=11"]


def test_nodes_that_do_not_answer_do_not_turn_a_move_round() -> None:
    """All that leave have stopped."""
    nodes = {2: node(2, None, fenced=True), 3: node(3, process_roles="broker")}
    back = replace(
        KAFKA,
        nodes=nodes,
        voters=[13],
        observers=[3, 12],
        leader=13,
        controllers={12: "h:12", 13: "10.0.0.2:9093"},
        partitions=[partition("a", 3)],
        groups={"g": "of a later release"},
    )
    assert following(back, 3, 13) == ["kill $(cat node-12.pid)"]
    assert complaints(back, 3, 13) == []
    ours = node(3, ours=True, process_roles="broker")
    forth = replace(back, nodes={2: node(2, None, fenced=True), 3: ours}, groups={})
    assert following(forth, 3, 13) == ["kafka-server-stop.sh --node-id=12"]


def test_an_address_that_nobody_tells_is_left_open() -> None:
    facts = replace(
        BOTH, controllers={}, nodes={1: node(1), 2: node(2, ours=True, listeners="CONTROLLER://:9093")}
    )
    assert following(facts) == ["kafkacompat quorum add 2 HOST:PORT"]


def test_controllers_are_found_in_the_settings_of_brokers() -> None:
    assert controller_address(node(3).settings) == "10.0.0.3:9093"
    assert controller_address({}) is None
    static = NodeFacts(1, settings={"controller.quorum.voters": "1@a:1, 2@b:2"})
    assert known_controllers([static, node(3)]) == [
        "a:1",
        "b:2",
        "10.0.0.1:9093",
        "10.0.0.2:9093",
        "10.0.0.3:9093",
    ]


# --- the findings


def test_a_cluster_that_can_move_has_no_complaint_and_every_step_is_told() -> None:
    assert complaints(BOTH) == []
    assert [each.check for each in check(BOTH, None)] == ["join", "vote", "move", "resign"]


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        (
            replace(KAFKA, features={**LEVELS, "metadata.version": 34}),
            ("join", "FAIL", "metadata.version is 34, and the nodes that join support 7 to 33"),
        ),
        (
            replace(KAFKA, features={**LEVELS, "of.a.later.release": 2}),
            ("join", "FAIL", "of.a.later.release is 2, and the nodes that join support 0 to 0"),
        ),
        (
            replace(KAFKA, voters=None),
            ("join", "FAIL", "the cluster does not describe a metadata quorum"),
        ),
        (
            replace(KAFKA, features={"metadata.version": 30}),
            ("vote", "FAIL", "the voters are static (kraft.version 0)"),
        ),
        (
            replace(
                BOTH,
                nodes={1: node(1), 2: node(2, ours=True, process_roles="broker")},
                controllers={1: "h:1"},
            ),
            ("vote", "FAIL", "none of nodes 2 is a controller"),
        ),
        (
            replace(KAFKA, nodes={1: node(1, authorizer_class_name="com.example.Mine")}),
            (
                "join",
                "FAIL",
                "broker 1 has authorizer.class.name=com.example.Mine, which kafkacompat does not have",
            ),
        ),
        (
            replace(KAFKA, nodes={1: node(1, sasl_enabled_mechanisms="PLAIN,DIGEST-MD5")}),
            ("join", "FAIL", "broker 1 has the SASL mechanism DIGEST-MD5, which kafkacompat does not have"),
        ),
        (
            replace(KAFKA, nodes={1: node(1, num_io_threads="16")}),
            ("join", "WARN", "num.io.threads of broker 1 has no effect on kafkacompat"),
        ),
        (
            replace(KAFKA, partitions=[partition("a", 1, leader=-1)]),
            ("move", "FAIL", "partitions have no leader: a-0"),
        ),
        (
            replace(KAFKA, partitions=[Partition("a", 0, 1, (1, 3), (1,), ())]),
            ("move", "WARN", "partitions have replicas that are not in sync: a-0"),
        ),
        (
            replace(BOTH, partitions=[partition("a", 1, 3)]),
            ("move", "FAIL", "topics have more replicas than brokers stay (1): a"),
        ),
        (
            replace(KAFKA, topic_settings={"a": {"preallocate": "true", "retention.ms": "1"}, "b": {}}),
            ("move", "WARN", "preallocate has no effect on kafkacompat: a"),
        ),
        (
            replace(KAFKA, topic_settings=TIERED, nodes={1: node(1, **{STORE: "com.example.Store"})}),
            ("move", "FAIL", "topics have segments in com.example.Store, which kafkacompat does not have: a"),
        ),
        (
            replace(KAFKA, topic_settings=TIERED, nodes={1: node(1, **{STORE: LOCAL_TIERED_STORAGE})}),
            ("move", "WARN", "topics have segments in tiered storage: a"),
        ),
        (
            replace(KAFKA, groups={"g": "Classic", "h": "of a later release"}),
            ("move", "FAIL", "groups are of kinds that kafkacompat does not have: h (of a later release)"),
        ),
        (
            replace(KAFKA, untold=["broker 1 does not tell all about itself: timed out"]),
            ("join", "WARN", "broker 1 does not tell all about itself: timed out"),
        ),
        (
            replace(
                BOTH,
                nodes={
                    1: node(1),
                    2: node(2, ours=True, controller_quorum_bootstrap_servers="10.0.0.1:9093"),
                },
            ),
            (
                "unregister",
                "WARN",
                "controller.quorum.bootstrap.servers of node 2 names no controller that stays",
            ),
        ),
        (
            replace(
                BOTH,
                nodes={
                    1: node(1, controller_quorum_bootstrap_servers="10.0.0.1:9093"),
                    2: node(2, ours=True),
                },
            ),
            (
                "resign",
                "WARN",
                "controller.quorum.bootstrap.servers of node 1 names no controller that stays: the node may lose the "
                "quorum when it gives up its vote",
            ),
        ),
    ],
)
def test_what_stands_in_the_way_is_told_by_its_step(
    facts: MoveFacts, complaint: tuple[str, str, str]
) -> None:
    assert complaints(facts) == [complaint]


def test_an_even_number_of_controllers_is_told() -> None:
    nodes = {1: node(1), 2: node(2, ours=True), 3: node(3, ours=True)}
    facts = replace(BOTH, nodes=nodes, controllers={1: "h:1", 2: "10.0.0.2:9093", 3: "h:3"})
    assert complaints(facts) == [
        ("vote", "WARN", "2 controllers stay, which survive no more failures than 1"),
    ]


def test_what_only_kafkacompat_lacks_does_not_stop_the_way_back() -> None:
    ours = replace(
        KAFKA,
        nodes={
            2: node(
                2,
                ours=True,
                num_io_threads="16",
                controller_quorum_bootstrap_servers="10.0.0.2:9093,10.0.0.3:9093",
            ),
            3: node(3, controller_quorum_bootstrap_servers="10.0.0.3:9093"),
        },
        voters=[2],
        groups={"g": "of a later release"},
    )
    assert complaints(ours, 3) == []


def test_settings_of_topics_that_apache_kafka_does_not_have_are_told_on_the_way_back() -> None:
    own = dict.fromkeys(own_names("topic"), "x")
    given = {"a": {**own, "retention.ms": "1"}, "b": {"retention.ms": "1"}, "c": {"mirror.name": "m"}}
    ours = replace(KAFKA, nodes={1: node(1), 2: node(2, ours=True)}, voters=[2], topic_settings=given)
    names = ", ".join(sorted(own))
    told = f"topics have settings that Apache Kafka does not have ({names}): a, c"
    assert ("move", "WARN", told) in complaints(ours, 1)
    assert complaints(replace(BOTH, topic_settings=given)) == []
    of_ours_only = replace(ours, nodes={1: node(1, ours=True), 2: node(2, ours=True)})
    assert complaints(of_ours_only, 1) == [each for each in complaints(ours, 1) if each[2] != told]


def test_groups_have_no_settings_that_apache_kafka_does_not_have() -> None:
    """With one, Apache Kafka changes no setting of the group before it is deleted, as of topics."""
    assert not own_names("group"), "tell of them on the way back: _topics_of_ours of cli/migration.py"


def test_only_what_concerns_the_step_or_an_earlier_one_is_in_its_way() -> None:
    facts = replace(BOTH, partitions=[partition("a", 1, 3)])
    steps: dict[str, Any] = {each.name: each for each in plan(facts, None)}
    found = check(facts, None)
    assert in_the_way(found, steps["vote"]) == []
    assert [each.check for each in in_the_way(found, steps["move"])] == ["move"]


# --- what is printed


def printed(
    facts: MoveFacts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> Any:
    """Exit status and lines."""
    monkeypatch.setattr(migrate, "survey", lambda address: facts)
    status = main(["migrate", *words])
    return status, capsys.readouterr().out.splitlines()


def test_the_next_commands_are_the_last_lines_of_a_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines = printed(BOTH, monkeypatch, capsys, "plan")
    assert status == 0
    assert lines[0].split() == ["step", "state", "what"]
    assert [line.split()[:2] for line in lines[1:7]] == [
        ["join", "done"],
        ["vote", "next"],
        ["move", "later"],
        ["resign", "later"],
        ["stop", "later"],
        ["unregister", "later"],
    ]
    assert lines[-2:] == ["next:", "$ kafkacompat quorum add 2 10.0.0.2:9093"]


def test_what_stands_in_the_way_of_the_next_step_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    static = replace(BOTH, features={"metadata.version": 33})
    status, lines = printed(static, monkeypatch, capsys, "plan")
    assert status == 1
    assert lines[-2:] == ["after that:", "$ kafkacompat quorum add 2 10.0.0.2:9093"]
    assert any("the voters are static" in line for line in lines)
    assert printed(static, monkeypatch, capsys, "check")[0] == 1


def test_a_finished_move_and_a_check_without_complaints_end_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = replace(
        BOTH, nodes={2: BOTH.nodes[2]}, voters=[2], observers=[], leader=2, controllers={}, partitions=[]
    )
    status, lines = printed(done, monkeypatch, capsys, "plan")
    assert (status, lines[-1]) == (0, "the move is complete")
    status, lines = printed(BOTH, monkeypatch, capsys, "check")
    assert (status, len(lines)) == (0, 5)


# --- what is asked


def test_a_node_tells_what_a_move_needs_to_know() -> None:
    with Kafka() as kafka:
        kafka.produce("orders", ["tea"])
        facts = survey(ClusterAddress(kafka.bootstrap_servers))
    told = facts.nodes[1]
    assert (told.is_kafkacompat, told.is_fenced, told.settings["process.roles"]) == (
        True,
        False,
        "broker,controller",
    )
    assert told.supported == SUPPORTED_FEATURES
    assert facts.features["metadata.version"] == 33
    assert (facts.voters, facts.leader, facts.untold) == ([1], 1, [])
    assert facts.controllers == {1: controller_address(told.settings)}
    assert Partition("orders", 0, 1, (1,), (1,), ()) in facts.partitions
    assert facts.topic_settings["__consumer_offsets"]["cleanup.policy"] == "compact"
    assert complaints(facts) == []
    assert following(facts) == []


def test_an_observer_that_has_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quorum tells it for minutes. Another one fetches on."""
    fetches = iter(
        [{11: 1000, 12: 900, 2: 80}, {11: 1500, 12: 901, 2: 80}, *[{11: 2000, 12: 899, 2: 80}] * 100]
    )

    def told(cluster: Any) -> Quorum:
        return Quorum(
            3, 5, {3: b"d"}, {2: b"d", 11: b"d", 12: b"d"}, {}, last_fetches_ms=next(fetches, {11: 2000})
        )

    seconds = count()
    monkeypatch.setattr(migration_survey.time, "sleep", lambda _: None)
    monkeypatch.setattr(migration_survey.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(migration_survey, "quorum_told", told)
    assert migration_survey._running(cast("Any", None), told(None), {2: node(2)}) == [2, 11]


def test_controllers_that_no_client_reaches_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a listener that wants a certificate."""
    monkeypatch.setattr(migration_survey, "_controllers", lambda nodes, address: {})
    with Kafka() as kafka:
        facts = survey(ClusterAddress(kafka.bootstrap_servers))
    assert [text.partition(",")[0] for text in facts.untold] == ["no controller answers a client"]


def test_groups_that_a_broker_does_not_tell_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that stands in the way may be among them."""
    monkeypatch.setattr(migration_survey, "LOOK_TIMEOUT_S", 0.5)
    with Kafka() as kafka:
        kafka.faults.error("COORDINATOR_LOAD_IN_PROGRESS", api="ListGroups", times=None)
        facts = survey(ClusterAddress(kafka.bootstrap_servers))
    assert facts.untold == [
        "broker 1 does not tell all about itself: groups of broker 1: COORDINATOR_LOAD_IN_PROGRESS"
    ]
