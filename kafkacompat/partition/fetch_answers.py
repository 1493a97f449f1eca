"""Fetch responses without their records: errors, the current leader, and the response message.

Answers come from the metadata and the session. Logs are unknown here, and nothing waits. Follows KIP-227 (the
partitions of an incremental response) and KIP-951 (current leader).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.ids import ZERO_UUID, TopicPartition, Uuid
from kafkacompat.partition.fetch_throttle import response_size, response_size_in_steps, throttled_answer
from kafkacompat.partition.sessions import FetchContext
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import FetchParameters
    from kafkacompat.controller.image import PartitionRegistration
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Clock
    from kafkacompat.stepping.jobs import Steps

FIRST_VERSION_WITH_CURRENT_LEADER = 16
HIDDEN = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors for topics that are not in the metadata, or that the reader may not see."""
TOLD_A_STEP = 400
STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchAnswers:
    __slots__ = ("_clock", "_manager")

    def __init__(self, manager: ReplicaManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock

    def absent(self, asked: Any, parameters: FetchParameters) -> ErrorCode:
        """The error code of a partition that is not found."""
        image = self._manager.image
        if parameters.may_read is not None and not parameters.may_read(asked.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if parameters.uses_topic_ids:
            topic = image.topics_by_id.get(asked.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
            return self._manager.leader_error(TopicPartition(topic.name, asked.partition))
        return self._manager.leader_error(TopicPartition(asked.topic, asked.partition))

    def refuse(self, asked: Any, error: ErrorCode, parameters: FetchParameters) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[] if error in HIDDEN else None,
            records=EMPTY_RECORDS,
        )
        if parameters.version >= FIRST_VERSION_WITH_CURRENT_LEADER and error in STALE_LEADER:
            leader = self._leader_of(asked, parameters.uses_topic_ids)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader, leader_epoch=leader.leader_epoch
                )
        return answer

    def _leader_of(self, asked: Any, uses_topic_ids: bool) -> PartitionRegistration | None:
        image = self._manager.image
        topic = image.topics_by_id.get(asked.topic_id) if uses_topic_ids else image.topics.get(asked.topic)
        return None if topic is None else topic.partitions.get(asked.partition)

    def respond(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> FetchResponse:
        """The response for these answers. Consecutive partitions of one topic are grouped."""
        if parameters.throttle is not None:
            throttle_ms = parameters.throttle(response_size(context, parameters, answers))
            if throttle_ms:
                return throttled_answer(context, throttle_ms)
        session_id, selected = context.select(answers, self._clock.monotonic_ms())
        topics: list[FetchableTopicResponse] = []
        leaders: set[int] = set()
        last_name: str | None = None
        last_id: Uuid = ZERO_UUID
        for asked, answer in selected:
            if not topics or asked.topic != last_name or asked.topic_id != last_id:
                last_name, last_id = asked.topic, asked.topic_id
                topics.append(FetchableTopicResponse(topic=last_name or "", topic_id=last_id))
            topics[-1].partitions.append(answer)
            if answer.records:
                self._count(asked, answer, parameters)
            if answer.current_leader is not None:
                leaders.add(answer.current_leader.leader_id)
        response = FetchResponse(session_id=session_id, responses=topics)
        if leaders:
            response.node_endpoints = self._endpoints(leaders, parameters.listener_name)
        return response

    def respond_in_steps(
        self, context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
    ) -> Steps[FetchResponse]:
        """Like `respond`, some of the answers at a time."""
        if parameters.throttle is not None:
            size_bytes = yield from response_size_in_steps(context, parameters, answers, TOLD_A_STEP)
            throttle_ms = parameters.throttle(size_bytes)
            if throttle_ms:
                return throttled_answer(context, throttle_ms)
            parameters.throttle = None
        told = FetchContext(()) if context.session is None else context
        to_remember: dict[Any, Any] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        whole: FetchResponse | None = None
        for start in range(0, len(answers), TOLD_A_STEP):
            some = answers[start : start + TOLD_A_STEP]
            part = self.respond(told, parameters, some)
            if context.wants_a_session:
                context.remember(some, to_remember)
            endpoints |= {each.node_id: each for each in part.node_endpoints}
            if whole is None:
                whole = part
            else:
                _append(whole.responses, part.responses)
            if start + TOLD_A_STEP < len(answers):
                yield None
        if whole is None:
            return self.respond(context, parameters, answers)
        if context.wants_a_session:
            whole.session_id = context.create_of(to_remember, self._clock.monotonic_ms())
        whole.node_endpoints = [endpoints[leader] for leader in sorted(endpoints)]
        return whole

    def _count(self, asked: Any, answer: PartitionData, parameters: FetchParameters) -> None:
        manager = self._manager
        if parameters.uses_topic_ids:
            core = manager.by_id.get((asked.topic_id, asked.partition))
        else:
            core = manager.by_name.get((asked.topic, asked.partition))
        if core is None:
            return
        if parameters.replica_id < 0:
            core.traffic.bytes_out += len(answer.records)
            return
        core.traffic.replication_bytes_out += len(answer.records)
        if manager.hosted.is_being_added(core, parameters.replica_id):
            core.traffic.reassignment_bytes_out += len(answer.records)

    def _endpoints(self, leaders: set[int], listener_name: str) -> list[NodeEndpoint]:
        brokers = self._manager.image.brokers
        endpoints = []
        for leader in sorted(leaders):
            broker = brokers.get(leader)
            endpoint = None if broker is None else broker.endpoints.get(listener_name)
            if broker is not None and endpoint is not None:
                endpoints.append(
                    NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                )
        return endpoints


def _append(topics: list[FetchableTopicResponse], more: list[FetchableTopicResponse]) -> None:
    """Append topics. The first new one is merged into the last one if both are the same topic."""
    if topics and more and (topics[-1].topic, topics[-1].topic_id) == (more[0].topic, more[0].topic_id):
        topics[-1].partitions += more[0].partitions
        more = more[1:]
    topics += more
