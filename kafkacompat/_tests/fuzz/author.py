"""The author of requests: any version of any API that is served, from its definition, meant well, meant badly, or both.

Everything comes from the choices and from what the answers taught, so that the same choices against the same answers are the same
requests. Knows no broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from kafkacompat.api.registry import Entry
from kafkacompat.ids import METADATA_TOPIC
from kafkacompat.wire.apis import APIS, request_class
from kafkacompat.wire.codec import decode, encode, message_classes, specification
from kafkacompat.wire.definition import FieldSpec, StructSpec
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.message import Struct
from kafkacompat.wire.messages.default_principal_data import DefaultPrincipalData
from kafkacompat.wire.principal import encode_principal

from .batches import BatchAuthor
from .choices import Choices, happens, one_of
from .memory import MemberKnown, Memory, ProducerKnown
from .sparing import spare
from .values import PLAIN, WITNESSED_TOPIC, Values, Vocabulary

PRODUCE = "Produce"
LENGTHS = (1, 1, 1, 1, 1, 1, 2, 2, 3, 0)
MANY = (40, 300)
WEIGHTS = {
    "Produce": 10,
    "Fetch": 8,
    "JoinGroup": 7,
    "SyncGroup": 5,
    "Heartbeat": 3,
    "LeaveGroup": 3,
    "OffsetCommit": 5,
    "InitProducerId": 5,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 3,
    "TxnOffsetCommit": 4,
    "EndTxn": 5,
    "WriteTxnMarkers": 3,
    "Metadata": 4,
    "CreateTopics": 3,
    "ListOffsets": 3,
    "OffsetFetch": 3,
    "IncrementalAlterConfigs": 3,
    "Envelope": 8,
    "BrokerRegistration": 4,
    "BrokerHeartbeat": 4,
}
"""How often beside the others, which have 2."""
CHANGES_OTHERS = {
    "DeleteTopics",
    "DeleteRecords",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "AlterReplicaLogDirs",
    "CreatePartitions",
    "DeleteGroups",
    "OffsetDelete",
    "ElectLeaders",
    "AlterPartition",
    "AssignReplicasToDirs",
}
"""Not of what the well-behaved client needs."""
FROM_BROKERS = {
    "UnregisterBroker",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "AlterPartition",
    "AssignReplicasToDirs",
}
"""Not in the name of the node itself, nor mangled so that it becomes that: whoever speaks to a controller as its broker can have
it fenced."""
OF_QUORUM = {"Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum"}
"""On controller listeners they are about the metadata log."""
OWN_BROKER = 1
EPOCHS_BETWEEN = 10_000
"""More than a node elects itself for in an episode."""
FIELDS_MAX = 400
"""Of a request, each drawn by itself."""
REPEATS_MAX = (*(1_000,) * 30, 100_000)
"""And so many that repeat what stands before them."""
SHOWN = 600
"""Characters of a request that is told."""


class FieldPlan(NamedTuple):
    field: FieldSpec
    pool: tuple[Any, ...] | None
    children: StructPlan | None


class StructPlan(NamedTuple):
    make: type[Struct]
    fields: tuple[FieldPlan, ...]


@cache
def plan_of(vocabulary: Vocabulary, key: int, version: int) -> StructPlan:
    cls = request_class(key)
    return _struct_plan(vocabulary, message_classes(cls), specification(cls).root, version)


def _struct_plan(
    vocabulary: Vocabulary, classes: dict[str, type], struct: StructSpec, version: int
) -> StructPlan:
    fields = tuple(
        FieldPlan(
            field,
            vocabulary.pool_of(struct.name, field),
            None if field.struct is None else _struct_plan(vocabulary, classes, field.struct, version),
        )
        for field in struct.fields
        if version in field.versions
    )
    return StructPlan(classes[struct.name], fields)


class Request(NamedTuple):
    entry: Entry
    version: int
    correlation_id: int
    message: Any
    frame: bytes
    is_mangled: bool
    """No client would write these bytes: whatever is not answered is refused rightly."""
    batches: tuple[tuple[tuple[int, int, str, int], int], ...]
    """Of a produce: whose batch each is, and the sequence that follows once it is taken."""

    def __str__(self) -> str:
        shown = repr(self.message)
        return f"{self.entry.name} v{self.version} {shown if len(shown) < SHOWN else shown[:SHOWN] + '...'}"


class Author:
    weights: Mapping[str, int] = WEIGHTS
    vocabulary = PLAIN
    make_memory: type[Memory] = Memory

    def __init__(
        self, choices: Choices, entries: Sequence[Entry], of_controllers: Sequence[Entry] = ()
    ) -> None:
        """What broker listeners and controller listeners serve."""
        self.memory = self.make_memory()
        self.protected_ids: set[bytes] = set()
        self.mangled_in_256 = 8
        """Of the requests."""
        self._choices = choices
        self._values = Values(choices, self.memory, self.vocabulary)
        self._batches = BatchAuthor(choices, self.memory)
        self._entries, self._of_controllers = (
            [entry for entry in some for _ in range(self.weights.get(entry.name, 2))]
            for some in (entries, of_controllers)
        )
        self._forwarded = [each for each in of_controllers if APIS[each.key].forwardable]
        self._correlation_id = 0
        self._producer: ProducerKnown | None = None
        self._member: MemberKnown | None = None
        self._sequences: list[tuple[tuple[int, int, str, int], int]] = []
        self._is_of_quorum = False
        self._epoch = 0
        self._now_ms = 0
        self._budget = self._repeats = 0

    def request(self, now_ms: int, *, to_controller: bool = False) -> Request:
        choices, memory = self._choices, self.memory
        entry, version = self._asked(to_controller)
        self._is_of_quorum = to_controller and entry.name in OF_QUORUM
        self._now_ms = now_ms
        self._budget = FIELDS_MAX
        self._repeats = one_of(choices, REPEATS_MAX)
        self._sequences = []
        self._producer = (
            one_of(choices, memory.producers) if memory.producers and happens(choices, 200) else None
        )
        members = self._members_for(entry)
        self._member = one_of(choices, members) if members and happens(choices, 200) else None
        message: Any = self._struct(plan_of(self.vocabulary, entry.key, version), version)
        self._adjust(entry, message)
        return self.framed(entry, version, message)

    def _members_for(self, entry: Entry) -> Sequence[MemberKnown]:
        """Those in whose name a request may be."""
        return self.memory.members

    def _asked(self, to_controller: bool) -> tuple[Entry, int]:
        entry = one_of(self._choices, self._of_controllers if to_controller else self._entries)
        above = self._choices.below(entry.max_version - entry.min_version + 1)
        return entry, entry.max_version if happens(self._choices, 80) else entry.min_version + above

    def learn(self, request: Request, response: Any) -> None:
        """What a request was answered."""
        memory = self.memory
        memory.learn(request.message, response)
        if request.batches:
            taken = {
                (topic.name or topic.topic_id, each.index)
                for topic in response.responses
                for each in topic.partition_responses
                if not each.error_code
            }
            for key, following in request.batches:
                if (key[2], key[3]) in taken or (memory.topics.get(key[2]), key[3]) in taken:
                    memory.produced(key, following)

    def framed(self, entry: Entry, version: int, message: Any) -> Request:
        """With its header; a few are mangled after that."""
        choices = self._choices
        self._correlation_id += 1
        client = one_of(choices, ("fuzz", "", None, "c" * 200)) if happens(choices, 10) else "fuzz"
        frame = request_header_bytes(entry.key, version, self._correlation_id, client)
        header = len(frame)
        frame += encode(message, version)
        is_mangled = happens(choices, self.mangled_in_256) and entry.name not in FROM_BROKERS
        if is_mangled:
            whole = bytes(frame)
            self._mangle(frame, header)
            if entry.name == PRODUCE and is_answered(version, frame, header) is (message.acks == 0):
                # Whoever waits would take the next answer for this one's.
                frame[:] = whole
        sequences = tuple(self._sequences)
        return Request(entry, version, self._correlation_id, message, bytes(frame), is_mangled, sequences)

    def _mangle(self, frame: bytearray, header: int) -> None:
        choices = self._choices
        action = choices.below(4)
        at = header + choices.below(len(frame) - header) if len(frame) > header else header
        if action == 0:
            del frame[at:]
        elif action == 1:
            frame[at : at + 4] = one_of(
                choices, (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07")
            )
        elif action == 2:
            frame += choices.raw(choices.below(20) + 1)
        else:
            frame[at : at + 1] = choices.raw(1)

    # From the definition.

    def _struct(self, plan: StructPlan, version: int) -> Struct:
        made = plan.make()
        for each in plan.fields:
            setattr(made, each.field.name, self._field(made, each, version))
        return made

    def _field(self, owner: Struct, plan: FieldPlan, version: int) -> Any:
        choices, field = self._choices, plan.field
        self._budget -= 1
        if field.tagged(version) and not happens(choices, 60):
            return getattr(owner, field.name)
        if field.is_array:
            if field.nullable(version) and happens(choices, 20):
                return None
            length = one_of(choices, MANY) if happens(choices, 2) else one_of(choices, LENGTHS)
            items: list[Any] = []
            cost = 1
            for _ in range(length):
                before = self._budget + self._repeats
                if items and (happens(choices, 40) or self._budget < 0):
                    self._repeats -= cost
                    if self._repeats < 0:
                        break
                    items.append(items[-1])
                elif plan.children is not None:
                    items.append(self._struct(plan.children, version))
                    cost = max(1, before - self._budget - self._repeats)
                else:
                    items.append(self._scalar(owner, plan, version))
            return items
        if plan.children is not None:
            if field.optional and happens(choices, 100):
                return None
            return self._struct(plan.children, version)
        return self._scalar(owner, plan, version)

    def _scalar(self, owner: Struct, plan: FieldPlan, version: int) -> Any:
        field = plan.field
        if field.kind == "records":
            return b""  # made once the partition is known
        told = self._of_subject(field.name)
        if told is not None and not happens(self._choices, 16):
            return told
        if field.is_array:
            return self._element(plan)
        if field.kind == "string" and plan.pool and plan.pool[0] == "t0":
            if self._is_of_quorum and not happens(self._choices, 16):
                return METADATA_TOPIC
            if happens(self._choices, 40):
                return WITNESSED_TOPIC
        return self._values.draw(plan.pool, field, version)

    def _element(self, plan: FieldPlan) -> Any:
        """Of an array, which holds no nulls."""
        choices = self._choices
        if plan.pool is not None and not happens(choices, 24):
            return one_of(choices, plan.pool)
        return self._values.of_kind(plan.field.kind)

    def _of_subject(self, name: str) -> Any:
        """What the client whom this request pretends to be from would say."""
        producer, member = self._producer, self._member
        if producer is not None:
            if name in ("producer_id", "v3_and_below_producer_id"):
                return producer.producer_id
            if name in ("producer_epoch", "v3_and_below_producer_epoch"):
                return producer.epoch
            if name in ("transactional_id", "v3_and_below_transactional_id"):
                return producer.transactional_id
        if member is not None:
            if name == "group_id":
                return member.group_id
            if name == "member_id":
                return member.member_id
            if name in ("generation_id", "generation_id_or_member_epoch"):
                return member.generation_id
        return None

    # What the definition cannot tell.

    def _adjust(self, entry: Entry, message: Any) -> None:
        if entry.name == PRODUCE:
            self._fill_records(message)
        elif entry.name == "Envelope":
            self._wrap(message)
        elif entry.name in FROM_BROKERS and message.broker_id == OWN_BROKER:
            message.broker_id = OWN_BROKER + 1
        elif entry.name == "ControllerRegistration" and message.controller_id == OWN_BROKER:
            message.controller_id = OWN_BROKER + 1
        elif entry.name in ("BeginQuorumEpoch", "EndQuorumEpoch"):
            self._name_leader(message)
        if entry.name in CHANGES_OTHERS:
            spare(message, self.protected_ids)

    def _name_leader(self, message: Any) -> None:
        """Never two of one epoch: a node that hears of that has reason to halt, for one of them wrote what the other did not."""
        for topic in message.topics:
            for partition in topic.partitions:
                self._epoch += EPOCHS_BETWEEN
                if partition.leader_epoch not in (-1, 0, 2**31 - 1):
                    partition.leader_epoch = self._epoch

    def _wrap(self, envelope: Any) -> None:
        """A client's request that a broker passes on."""
        choices = self._choices
        if happens(choices, 230):
            entry = one_of(choices, self._forwarded)
            version = entry.min_version + choices.below(entry.max_version - entry.min_version + 1)
            inner: Any = self._struct(plan_of(self.vocabulary, entry.key, version), version)
            self._adjust(entry, inner)
            envelope.request_data = self.framed(entry, version, inner).frame
        if happens(choices, 230):
            envelope.request_principal = encode_principal(DefaultPrincipalData(type="User", name="fuzz"))
        if happens(choices, 230):
            envelope.client_host_address = one_of(choices, (bytes((127, 0, 0, 1)), bytes(16)))

    def _fill_records(self, message: Any) -> None:
        named = {topic_id: name for name, topic_id in self.memory.topics.items()}
        producer = self._producer
        if producer is not None and producer.transactional_id and not happens(self._choices, 10):
            message.transactional_id = producer.transactional_id
        elif producer is None and not happens(self._choices, 10):
            message.transactional_id = None
        filled: set[int] = set()
        for topic in message.topic_data:
            name = topic.name or named.get(topic.topic_id, "")
            for partition in topic.partition_data:
                if id(partition) in filled:
                    continue
                filled.add(id(partition))
                records, following = self._batches.records(producer, name, partition.index, self._now_ms)
                partition.records = records
                if producer is not None and following >= 0:
                    key = (producer.producer_id, producer.epoch, name, partition.index)
                    self._sequences.append((key, following))


def is_answered(version: int, frame: bytearray, header: int) -> bool | None:
    """Whether a produce wants an answer; None where its bytes are none."""
    try:
        produce: Any = decode(request_class(0), version, bytes(frame), header)
    except (WireError, UnicodeDecodeError):
        return None
    return bool(produce.acks)
