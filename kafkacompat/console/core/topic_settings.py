"""The answer to DescribeConfigs for a topic: its settings, those that somebody has set first. No sockets."""

from __future__ import annotations

from typing import Any, Final

from kafkacompat.client.brokers import check
from kafkacompat.console.core.words import encodable
from kafkacompat.console.failure import NotThere
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

DEFAULT: Final = "default"
SOURCES: Final = {1: "topic", 2: "node", 3: "cluster", 4: "server.properties", 5: DEFAULT}
"""Where a value comes from, by Kafka's number, in the order in which they count."""
MAX_SETTINGS: Final = 500
MAX_CHARACTERS: Final = 4_000

View = dict[str, Any]


def settings_request(topic: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


def settings_in(answer: DescribeConfigsResponse, topic: str) -> list[View]:
    """Return the settings of the topic. default is what it would be without what is set, or None if that is not told. NotThere,
    and CommandFailed if the answer has none."""
    for result in answer.results:
        if result.resource_type == ConfigResourceType.TOPIC and result.resource_name == topic:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NotThere(f"there is no topic {topic}")
            if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # It may not even be there.
                raise NotThere(
                    f"the console may not see the settings of topic {topic}: TOPIC_AUTHORIZATION_FAILED"
                )
            check(result.error_code, f"the settings of topic {topic}")
            shown = [_setting(config) for config in result.configs]
            shown.sort(key=lambda each: (each["rank"], each["name"]))
            return [
                {name: value for name, value in each.items() if name != "rank"}
                for each in shown[:MAX_SETTINGS]
            ]
    raise CommandFailed(f"the answer has no settings of topic {topic}")


def _setting(config: DescribeConfigsResourceResult) -> View:
    source = SOURCES.get(config.config_source, "unknown")
    defaults = [each.value for each in config.synonyms if SOURCES.get(each.source) == DEFAULT]
    return {
        "name": _text(config.name),
        "value": None if config.is_sensitive else _text(config.value),
        "is_sensitive": config.is_sensitive,
        "source": source,
        "default": None if config.is_sensitive or not defaults else _text(defaults[-1]),
        "documentation": _text(config.documentation),
        "rank": config.config_source if config.config_source in SOURCES else len(SOURCES),
    }


def _text(text: str | None) -> str | None:
    return None if text is None else encodable(text[:MAX_CHARACTERS])
