"""What `kafkacompat migrate` concludes from what it has found: the steps of a move, what stands in the way of each, and the
next commands.

This module decides and asks nobody. The state of a move is that of the cluster: nothing else is kept. One node after
another joins, votes and gets the partitions; those from before give up their votes, stop and are unregistered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum

from kafkacompat.cli.diagnosis import Finding, Level, listed
from kafkacompat.cli.view import Partition
from kafkacompat.config.keys import own_names, without_effect_table
from kafkacompat.config.server import AUTHORIZER_CLASS_NAME, CONTROLLER_BOOTSTRAP_SERVERS
from kafkacompat.config.topic import TIERED
from kafkacompat.controller.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SUPPORTED_FEATURES,
    controller_unregistration_supported,
)
from kafkacompat.dataclass import dataclass
from kafkacompat.remote.stores import CLASS_NAME as STORE
from kafkacompat.remote.stores import LOCAL_TIERED_STORAGE
from kafkacompat.security.authorizer import STANDARD_AUTHORIZER
from kafkacompat.security.mechanisms import ENABLED_MECHANISMS, LOGIN_MODULES

JOIN, VOTE, MOVE, RESIGN, STOP, UNREGISTER = "join", "vote", "move", "resign", "stop", "unregister"
STEPS = (JOIN, VOTE, MOVE, RESIGN, STOP, UNREGISTER)
GROUP_TYPES = ("", "classic", "consumer", "share", "streams")


class State(Enum):
    DONE = "done"
    NEXT = "next"
    LATER = "later"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A registered broker. `settings`: those that the broker was given, with empty text for secrets."""

    node_id: int
    is_fenced: bool = False
    is_kafkacompat: bool | None = None
    """None if it does not answer."""
    settings: Mapping[str, str] = field(default_factory=dict)
    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest level of each feature."""


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """`voters` and `observers` are node ids, and None without a quorum. Observers run. `controllers`: HOST:PORT of each registered
    controller, as far as it is known."""

    cluster_id: str
    nodes: Mapping[int, NodeFacts]
    voters: Collection[int] | None
    observers: Collection[int]
    leader: int
    controllers: Mapping[int, str]
    features: Mapping[str, int]
    partitions: Sequence[Partition]
    moving: int
    """Partitions whose replicas are being moved."""
    topic_settings: Mapping[str, Mapping[str, str]]
    """What each topic was given."""
    groups: Mapping[str, str]
    """The type of each group. Empty if the coordinator does not tell."""
    untold: Sequence[str] = ()
    """What a node did not tell, with the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    state: State
    text: str
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Move:
    """The facts as seen by one move: who stays, and who leaves."""

    facts: MoveFacts
    staying: tuple[int, ...]
    leaving: tuple[int, ...]
    """Registered brokers, voters, and controllers that run without a vote."""

    @property
    def goes_to_kafkacompat(self) -> bool:
        """Unless only nodes of kafkacompat leave, as far as they answer. If none does, the nodes that stay tell it."""
        leave, stay = (
            [
                node.is_kafkacompat
                for each in some
                if (node := self.facts.nodes.get(each)) is not None and node.is_kafkacompat is not None
            ]
            for some in (self.leaving, self.staying)
        )
        return not all(leave) if leave else not stay or any(stay)

    @property
    def controllers(self) -> list[int]:
        """The staying nodes that are controllers, voters or not."""
        facts = self.facts
        return [
            each
            for each in self.staying
            if each in facts.controllers
            or each in (facts.voters or ())
            or "controller" in _roles(facts.nodes.get(each))
            or (each not in facts.nodes and each in facts.observers)
        ]

    @property
    def brokers(self) -> list[int]:
        """The staying nodes that are brokers, fenced or not."""
        return [each for each in self.staying if each in self.facts.nodes]


def _roles(node: NodeFacts | None) -> list[str]:
    return (
        [] if node is None else [each.strip() for each in node.settings.get("process.roles", "").split(",")]
    )


def _move(facts: MoveFacts, wanted: Collection[int] | None) -> _Move:
    """`wanted` are the nodes that stay. None: those of kafkacompat."""
    ours = [each.node_id for each in facts.nodes.values() if each.is_kafkacompat]
    staying = tuple(sorted(ours if wanted is None else set(wanted)))
    known = {*facts.nodes, *(facts.voters or ()), *facts.observers}
    return _Move(facts, staying, tuple(sorted(known - set(staying))))


# --- steps


def plan(facts: MoveFacts, wanted: Collection[int] | None) -> list[Step]:
    """All steps in their order. The first one that is not done is the next one."""
    move = _move(facts, wanted)
    found: list[Step] = []
    for name, left in zip(STEPS, (_join, _vote, _reassign, _resign, _stop, _unregister), strict=True):
        text, commands = left(move)
        if not commands:
            found.append(Step(name, State.DONE, text))
        elif any(each.state is State.NEXT for each in found):
            found.append(Step(name, State.LATER, text, commands))
        else:
            found.append(Step(name, State.NEXT, text, commands))
    return found


def _join(move: _Move) -> tuple[str, list[str]]:
    facts = move.facts
    there = {each for each, node in facts.nodes.items() if not node.is_fenced}
    there |= {each for each in {*(facts.voters or ()), *facts.observers} if each not in facts.nodes}
    missing: list[int | str] = [each for each in move.staying if each not in there]
    if not move.staying:
        missing = ["N"]
    commands = []
    for each in missing:
        file = f"node-{each}.properties"
        if move.goes_to_kafkacompat:
            commands.append(
                f"kafkacompat format --cluster-id {facts.cluster_id} --no-initial-controllers {file}"
            )
            commands.append(f"kafkacompat start {file}")
        else:
            commands.append(
                f"kafka-storage.sh format -t {facts.cluster_id} --no-initial-controllers -c {file}"
            )
            commands.append(f"kafka-server-start.sh {file}")
    return f"nodes {_ids(move.staying)} join", commands


def _vote(move: _Move) -> tuple[str, list[str]]:
    voters = move.facts.voters or ()
    missing = [each for each in move.controllers if each not in voters]
    commands = [f"kafkacompat quorum add {each} {_controller_address(move.facts, each)}" for each in missing]
    if not move.controllers:
        commands = ["kafkacompat quorum add N HOST:PORT"]
    return f"controllers {_ids(move.controllers)} vote", commands


def _controller_address(facts: MoveFacts, node_id: int) -> str:
    """Where the node's controller listens, as it says itself."""
    if node_id in facts.controllers:
        return facts.controllers[node_id]
    return controller_address(facts.nodes[node_id].settings if node_id in facts.nodes else {}) or "HOST:PORT"


def controller_address(settings: Mapping[str, str]) -> str | None:
    """HOST:PORT of the first controller listener in a broker's settings."""
    names = [each.strip() for each in settings.get("controller.listener.names", "").split(",")]
    for setting in ("advertised.listeners", "listeners"):
        for text in settings.get(setting, "").split(","):
            name, _, address = text.strip().partition("://")
            if name == names[0] and address and not address.startswith(":"):
                return address
    return None


def _reassign(move: _Move) -> tuple[str, list[str]]:
    facts = move.facts
    if facts.moving:
        return f"{facts.moving} partitions move", ["kafkacompat reassign --watch"]
    away = [each for each in facts.partitions if not set(each.replicas) <= set(move.staying)]
    if not away:
        return "all partitions are on nodes that stay", []
    targets = ",".join(map(str, move.brokers)) or "N"
    return f"{len(away)} of {len(facts.partitions)} partitions move", [
        f"kafkacompat reassign --brokers {targets}"
    ]


def _resign(move: _Move) -> tuple[str, list[str]]:
    """The leader is the last one, so that there are as few elections as possible."""
    voters = [each for each in move.leaving if each in (move.facts.voters or ())]
    voters.sort(key=lambda each: (each == move.facts.leader, each))
    return f"{_who_leaves(move)} give up their votes", [
        f"kafkacompat quorum remove {each}" for each in voters
    ]


def _stop(move: _Move) -> tuple[str, list[str]]:
    """Controllers that are no brokers too: without a vote they follow the quorum on."""
    nodes = move.facts.nodes
    commands = []
    for each in move.leaving:
        node = nodes.get(each)
        if node is not None and node.is_fenced:
            continue
        told = None if node is None else node.is_kafkacompat
        is_kafkacompat = not move.goes_to_kafkacompat if told is None else told
        commands.append(
            f"kill $(cat node-{each}.pid)" if is_kafkacompat else f"kafka-server-stop.sh --node-id={each}"
        )
    return f"{_who_leaves(move)} stop", commands


def _unregister(move: _Move) -> tuple[str, list[str]]:
    facts = move.facts
    commands = [f"kafkacompat quorum unregister {each}" for each in move.leaving if each in facts.nodes]
    if controller_unregistration_supported(facts.features.get(METADATA_VERSION, 0)):
        controllers = sorted(set(facts.controllers) - set(move.staying))
        commands += [f"kafkacompat quorum unregister-controller {each}" for each in controllers]
    return f"{_who_leaves(move)} are unregistered", commands


def _who_leaves(move: _Move) -> str:
    return f"nodes {_ids(move.leaving)}" if move.leaving else "the nodes from before"


def _ids(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes)) or "N"


# --- findings


def check(facts: MoveFacts, wanted: Collection[int] | None) -> list[Finding]:
    """What stands in the way, or is to be known, by the step that it concerns. A step without a complaint has one line."""
    move = _move(facts, wanted)
    found: list[Finding] = [
        *(
            Finding(JOIN, Level.WARN, each, "see that this node answers, and may be asked")
            for each in facts.untold
        )
    ]
    for judge in (_features, _quorum, _settings, _topics, _partitions, _replicas, _groups, _servers):
        found += judge(move)
    for step in (JOIN, VOTE, MOVE, RESIGN):
        if not any(each.check == step for each in found):
            found.append(Finding(step, Level.OK, "nothing stands in the way"))
    return sorted(found, key=lambda each: STEPS.index(each.check))


def in_the_way(found: Iterable[Finding], step: Step) -> list[Finding]:
    """What must be settled before this step."""
    before = STEPS[: STEPS.index(step.name) + 1]
    return [each for each in found if each.level is Level.FAIL and each.check in before]


def _features(move: _Move) -> Iterator[Finding]:
    supported = _supported(move)
    for name, level in sorted(move.facts.features.items()):
        low, high = supported.get(name, (0, 0))
        if low <= level <= high:
            continue
        told = f"{METADATA_VERSIONS.get(level, level)}" if name == METADATA_VERSION else str(level)
        yield Finding(
            JOIN,
            Level.FAIL,
            f"{name} is {told}, and the nodes that join support {low} to {high}",
            f"before they join: kafkacompat features downgrade {name}={high}, if that loses nothing"
            if level > high
            else f"before they join: kafkacompat features upgrade {name}={low}",
        )


def _supported(move: _Move) -> Mapping[str, tuple[int, int]]:
    """What all that join support. Until a node runs, it is this kafkacompat."""
    nodes = [move.facts.nodes[each].supported for each in move.brokers if move.facts.nodes[each].supported]
    if not nodes:
        return (
            SUPPORTED_FEATURES
            if move.goes_to_kafkacompat
            else dict.fromkeys(move.facts.features, (0, 1 << 15))
        )
    names = set.intersection(*(set(each) for each in nodes))
    return {
        name: (max(each[name][0] for each in nodes), min(each[name][1] for each in nodes)) for name in names
    }


def _quorum(move: _Move) -> Iterator[Finding]:
    facts = move.facts
    if facts.voters is None:
        yield Finding(
            JOIN,
            Level.FAIL,
            "the cluster does not describe a metadata quorum",
            "if it still uses ZooKeeper: migrate it to KRaft with Kafka 3.9 first; otherwise start its controllers",
        )
        return
    if facts.features.get(KRAFT_VERSION, 0) == 0 and (move.leaving or not move.staying):
        yield Finding(
            VOTE,
            Level.FAIL,
            "the voters are static (kraft.version 0)",
            "kafkacompat features upgrade kraft.version=1, which Kafka carries out since 4.1; with older nodes move by directory",
        )
    if move.staying and not move.controllers and all(each in facts.nodes for each in move.staying):
        yield Finding(
            VOTE,
            Level.FAIL,
            f"none of nodes {_ids(move.staying)} is a controller",
            "let a node with process.roles=broker,controller or controller join, and name it with --to",
        )
    if len(move.controllers) and len(move.controllers) % 2 == 0:
        yield Finding(
            VOTE,
            Level.WARN,
            f"{len(move.controllers)} controllers stay, which survive no more failures than {len(move.controllers) - 1}",
            "let one more controller join",
        )


def _settings(move: _Move) -> Iterator[Finding]:
    """Of the brokers that leave, whose settings those that join get."""
    if not move.goes_to_kafkacompat:
        return
    without = {name for kind, name, _ in without_effect_table() if kind == "broker"}
    unused: dict[str, list[int]] = {}
    for each in move.leaving:
        node = move.facts.nodes.get(each)
        if node is None or node.is_kafkacompat:
            continue
        settings = node.settings
        if (authorizer := settings.get(AUTHORIZER_CLASS_NAME)) and authorizer != STANDARD_AUTHORIZER:
            yield Finding(
                JOIN,
                Level.FAIL,
                f"broker {each} has {AUTHORIZER_CLASS_NAME}={authorizer}, which kafkacompat does not have",
                f"use {STANDARD_AUTHORIZER}",
            )
        for name, text in settings.items():
            mechanisms = (
                {part.strip() for part in text.split(",")} if name.endswith(ENABLED_MECHANISMS) else set()
            )
            for other in sorted(mechanisms - {*LOGIN_MODULES, ""}):
                yield Finding(
                    JOIN,
                    Level.FAIL,
                    f"broker {each} has the SASL mechanism {other}, which kafkacompat does not have",
                    f"let its clients use one of {', '.join(LOGIN_MODULES)}",
                )
            if name in without:
                unused.setdefault(name, []).append(each)
    for name, nodes in sorted(unused.items()):
        yield Finding(
            JOIN,
            Level.WARN,
            f"{name} of broker {_ids(nodes)} has no effect on kafkacompat",
            "see docs/reference/compatibility.md for what kafkacompat does instead",
        )


def _topics(move: _Move) -> Iterator[Finding]:
    if not move.goes_to_kafkacompat:
        yield from _topics_of_ours(move)
        return
    yield from _tiered(move)
    without = {name for kind, name, _ in without_effect_table() if kind == "topic"}
    found: dict[str, list[str]] = {}
    for topic, settings in sorted(move.facts.topic_settings.items()):
        for name in without.intersection(settings):
            found.setdefault(name, []).append(topic)
    for name, topics in sorted(found.items()):
        yield Finding(
            MOVE,
            Level.WARN,
            f"{name} has no effect on kafkacompat: {listed(topics)}",
            "see docs/reference/compatibility.md for what kafkacompat does instead",
        )


def _topics_of_ours(move: _Move) -> Iterator[Finding]:
    """Of a topic with settings that Apache Kafka does not have, it changes no setting before all of them are deleted."""
    if move.brokers and all(move.facts.nodes[each].is_kafkacompat for each in move.brokers):
        return
    given = {name: own_names("topic").intersection(each) for name, each in move.facts.topic_settings.items()}
    topics = sorted(name for name, own in given.items() if own)
    if topics:
        names = ", ".join(sorted({name for own in given.values() for name in own}))
        yield Finding(
            MOVE,
            Level.WARN,
            f"topics have settings that Apache Kafka does not have ({names}): {listed(topics)}",
            "delete them after the move, all of a topic in one call of kafka-configs.sh --alter --delete-config",
        )


def _tiered(move: _Move) -> Iterator[Finding]:
    """A replica that joins reads the older segments of a tiered topic where the leader has put them."""
    facts = move.facts
    topics = [name for name, given in sorted(facts.topic_settings.items()) if given.get(TIERED) == "true"]
    if not topics:
        return
    leaving = [facts.nodes[each].settings for each in move.leaving if each in facts.nodes]
    others = sorted({each[STORE] for each in leaving if each.get(STORE)} - {LOCAL_TIERED_STORAGE})
    if others:
        yield Finding(
            MOVE,
            Level.FAIL,
            f"topics have segments in {', '.join(others)}, which kafkacompat does not have: {listed(topics)}",
            f"set {TIERED}=false with remote.log.delete.on.disable=true after consumers have read them",
        )
    else:
        yield Finding(
            MOVE,
            Level.WARN,
            f"topics have segments in tiered storage: {listed(topics)}",
            "give the nodes that join the settings of the remote storage, and the same folder",
        )


def _partitions(move: _Move) -> Iterator[Finding]:
    partitions = move.facts.partitions
    without = [_name(each) for each in partitions if each.leader < 0]
    if without:
        yield Finding(
            MOVE,
            Level.FAIL,
            f"partitions have no leader: {listed(without)}",
            "start a broker that has them in sync",
        )
    if not move.facts.moving:
        behind = [_name(each) for each in partitions if each.leader >= 0 and each.is_under_replicated]
        if behind:
            yield Finding(
                MOVE,
                Level.WARN,
                f"partitions have replicas that are not in sync: {listed(behind)}",
                "wait until kafkacompat topics describe --under-replicated prints nothing",
            )


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"


def _replicas(move: _Move) -> Iterator[Finding]:
    """A node that joins later counts as a broker, unless it is known to be none."""
    brokers = [each for each in move.staying if each in move.facts.nodes or each not in move.facts.observers]
    if not move.staying:
        return
    wide = sorted({each.topic for each in move.facts.partitions if len(each.replicas) > len(brokers)})
    if wide and not move.facts.moving:
        yield Finding(
            MOVE,
            Level.FAIL,
            f"topics have more replicas than brokers stay ({len(brokers)}): {listed(wide)}",
            "let more brokers join; or kafkacompat reassign --topics TOPICS --replication-factor with fewer",
        )


def _groups(move: _Move) -> Iterator[Finding]:
    unknown = sorted(
        f"{name} ({kind})" for name, kind in move.facts.groups.items() if kind.lower() not in GROUP_TYPES
    )
    if unknown and move.goes_to_kafkacompat:
        yield Finding(
            MOVE,
            Level.FAIL,
            f"groups are of kinds that kafkacompat does not have: {listed(unknown)}",
            "stop their members and delete the groups",
        )


def _servers(move: _Move) -> Iterator[Finding]:
    """Who has no vote finds the quorum by its settings, after a start and when the leader has given up its vote."""
    facts = move.facts
    remaining = {_controller_address(facts, each) for each in move.controllers} - {"HOST:PORT"}
    for each in sorted(facts.nodes) if remaining else ():
        settings = facts.nodes[each].settings
        servers = set(named_controllers(settings))
        if servers & remaining or not settings:
            continue
        told = f"{CONTROLLER_BOOTSTRAP_SERVERS} of node {each} names no controller that stays"
        wanted = ",".join(sorted(servers | remaining))
        if each in move.staying:
            yield Finding(UNREGISTER, Level.WARN, told, f"set it to {wanted} before the node's next start")
        else:
            yield Finding(
                RESIGN,
                Level.WARN,
                f"{told}: the node may lose the quorum when it gives up its vote",
                f"set it to {wanted} and restart the node; or end the node right after that step",
            )


def named_controllers(settings: Mapping[str, str]) -> list[str]:
    """HOST:PORT of the controllers that a broker's settings name."""
    bootstrap = [part.strip() for part in settings.get(CONTROLLER_BOOTSTRAP_SERVERS, "").split(",")]
    voters = [
        part.strip().partition("@")[2] for part in settings.get("controller.quorum.voters", "").split(",")
    ]
    return [each for each in (*bootstrap, *voters) if each]


def known_controllers(nodes: Iterable[NodeFacts]) -> list[str]:
    """HOST:PORT of all controllers that brokers name or are, to ask one of them for the others."""
    found: list[str] = []
    for node in nodes:
        found += named_controllers(node.settings)
        if (own := controller_address(node.settings)) is not None:
            found.append(own)
    return list(dict.fromkeys(found))
