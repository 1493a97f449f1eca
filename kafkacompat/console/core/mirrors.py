"""The topics that are mirrors of another cluster, or were: by their settings mirror.*, which DescribeConfigs tells. No sockets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafkacompat.config.topic import MIRROR_BOOTSTRAP_SERVERS, MIRROR_NAME, MIRROR_STATE, STOPPED
from kafkacompat.console.core.snapshot import MirrorSeen, TopicSeen
from kafkacompat.console.core.topic_settings import SOURCES
from kafkacompat.console.core.words import encodable
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse

TOPICS_A_REQUEST: Final = 500
MAX_CHARACTERS: Final = 300


def mirrors_requests(topics: Sequence[TopicSeen]) -> Iterable[DescribeConfigsRequest]:
    names = [topic.name for topic in topics if not topic.internal]
    for start in range(0, len(names), TOPICS_A_REQUEST):
        yield DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=name,
                    configuration_keys=[MIRROR_NAME, MIRROR_BOOTSTRAP_SERVERS, MIRROR_STATE],
                )
                for name in names[start : start + TOPICS_A_REQUEST]
            ]
        )


def mirrors_in(answer: DescribeConfigsResponse) -> list[MirrorSeen]:
    """Topics whose settings the console may not see are left out."""
    found = []
    for result in answer.results:
        own = {
            each.name: encodable((each.value or "")[:MAX_CHARACTERS])
            for each in result.configs
            if SOURCES.get(each.config_source) == "topic"
        }
        if result.error_code == ErrorCode.NONE and own.get(MIRROR_NAME):
            found.append(
                MirrorSeen(
                    result.resource_name,
                    own[MIRROR_NAME],
                    own.get(MIRROR_BOOTSTRAP_SERVERS, ""),
                    own.get(MIRROR_STATE, STOPPED),
                )
            )
    return found


def mirrors_view(mirrors: Sequence[MirrorSeen], topics: Mapping[str, TopicSeen]) -> list[dict[str, Any]]:
    """Without topics that are gone since."""
    return [
        {
            "mirror": each.mirror,
            "topic": each.topic,
            "source": each.source,
            "state": each.state,
            "partitions": len(topics[each.topic].partitions),
        }
        for each in sorted(mirrors, key=lambda mirror: (mirror.mirror, mirror.topic))
        if each.topic in topics
    ]
