"""`kafkacompat features`: what it asks for, on a cluster of answers."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.cli.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    describe,
    levels_of_release,
    parse_level,
    update,
)
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafkacompat.wire.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse


class Broker:
    """A broker of 4.4 in a cluster at the levels of 4.3. It knows nothing of streams groups."""

    def __init__(self, refusal: ErrorCode = ErrorCode.NONE) -> None:
        self.levels = {"metadata.version": 30, "share.version": 1, "group.version": 1, "kraft.version": 1}
        self.refusal = refusal
        self.asked: list[Any] = []

    def call(self, request: Any, response_class: Any, **options: Any) -> Any:
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(
                supported_features=[
                    SupportedFeatureKey(name=name, min_version=0, max_version=high)
                    for name, high in (("share.version", 2), ("metadata.version", 33), ("kraft.version", 1))
                ],
                finalized_features=[
                    FinalizedFeatureKey(name=name, max_version_level=level)
                    for name, level in self.levels.items()
                ],
            )
        self.asked.append(request)
        result = UpdatableFeatureResult(feature="share.version", error_code=self.refusal, error_message="no")
        return UpdateFeaturesResponse(results=[result])


def test_a_release_names_the_levels_that_must_change() -> None:
    broker = Broker()
    assert levels_of_release(broker, 33, upgrades=True) == {"metadata.version": 33, "share.version": 2}  # type: ignore[arg-type]
    assert levels_of_release(broker, 30, upgrades=True) == {}  # type: ignore[arg-type]
    assert levels_of_release(broker, 25, upgrades=False) == {"metadata.version": 25, "share.version": 0}  # type: ignore[arg-type]


def test_the_request_says_what_kind_of_change_it_is() -> None:
    broker = Broker()
    update(broker, {"share.version": 0}, SAFE_DOWNGRADE, only_validate=True)  # type: ignore[arg-type]
    (asked,) = broker.asked
    assert asked.validate_only
    (change,) = asked.feature_updates
    assert (change.feature, change.max_version_level, change.upgrade_type) == ("share.version", 0, 2)


def test_a_refusal_of_one_feature_is_an_error() -> None:
    """Up to version 1 the answer has an error for each."""
    with pytest.raises(CommandFailed, match=r"share\.version: INVALID_UPDATE_VERSION \(no\)"):
        update(Broker(ErrorCode.INVALID_UPDATE_VERSION), {"share.version": 2}, UPGRADE, only_validate=False)  # type: ignore[arg-type]


def test_the_levels_are_shown_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    describe(Broker())  # type: ignore[arg-type]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["group.version", "1", "0", "0"],
        ["kraft.version", "1", "0", "1"],
        ["metadata.version", "4.3-IV0", "0", "4.4-IV2"],
        ["share.version", "1", "0", "2"],
    ]


@pytest.mark.parametrize(
    ("text", "level"),
    [("share.version=2", 2), ("metadata.version=4.4-IV1", 32), ("metadata.version=30", 30), ("nope=0", 0)],
)
def test_a_level_is_a_number_or_the_name_of_a_metadata_version(text: str, level: int) -> None:
    assert parse_level(text) == (text.partition("=")[0], level)


@pytest.mark.parametrize("text", ["share.version", "share.version=", "a=-1", "a=40000", "a=4.4-IV1"])
def test_other_levels_are_refused_before_the_cluster_is_asked(text: str) -> None:
    with pytest.raises(CommandFailed, match="NAME=LEVEL"):
        parse_level(text)
