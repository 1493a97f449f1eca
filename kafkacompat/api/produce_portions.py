"""A Produce that appends its partitions in portions, with a turn of the loop between two portions.

This module iterates over the partitions, refuses what needs no log, and collects the waits. Validation decides whether
a batch is valid and how much time it may take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkacompat.api.endpoints import endpoints_of
from kafkacompat.api.first_batch import is_transactional
from kafkacompat.api.handler import HoldingDeferred, NoResponse
from kafkacompat.api.produce_answers import (
    ACKS,
    ADMIN_CLIENT_ID,
    FIRST_VERSION_WITH_ZSTD,
    Answer,
    answer_of,
    name_of,
    waits_for,
    when_let_go,
)
from kafkacompat.api.transactional_produce import Verdicts, producer_of
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.partition.service import ProduceResult
from kafkacompat.records.validate import PARTITION_UNITS, Allowance, TooMuchAtOnce, refusal_at_sight
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.produce_response import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.produce_request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

Place: TypeAlias = "tuple[TopicProduceData, PartitionProduceData, list[PartitionProduceResponse]]"
"""A topic, one of its partitions, and the list that receives the result."""


class Appending:
    """The progress of a Produce through its partitions, in as many portions as the loop needs.

    The connection is not read before the last portion is done, so its batches stay in order. The wait for a portion's
    appends starts in that portion, because before the next one another leader's log may have other records at the same
    offsets.
    """

    __slots__ = (
        "_acks",
        "_answer",
        "_appended",
        "_checked",
        "_context",
        "_ends",
        "_failed",
        "_internal_allowed",
        "_leaders",
        "_left",
        "_node",
        "_opens_first",
        "_request",
        "_responses",
        "_several",
        "_verdicts",
        "_waits",
    )

    def __init__(
        self,
        node: Node,
        context: RequestContext,
        request: ProduceRequest,
        topics: list[TopicProduceData],
        several: bool,
        verdicts: Verdicts | None,
        opens_first: bool = False,
        hidden: Sequence[TopicProduceResponse] = (),
    ) -> None:
        """`opens_first`: the records of the first partition are known to need more time than one allowance.

        `hidden` are the results of topics that the sender may not write to.
        """
        self._opens_first = opens_first
        self._node = node
        self._context = context
        self._request = request
        self._several = several
        self._verdicts = verdicts
        self._acks = request.acks
        self._internal_allowed = context.client_id == ADMIN_CLIENT_ID
        self._failed = bool(hidden)
        self._leaders: set[int] = set()
        self._responses = list(hidden)
        self._ends: dict[TopicPartition, int] = {}
        """The end offsets of this portion's appends."""
        self._appended: dict[TopicPartition, PartitionProduceResponse] = {}
        self._waits: list[Deferred[Mapping[TopicPartition, ErrorCode]]] = []
        self._left = self._partitions(topics)
        self._checked: tuple[Place, Any] | None = None
        """The place at which the next portion starts, with its records or the result of their validation."""
        self._answer: Deferred[Any] | None = None
        """Created by the first pause."""

    def run(self) -> Answer | Deferred[ProduceResponse] | NoResponse:
        paused = self._portion()
        if paused is None:
            return self._response()
        self._answer = HoldingDeferred()
        paused.on_done(self._go_on)
        return self._answer

    def _partitions(self, topics: list[TopicProduceData]) -> Iterator[Place]:
        for topic in topics:
            answers: list[PartitionProduceResponse] = []
            self._responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for one in topic.partition_data:
                yield topic, one, answers

    def _portion(self) -> Deferred[Any] | None:
        """Append until the end (returns None), or until the loop needs a turn. The next portion starts when the
        returned Deferred is done."""
        if not self._several:
            paused = self._walk()
            self._wait_for_ends()
            return paused
        self._node.partitions.hold_wakeups()
        try:
            paused = self._walk()
            self._wait_for_ends()
            return paused
        finally:
            self._node.partitions.release_wakeups()

    def _walk(self) -> Deferred[Any] | None:
        allowance = Allowance()
        version = self._context.api_version
        acks, internal_allowed = self._acks, self._internal_allowed
        is_plain = acks in ACKS and self._verdicts is None
        append, ends, appended = self._node.partitions.append, self._ends, self._appended
        # A name is resolved once per portion: it may belong to another topic than in the last portion.
        known: TopicProduceData | None = None
        name: str | None = None
        while True:
            if self._checked is not None:
                place, records = self._checked
                self._checked = None
            else:
                following = next(self._left, None)
                if following is None:
                    return None
                place, records = following, following[1].records
            topic, one, answers = place
            if topic is not known:
                known, name = topic, name_of(self._node, topic, version)
            if allowance.units <= 0:
                self._checked = place, records
                return self._node.partitions.pause(records)
            allowance.units -= PARTITION_UNITS
            if name is None:
                self._add_refusal(answers, one.index, ProduceResult(ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            partition = TopicPartition(name, one.index)
            if self._opens_first:
                self._opens_first = False
                self._checked = place, records
                return self._node.partitions.validate(partition, records, version)
            try:
                if is_plain and one.records is not None:
                    result = append(partition, records, acks, version, internal_allowed, allowance=allowance)
                else:
                    result = self._append_one(partition, one.records, records, allowance)
            except TooMuchAtOnce:
                self._checked = place, records
                return self._node.partitions.validate(partition, records, version)
            if result.error is not NONE:
                self._add_refusal(answers, one.index, result)
                continue
            answer = PartitionProduceResponse(
                index=one.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            answers.append(answer)
            ends[partition] = result.last_offset + 1
            appended[partition] = answer

    def _go_on(self, validated: Deferred[Any]) -> None:
        answer = self._answer
        assert answer is not None
        try:
            if self._checked is not None:
                self._checked = self._checked[0], validated.result()
            paused = self._portion()
            response = self._response() if paused is None else None
        except Exception as error:
            answer.fail(error)
            return
        if paused is not None:
            paused.on_done(self._go_on)
        elif isinstance(response, Deferred):
            response.pass_to(answer)
        else:
            answer.resolve(response)

    def _append_one(
        self, partition: TopicPartition, records: Any, checked: Any, allowance: Allowance
    ) -> ProduceResult:
        """`checked` are the records, or the result of their validation."""
        node, acks, verdicts = self._node, self._acks, self._verdicts
        if acks not in ACKS or verdicts is not None or records is None:
            topic = node.image.topics.get(partition.topic)
            if topic is None or partition.partition not in topic.partitions:
                return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if records is None:
                return ProduceResult(ErrorCode.INVALID_RECORD, error_message="The partition has no records.")
            at_sight = refusal_at_sight(records, self._context.api_version >= FIRST_VERSION_WITH_ZSTD)
            if at_sight is not None:
                return ProduceResult(at_sight.code, error_message=at_sight.message)
        terms = None
        if verdicts is not None:
            refused = verdicts.refused.get(partition)
            if refused is not None:
                return ProduceResult(refused)
        if acks not in ACKS:
            return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
        if verdicts is not None:
            terms = verdicts.terms.get(partition)
            if (
                terms is None
                and not verdicts.trusts
                and is_transactional(records)
                and producer_of(records) is not None
                and node.partitions.leads(partition)
            ):
                # The partition became known, or this broker became its leader, while the coordinator verified the
                # other partitions. The coordinator was not asked about this one.
                return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return node.partitions.append(
            partition,
            checked,
            acks,
            self._context.api_version,
            self._internal_allowed,
            terms,
            allowance=allowance,
        )

    def _add_refusal(
        self, answers: list[PartitionProduceResponse], index: int, result: ProduceResult
    ) -> None:
        answer, leader = answer_of(index, result, self._context.api_version)
        answers.append(answer)
        self._failed = True
        if leader >= 0:
            self._leaders.add(leader)

    def _wait_for_ends(self) -> None:
        ends, self._ends = self._ends, {}
        if ends and self._acks != 0:
            self._waits += waits_for(self._node, self._request, ends)

    def _response(self) -> Answer:
        """Return the response when replication and syncs are done."""
        if self._acks == 0:
            return NoResponse.CLOSE if self._failed else NoResponse.SILENT
        response = ProduceResponse(responses=self._responses)
        if self._leaders:
            response.node_endpoints = endpoints_of(
                self._node.image, self._leaders, self._context.listener_name, NodeEndpoint
            )
        return when_let_go(self._waits, response, self._appended) if self._waits else response
