"""UpdateFeatures over several nodes, with the codes and texts of Apache Kafka 4.3.0."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import pytest

from kafkacompat.controller import features as levels
from kafkacompat.controller._tests.clusters import after, broker, cluster, settings
from kafkacompat.controller.feature_control_manager import update_features, wanted_kraft_version
from kafkacompat.controller.features import METADATA_CHANGING_LEVELS, METADATA_VERSIONS, SUPPORTED_FEATURES
from kafkacompat.controller.image import MetadataImage
from kafkacompat.wire.messages.register_controller_record import ControllerFeature, RegisterControllerRecord
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR = "eligible.leader.replicas.version"
OLDER = {**SUPPORTED_FEATURES, "metadata.version": (7, 29)}


def members(**others: Any) -> tuple[Any, ...]:
    return (
        broker(1, features=SUPPORTED_FEATURES),
        broker(2, features=others.get("second", SUPPORTED_FEATURES)),
    )


def request(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        validate_only=validate_only,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
    )


def update(
    image: MetadataImage, *updates: tuple[str, int, int], voters: tuple[int, ...] = (1,), **options: bool
) -> tuple[Any, int, str | None]:
    result = update_features(image, settings(), voters, request(*updates, **options), with_results=False)
    text = result.response.error_message
    if text is not None:
        start = "The update failed for all features since the following feature had an error: "
        assert text.startswith(start)
        text = text.removeprefix(start)
    return result, result.response.error_code, text


def test_levels_go_up_and_down_together() -> None:
    image = cluster(brokers=members(), features={"metadata.version": 25, "group.version": 1})
    result, code, _ = update(image, ("metadata.version", 30, UPGRADE), ("group.version", 0, SAFE))
    assert code == 0
    assert after(image, result).features == {"metadata.version": 30}
    result, code, text = update(image, ("metadata.version", 30, UPGRADE), ("group.version", 0, UPGRADE))
    assert (code, result.records) == (95, ())
    assert text is not None
    assert text.startswith("Invalid update version 0 for feature group.version. Can't downgrade")


def test_every_broker_must_understand_a_level() -> None:
    image = cluster(brokers=members(second=OLDER), features={"metadata.version": 29})
    assert update(image, ("metadata.version", 30, UPGRADE))[1:] == (
        95,
        "Invalid update version 30 for feature metadata.version. Broker 2 only supports versions 7-29",
    )
    image = cluster(brokers=members(second={"metadata.version": (7, 30)}), features={"metadata.version": 30})
    assert update(image, ("group.version", 1, UPGRADE))[2] == (
        "Invalid update version 1 for feature group.version. Broker 2 does not support this feature."
    )


@pytest.mark.parametrize(("name", "level"), [("metadata.version", 33), ("share.version", 2)])
def test_a_cluster_with_a_node_of_the_release_before_stays_at_its_levels(name: str, level: int) -> None:
    before = {**SUPPORTED_FEATURES, "metadata.version": (7, 30), "share.version": (0, 1)}
    features = {"metadata.version": 30, "share.version": 1}
    image = cluster(brokers=members(second=before), features=features)
    low, high = before[name]
    assert update(image, (name, level, UPGRADE))[1:] == (
        95,
        f"Invalid update version {level} for feature {name}. Broker 2 only supports versions {low}-{high}",
    )
    image = cluster(brokers=members(), features=features)
    result, code, _ = update(image, ("metadata.version", 33, UPGRADE), ("share.version", 2, UPGRADE))
    assert (code, after(image, result).features) == (0, {"metadata.version": 33, "share.version": 2})


def controllers(**features: tuple[int, int]) -> dict[str, Any]:
    stated = [
        ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in features.items()
    ]
    return {"controllers": {2: RegisterControllerRecord(controller_id=2, features=stated)}}


def test_every_controller_must_have_registered_and_understand_a_level() -> None:
    from dataclasses import replace

    image = cluster(brokers=members(), features={"metadata.version": 20})
    wanted = ("metadata.version", 30, UPGRADE)
    start = "Invalid update version 30 for feature metadata.version. "
    assert update(image, wanted, voters=(1, 2))[2] == (
        f"{start}controller 2 has not registered, and may not support this feature"
    )
    older = replace(image, opaque=controllers(**OLDER))
    assert update(older, wanted, voters=(1, 2))[2] == f"{start}Controller 2 only supports versions 7-29"
    same = replace(image, opaque=controllers(**SUPPORTED_FEATURES))
    assert update(same, wanted, voters=(1, 2))[1] == 0
    unregistered = cluster(brokers=members(), features={"metadata.version": 14})
    assert update(unregistered, wanted, voters=(1, 2))[1] == 0, "nobody registers below metadata.version 15"


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (33, 32, True),
        (33, 30, True),
        (32, 31, True),
        (31, 30, False),
        (30, 29, True),
        (29, 23, False),
        (29, 22, True),
        (22, 17, False),
        (17, 16, True),
        (13, 12, True),
        (10, 9, False),
    ],
)
def test_metadata_version_goes_down_where_nothing_is_lost(old: int, new: int, refused: bool) -> None:
    image = cluster(brokers=members(), features={"metadata.version": old})
    texts = {
        SAFE: "Refusing to perform the requested downgrade because it might delete metadata information.",
        UNSAFE: "Unsafe metadata downgrade is not supported in this version.",
    }
    for kind, text in texts.items():
        result, code, said = update(image, ("metadata.version", new, kind))
        if refused:
            assert (code, result.records) == (95, ())
            assert said == f"Unsupported metadata.version downgrade from {old} to {new}. {text}"
        else:
            assert after(image, result).features == {"metadata.version": new}


WITHOUT_NEW_METADATA = {
    "default_levels": "of new clusters only",
    "bootstrap_snapshot_supported": "where the first records are, and not which",
    "leader_epoch_bump_on_isr_shrink": "what a change of the in-sync set means, whose record is the same",
}
"""Functions of a level of metadata.version that ask for no record and no field of it, and why."""


def test_no_cluster_goes_back_below_a_level_that_something_asks_for() -> None:
    """The records of the higher level would stay in its log."""
    asking = {
        name: each
        for name, each in vars(levels).items()
        if inspect.isfunction(each) and [*inspect.signature(each).parameters] == ["level"]
    }
    assert asking.keys() > WITHOUT_NEW_METADATA.keys()
    for name in asking.keys() - WITHOUT_NEW_METADATA.keys():
        is_answered = asking[name]
        changed = {high for low, high in pairwise(METADATA_VERSIONS) if is_answered(low) != is_answered(high)}
        assert changed, name
        assert changed <= set(METADATA_CHANGING_LEVELS), f"{name}: they belong into METADATA_CHANGING_LEVELS"


def test_eligible_leaders_need_a_level_and_one_min_insync_replicas() -> None:
    configs = {
        (4, "2"): {"min.insync.replicas": "3", "log.retention.ms": "5"},
        (4, "1"): {"log.retention.ms": "6"},
    }
    old = cluster(brokers=members(), features={"metadata.version": 22}, configs=configs)
    assert update(old, (ELR, 1, UPGRADE))[2] == (
        f"Invalid update version 1 for feature {ELR}. {ELR} could not be set to 1 because it depends on "
        "metadata.version level 23"
    )
    result, code, _ = update(old, ("metadata.version", 23, UPGRADE), (ELR, 1, UPGRADE))
    assert code == 0
    new = after(old, result)
    assert new.features == {"metadata.version": 23, ELR: 1}
    assert new.configs == {
        (4, ""): {"min.insync.replicas": "1"},
        (4, "1"): {"log.retention.ms": "6"},
        (4, "2"): {"log.retention.ms": "5"},
    }


def test_a_dry_run_writes_nothing_and_of_a_name_twice_the_last_counts() -> None:
    image = cluster(brokers=members(), features={"metadata.version": 30, "group.version": 1})
    result, code, _ = update(image, ("group.version", 0, SAFE), validate_only=True)
    assert (code, result.records) == (0, ())
    asked = request(("group.version", 1, UPGRADE), ("group.version", 0, SAFE))
    result = update_features(image, settings(), (1,), asked, with_results=True)
    assert after(image, result).features == {"metadata.version": 30}
    assert [(each.feature, each.error_code, each.error_message) for each in result.response.results] == [
        ("group.version", 0, "NONE")
    ] * 2


def test_kraft_version_is_for_the_quorum_to_write() -> None:
    image = cluster(brokers=members(), features={"metadata.version": 30})
    up = request(("kraft.version", 1, UPGRADE))
    assert update(image, ("kraft.version", 1, UPGRADE))[0].records == ()
    assert wanted_kraft_version(image, up) == 1
    assert wanted_kraft_version(image, request(("kraft.version", 1, UPGRADE), validate_only=True)) == 1
    assert wanted_kraft_version(image, request(("kraft.version", 0, SAFE))) is None
    assert wanted_kraft_version(image, request(("group.version", 1, UPGRADE))) is None
    raised = cluster(brokers=members(), features={"metadata.version": 30, "kraft.version": 1})
    assert wanted_kraft_version(raised, up) is None
    assert update(raised, ("kraft.version", 0, UNSAFE))[2] == (
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
    )


def test_very_many_updates_are_refused_without_a_look_at_them() -> None:
    from kafkacompat.controller.feature_control_manager import UPDATES_MAX

    image = cluster(brokers=members(), features={"metadata.version": 29})
    wanted = ("metadata.version", 30, UPGRADE)
    assert update(image, *[wanted] * UPDATES_MAX)[1] == 0
    result, code, _ = update(image, *[wanted] * (UPDATES_MAX + 1))
    assert (code, result.records) == (42, ())
