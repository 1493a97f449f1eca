"""The settings of a topic: those that somebody has set first, secrets never."""

from __future__ import annotations

import pytest

from kafkacompat.console.core.topic_settings import MAX_CHARACTERS, settings_in, settings_request
from kafkacompat.console.failure import NotThere
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def config(
    name: str, value: str | None, source: int, default: str | None = "d", **more: object
) -> DescribeConfigsResourceResult:
    synonyms = [DescribeConfigsSynonym(name=name, value=value, source=source)]
    if default is not None:
        synonyms.append(DescribeConfigsSynonym(name="log." + name, value=default, source=5))
    return DescribeConfigsResourceResult(
        name=name, value=value, config_source=source, synonyms=synonyms, **more
    )  # type: ignore[arg-type]


def answer(
    *configs: DescribeConfigsResourceResult, error: int = 0, name: str = "t"
) -> DescribeConfigsResponse:
    result = DescribeConfigsResult(
        error_code=error, resource_type=2, resource_name=name, configs=list(configs)
    )
    return DescribeConfigsResponse(results=[result])


def test_what_somebody_has_set_comes_first() -> None:
    told = settings_in(
        answer(
            config("a.default", "1", 5),
            config("z.own", "2", 1),
            config("b.node", "3", 4),
            config("c.cluster", "4", 3),
            config("b.own", "5", 1, default=None),
            config("y.odd", "6", 77),
        ),
        "t",
    )
    assert [(each["name"], each["source"], each["default"]) for each in told] == [
        ("b.own", "topic", None),
        ("z.own", "topic", "d"),
        ("c.cluster", "cluster", "d"),
        ("b.node", "server.properties", "d"),
        ("a.default", "default", "d"),
        ("y.odd", "unknown", "d"),
    ]
    assert "rank" not in told[0]


def test_a_secret_is_not_shown_even_if_the_broker_sends_it() -> None:
    (told,) = settings_in(answer(config("secret", "s3cret", 1, "s3cret", is_sensitive=True)), "t")
    assert (told["value"], told["default"], told["is_sensitive"]) == (None, None, True)


def test_a_value_is_cut() -> None:
    (told,) = settings_in(answer(config("long", "x" * 9_000, 1, documentation="y" * 9_000)), "t")
    assert (len(told["value"]), len(told["documentation"])) == (MAX_CHARACTERS, MAX_CHARACTERS)


def test_an_answer_without_the_topic_is_refused() -> None:
    with pytest.raises(NotThere, match="may not see the settings of topic t: TOPIC_AUTHORIZATION_FAILED"):
        settings_in(answer(error=29), "t")
    with pytest.raises(CommandFailed, match="the answer has no settings of topic t"):
        settings_in(answer(name="other"), "t")
    with pytest.raises(NotThere, match="there is no topic t"):
        settings_in(answer(error=3), "t")


def test_the_request_is_for_one_topic() -> None:
    (resource,) = settings_request("t").resources
    assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (2, "t", None)
