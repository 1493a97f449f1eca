"""Faults that a test asks for, as values: which requests meet them, when, and what happens then.

`Rule` has the values and decides nothing by itself. `Faults` keeps the rules of a broker or a cluster, counts what they meet, and
tells the dispatcher in front of a node (exchange.py) which of them come to pass. Tests add and remove them from their own
thread, nodes meet them in theirs.

A request that a client sends meets each fault once, at the node to which the client has sent it. What that node forwards to
the controller is an Envelope there, and only a fault of the API Envelope meets it. What a node asks itself passes no
connection, and meets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from random import Random
from threading import Condition
from typing import Any, Protocol, get_args

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.levels import GROUP, PARTITION, TOPIC, TOPIC_ID, TRANSACTION, Names
from kafkacompat.ids import uuid_to_text
from kafkacompat.partition.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID
from kafkacompat.wire.apis import APIS
from kafkacompat.wire.definition import snake_case
from kafkacompat.wire.errors import ErrorCode

WAIT_S = 10.0
"""How long a test waits for a fault to be hit, in real time."""

CHANGES = frozenset(api.name for api in APIS.values() if api.changes)
"""The APIs whose requests change something."""

ELEMENT_CODES = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a topic or a partition. They stand there, also where a response has a place for an error of the whole."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Which requests. None: whatever it is. Several values must all fit the same request, and where they name a topic, a
    partition or a group in it, the same element."""

    api: str | None = None
    version: int | None = None
    topic: str | None = None
    """The name, or the id as Kafka's tools write it."""
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    principal: str | None = None
    """As in "User:alice"."""
    node: int | None = None
    """The id of the node that receives the request."""
    listener: str | None = None

    @property
    def kinds(self) -> dict[str, object]:
        """What it says of elements, by kind."""
        said = {
            TOPIC: self.topic,
            PARTITION: self.partition,
            GROUP: self.group,
            TRANSACTION: self.transactional_id,
        }
        return {kind: value for kind, value in said.items() if value is not None}

    def fits_sender(self, call: Call) -> bool:
        """Whether everything fits that is known without the request's body."""
        return (
            (self.api is None or self.api == call.api)
            and (self.version is None or self.version == call.version)
            and (self.client_id is None or self.client_id == call.client_id)
            and (self.principal is None or self.principal == call.principal)
            and (self.node is None or self.node == call.node)
            and (self.listener is None or self.listener == call.listener)
        )

    def covers(self, names: Names) -> bool:
        """Whether an element with these names, and those of the request that has it, is meant."""
        return (
            (self.topic is None or self._is_topic(names))
            and (self.partition is None or self.partition == names.get(PARTITION))
            and (self.group is None or self.group == names.get(GROUP))
            and (self.transactional_id is None or self.transactional_id == names.get(TRANSACTION))
        )

    def _is_topic(self, names: Names) -> bool:
        if self.topic == names.get(TOPIC):
            return True
        return TOPIC_ID in names and uuid_to_text(names[TOPIC_ID]) == self.topic


class Call(Protocol):
    """A request, as far as faults look at it. What is in its body is decoded when somebody asks."""

    @property
    def api(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def principal(self) -> str: ...

    @property
    def node(self) -> int: ...

    @property
    def listener(self) -> str: ...

    @property
    def request(self) -> Any:
        """The typed message. None if the node does not know its version."""
        ...

    def names(self) -> list[Names]:
        """Of its innermost elements, together with those of the whole request. At least one."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it may concern more than it names, so that only the reply can say."""
        ...


@dataclass(frozen=True, slots=True)
class Error:
    code: ErrorCode
    applied: bool = False
    """Whether the request is carried out first."""


@dataclass(frozen=True, slots=True)
class Delay:
    ms: int
    """Of the node's clock."""
    reply: bool = False
    """Whether the reply is held back, and not the request."""


@dataclass(frozen=True, slots=True)
class Throttle:
    ms: int


@dataclass(frozen=True, slots=True)
class Close:
    applied: bool = False
    """Whether the request is carried out first: only its reply is lost."""


@dataclass(frozen=True, slots=True)
class Cut:
    at: int | None = None
    """Bytes of the reply that are still sent, with its size. None: half of them."""


@dataclass(frozen=True, slots=True)
class Corrupt:
    """The first batch of a Fetch or ShareFetch reply has a wrong CRC. The log is as it was."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch of a Produce request is appended once more, without its producer id: as by a producer without idempotence that
    has tried again. Batches of transactions meet it not."""


@dataclass(frozen=True, slots=True)
class FullDisk:
    """What is written to a node's disk does not fit."""


@dataclass(frozen=True, slots=True)
class FailedSync:
    """A disk cannot keep what was written to it."""


@dataclass(frozen=True, slots=True)
class SlowDisk:
    ms: int
    """In real time: a sync, or a read of a log, takes so much longer."""


DiskEffect = FullDisk | FailedSync | SlowDisk
DISK_EFFECTS: tuple[type[DiskEffect], ...] = get_args(DiskEffect)
OF_DISKS = frozenset({"topic", "partition", "node"})
"""What a selector may name of the operations of a disk."""
Effect = Error | Delay | Throttle | Close | Cut | Corrupt | Duplicate | DiskEffect
ENDINGS = (Error, Close, Cut)
"""A request has one end, so the first of these that it meets keeps it from the others."""
_APIS_OF = {Corrupt: ("Fetch", "ShareFetch"), Duplicate: ("Produce",)}
_API_NAMES = frozenset(api.name for api in APIS.values())


@dataclass(frozen=True, slots=True)
class Rule:
    effect: Effect
    selector: Selector = Selector()
    nth: int = 1
    """The first request that is hit, of those that fit."""
    times: int | None = 1
    """How many are hit. None: until the fault is removed."""
    probability: float = 1.0
    seed: int = 0
    """Of the probability: the same requests in the same order are hit again."""
    when: Callable[[Any], bool] | None = None
    """Asked with each typed request that fits. Only in process."""
    optional: bool = False
    """A test does not fail although it was never hit."""

    def __post_init__(self) -> None:
        """Raises ValueError for what can never come to pass."""
        api = self.selector.api
        if api is not None and api not in _API_NAMES:
            raise ValueError(f"there is no API {api!r}")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError("nth and times count from 1")
        if not 0 <= self.probability <= 1:
            raise ValueError("a probability is between 0 and 1")
        if isinstance(self.effect, Error) and self.effect.applied and api is not None and api not in CHANGES:
            raise ValueError(f"{api} changes nothing, so its error cannot hide that the work was done")
        apis = _APIS_OF.get(type(self.effect))
        if apis is not None and api is not None and api not in apis:
            raise ValueError(f"{_name_of(self.effect)} concerns {' and '.join(apis)}, and not {api}")
        named = {each.name for each in fields(Selector) if getattr(self.selector, each.name) is not None}
        if isinstance(self.effect, DISK_EFFECTS) and (self.when is not None or named - OF_DISKS):
            raise ValueError("a disk knows nodes, topics and partitions, and no requests")

    def __str__(self) -> str:
        said = [f"{each.name}={getattr(self.selector, each.name)!r}" for each in fields(Selector)]
        chosen = [text for text in said if not text.endswith("=None")]
        what = [f"{each.name}={getattr(self.effect, each.name)!s}" for each in fields(self.effect)]
        if isinstance(self.effect, Error):
            what = [self.effect.code.name, *what[1:]]
        when = [] if self.nth == 1 else [f"nth={self.nth}"]
        return f"{_name_of(self.effect)}({', '.join([*what, *chosen, *when, f'times={self.times}'])})"


def _name_of(effect: Effect) -> str:
    return snake_case(type(effect).__name__)


class NeverHit(AssertionError):
    """A fault was never hit: the test did not show what it was meant to show."""


class Fault:
    """A rule that is in force, and what it has met."""

    def __init__(self, rule: Rule, faults: Faults) -> None:
        self.rule = rule
        self._faults = faults
        self._hits = 0
        self._seen = 0
        self._random = Random(rule.seed)
        self.node: int | None = None
        """Where it was hit last. It is told only in the process of the nodes."""

    @property
    def hits(self) -> int:
        """Requests that have met it."""
        self._faults.catch_up()
        return self._hits

    def wait(self, times: int = 1, timeout: float = WAIT_S) -> None:
        """Return when it has been hit so often. Raises TimeoutError."""
        self._faults.wait_until(
            lambda: self._hits >= times,
            timeout,
            lambda: f"{self.rule} was hit {self.hits} of {times} times",
        )

    def remove(self) -> None:
        """It hits nothing any more. Does nothing if that was so before."""
        self._faults.remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.rule}, {self.hits} hits>"

    @property
    def counts(self) -> tuple[int, int]:
        """How many have met it, of how many that fit."""
        return self._hits, self._seen

    def go_on_from(self, hits: int, seen: int) -> None:
        """Be where it was in another process."""
        self._hits, self._seen = hits, seen
        if self.rule.probability < 1:
            for _ in range(seen - self.rule.nth + 1):
                self._random.random()

    # With the lock of Faults.

    @property
    def is_over(self) -> bool:
        return self.rule.times is not None and self._hits >= self.rule.times

    def meets(self) -> bool:
        """Count a request that fits. Return whether it is hit."""
        self._seen += 1
        if self._seen < self.rule.nth:
            return False
        if self.rule.probability < 1 and self._random.random() >= self.rule.probability:
            return False
        self._hits += 1
        return True


@dataclass(slots=True)
class Decision:
    """What becomes of a request."""

    hits: list[Fault]
    late: list[Fault]
    """They look at the reply first."""
    loses_session: bool = False
    """A Fetch of a session does not name what a fault is about. The session is lost, so that the next one names everything."""
    begins_no_session: bool = False
    """A Fetch would begin a session, and lose it with the next one."""

    def __bool__(self) -> bool:
        return bool(self.hits or self.late or self.loses_session or self.begins_no_session)


class Faults:
    """The faults of a broker or of a cluster."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when the first fault comes or the last one has gone."""
        self.active: tuple[Fault, ...] = ()
        """Those that may still hit something."""
        self._all: list[Fault] = []
        self._changed = changed
        self._met = Condition()

    # For tests.

    def error(self, code: str | ErrorCode, *, applied: bool = False, **terms: Any) -> Fault:
        """Answer with an error, where the protocol has it: for the whole request, or for the topic, partition or group that is
        named. The rest of the request is carried out. `applied`: what is refused is carried out as well."""
        return self.add(Rule(Error(_code(code), applied), *_terms(terms)))

    def delay(self, ms: int, *, reply: bool = False, **terms: Any) -> Fault:
        """Hold the request back, before the node sees it, or its reply."""
        return self.add(Rule(Delay(ms, reply), *_terms(terms)))

    def throttle(self, ms: int, **terms: Any) -> Fault:
        """Tell a throttle time, and read nothing more of the connection for so long, as a quota does."""
        return self.add(Rule(Throttle(ms), *_terms(terms)))

    def close(self, *, applied: bool = False, **terms: Any) -> Fault:
        """Close the connection in place of a reply, before the request is carried out or after it."""
        return self.add(Rule(Close(applied), *_terms(terms)))

    def cut(self, at: int | None = None, **terms: Any) -> Fault:
        """Send the beginning of the reply, and close the connection."""
        return self.add(Rule(Cut(at), *_terms(terms)))

    def corrupt(self, **terms: Any) -> Fault:
        """Damage a fetched batch on its way."""
        return self.add(Rule(Corrupt(), *_terms(terms)))

    def duplicate(self, **terms: Any) -> Fault:
        """Append what is produced twice."""
        return self.add(Rule(Duplicate(), *_terms(terms)))

    def full_disk(self, **terms: Any) -> Fault:
        """Refuse what is written to a disk, for lack of space."""
        return self.add(Rule(FullDisk(), *_terms(terms)))

    def failed_sync(self, **terms: Any) -> Fault:
        """Fail to sync a file or a directory."""
        return self.add(Rule(FailedSync(), *_terms(terms)))

    def slow_disk(self, ms: int, **terms: Any) -> Fault:
        """Hold up syncs and reads of logs."""
        return self.add(Rule(SlowDisk(ms), *_terms(terms)))

    def add(self, rule: Rule) -> Fault:
        fault = Fault(rule, self)
        with self._met:
            self._all.append(fault)
            self.active = (*self.active, fault)
        self._changed()
        return fault

    def remove(self, fault: Fault) -> None:
        with self._met:
            self.active = tuple(each for each in self.active if each is not fault)
        self._changed()

    def clear(self) -> None:
        """Forget all faults, also those that were never hit."""
        with self._met:
            self._all.clear()
            self.active = ()
        self._changed()

    def verify(self) -> None:
        """Raises NeverHit, with the faults that were never hit and are not optional."""
        missed = [str(each.rule) for each in self._all if not each.hits and not each.rule.optional]
        if missed:
            raise NeverHit("never hit: " + "; ".join(missed))

    def wait_until(self, is_so: Callable[[], bool], timeout: float, told: Callable[[], str]) -> None:
        with self._met:
            if self._met.wait_for(is_so, timeout):
                return
        raise TimeoutError(told())

    def catch_up(self) -> None:
        """All that was hit is counted when this returns."""

    # For nodes.

    def decide(self, call: Call) -> Decision:
        decision = Decision([], [])
        has_end = False
        for fault in self.active:
            rule, selector = fault.rule, fault.rule.selector
            if isinstance(rule.effect, DISK_EFFECTS):
                continue
            apis = _APIS_OF.get(type(rule.effect))
            if not selector.fits_sender(call) or (apis is not None and call.api not in apis):
                continue
            if isinstance(rule.effect, Error) and rule.effect.applied and call.api not in CHANGES:
                continue
            is_end = isinstance(rule.effect, ENDINGS)
            if is_end and has_end:
                continue
            if isinstance(rule.effect, Corrupt):
                decision.late.append(fault)
                continue
            if _begins_session(call) and _needs_names(rule):
                decision.begins_no_session = True
            if _is_in_session(call) and _needs_names(rule):
                decision.loses_session = True
            elif selector.kinds and not any(selector.covers(names) for names in call.names()):
                if call.is_open and isinstance(rule.effect, Error):
                    decision.late.append(fault)
            elif self.counts(fault, call):
                decision.hits.append(fault)
                has_end = has_end or is_end
        return decision

    def counts(self, fault: Fault, call: Call) -> bool:
        """Count a request that fits a fault. Return whether it is hit."""
        when = fault.rule.when
        if when is not None and (call.request is None or not when(call.request)):
            return False
        return self._is_hit(fault, call.node)

    def meets_disk(self, kind: type[DiskEffect], node: int, names: Names) -> DiskEffect | None:
        """Count an operation of a disk. Return what happens to it."""
        for fault in self.active:
            if _fits_disk(fault.rule, kind, node, names) and self._is_hit(fault, node):
                effect = fault.rule.effect
                assert isinstance(effect, DISK_EFFECTS)
                return effect
        return None

    def may_meet_disk(self, kind: type[DiskEffect], node: int, names: Names) -> bool:
        """Whether an operation could be hit. Nothing is counted."""
        return any(_fits_disk(fault.rule, kind, node, names) for fault in self.active)

    def _is_hit(self, fault: Fault, node: int) -> bool:
        with self._met:
            if fault.is_over or not fault.meets():
                return False
            fault.node = node
            if fault.is_over:
                self.active = tuple(each for each in self.active if each is not fault)
            self._met.notify_all()
        self._changed()
        return True


def _fits_disk(rule: Rule, kind: type[DiskEffect], node: int, names: Names) -> bool:
    selector = rule.selector
    return isinstance(rule.effect, kind) and selector.node in (None, node) and selector.covers(names)


def _needs_names(rule: Rule) -> bool:
    """Whether it is about topics or partitions, and not about the request as a whole."""
    if rule.selector.kinds:
        return rule.selector.kinds.keys() <= {TOPIC, PARTITION}
    return isinstance(rule.effect, Error) and rule.effect.code in ELEMENT_CODES


def _is_in_session(call: Call) -> bool:
    """Whether it names only what has changed since the client's last one."""
    return call.api == "Fetch" and getattr(call.request, "session_id", 0) != 0


def _begins_session(call: Call) -> bool:
    if call.api != "Fetch" or call.request is None:
        return False
    return (call.request.session_id, call.request.session_epoch) == (INVALID_SESSION_ID, INITIAL_EPOCH)


EFFECTS: Mapping[str, type[Any]] = {snake_case(each.__name__): each for each in get_args(Effect)}


def rule_of(values: Mapping[str, Any]) -> Rule:
    """The rule of plain values, as JSON carries them: `fault` names the effect, the rest are the arguments of its method of
    Faults. Raises ValueError, TypeError for values that no rule has."""
    rest = dict(values)
    name = rest.pop("fault", None)
    effect = EFFECTS.get(name) if isinstance(name, str) else None
    if effect is None:
        raise ValueError(f"there is no fault {name!r}")
    if "when" in rest:
        raise ValueError("a function cannot be sent to another process")
    own = {each.name: rest.pop(each.name) for each in fields(effect) if each.name in rest}
    if effect is Error:
        own["code"] = _code(own.get("code"))
    return Rule(effect(**own), *_terms(rest))


def _code(code: object) -> ErrorCode:
    if isinstance(code, ErrorCode):
        found = code
    elif isinstance(code, str) and code in ErrorCode.__members__:
        found = ErrorCode[code]
    else:
        raise ValueError(f"there is no error {code!r}")
    if found is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return found


def _terms(terms: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments of a Rule behind its effect. TypeError for an unknown name."""
    rest = dict(terms)
    selector = Selector(**{each.name: rest.pop(each.name) for each in fields(Selector) if each.name in rest})
    order = ("nth", "times", "probability", "seed", "when", "optional")
    unknown = rest.keys() - set(order)
    if unknown:
        raise TypeError(f"a fault has no {sorted(unknown)[0]!r}")
    defaults = {each.name: each.default for each in fields(Rule)}
    return (selector, *(rest.get(name, defaults[name]) for name in order))
