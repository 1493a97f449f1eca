"""DeleteTopics: image and request -> records and response.

Pure. Checks, codes and texts are those of Kafka's controller. The caller checks the authorization.
"""

from __future__ import annotations

from kafkacompat.controller.image import MetadataImage, TopicImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.quota.mutations import MayMutate, unlimited
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest
from kafkacompat.wire.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from kafkacompat.wire.messages.remove_topic_record import RemoveTopicRecord

TOPICS_A_STEP = 1_000
NAMED_A_STEP = 5_000
"""Topics of a request handled in one step when only their names are collected."""
_UNKNOWN_TOPIC = "This server does not host this topic-partition."
_UNKNOWN_ID = "This server does not host this topic ID."


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, may_mutate: MayMutate = unlimited
) -> Work[ControllerResult[MetadataRecord, DeleteTopicsResponse]]:
    """Accepts names (v1-5), and names or ids (v6). The caller knows the version and checks that deletion is enabled."""
    results: list[DeletableTopicResult] = []

    def answer(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None) -> None:
        results.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        )

    names: dict[str, int] = {}
    ids: dict[Uuid, int] = {}
    for position, name in enumerate(request.topic_names, 1):
        if position % NAMED_A_STEP == 0:
            yield TURN_COST
        names[name] = names.get(name, 0) + 1
    for position, each in enumerate(request.topics, 1):
        if position % NAMED_A_STEP == 0:
            yield TURN_COST
        if each.name is None and each.topic_id == ZERO_UUID:
            answer(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif each.name is None:
            ids[each.topic_id] = ids.get(each.topic_id, 0) + 1
        elif each.topic_id == ZERO_UUID:
            names[each.name] = names.get(each.name, 0) + 1
        else:
            text = "You may not specify both topic name and topic id."
            answer(each.name, each.topic_id, ErrorCode.INVALID_REQUEST, text)
    doomed: dict[Uuid, TopicImage] = {}
    for position, (topic_id, count) in enumerate(ids.items(), 1):
        if position % TOPICS_A_STEP == 0:
            yield TURN_COST
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            answer(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic is None:
            answer(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID)
        else:
            doomed[topic_id] = topic
    for position, (name, count) in enumerate(names.items(), 1):
        if position % TOPICS_A_STEP == 0:
            yield TURN_COST
        topic = image.topics.get(name)
        if count > 1:
            answer(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic is None:
            answer(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN_TOPIC)
        elif ids.get(topic.id):
            doomed.pop(topic.id, None)
            text = "The provided topic name maps to an ID that was already supplied."
            answer(name, topic.id, ErrorCode.INVALID_REQUEST, text)
        else:
            doomed[topic.id] = topic
    records: list[MetadataRecord] = []
    for position, topic in enumerate(doomed.values(), 1):
        if position % TOPICS_A_STEP == 0:
            yield TURN_COST
        if not may_mutate(len(topic.partitions)):
            answer(topic.name, topic.id, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
            continue
        records.append(MetadataRecord(RemoveTopicRecord(topic_id=topic.id), 0))
        answer(topic.name, topic.id, ErrorCode.NONE, None)
    return ControllerResult(tuple(records), DeleteTopicsResponse(responses=results))


def deletion_disabled(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """The refusal of every topic while delete.topic.enable is false."""
    text = "Topic deletion is disabled."
    results = [
        DeletableTopicResult(name=name, error_code=code, error_message=text) for name in request.topic_names
    ]
    results += [
        DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=code, error_message=text)
        for each in request.topics
    ]
    return DeleteTopicsResponse(responses=results)
