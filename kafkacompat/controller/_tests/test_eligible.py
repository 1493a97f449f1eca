"""Eligible leader replicas when the feature or min.insync.replicas changes: a replica that lacks a record never leads,
and one that has all of them still may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkacompat.controller._tests.clusters import after, broker, cluster, isr_change, partition, settings
from kafkacompat.controller.cluster_control_manager import handle_broker_unfenced
from kafkacompat.controller.configuration_control_manager import incremental_alter_configs
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.feature_control_manager import update_features
from kafkacompat.controller.features import SUPPORTED_FEATURES
from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

ELR = "eligible.leader.replicas.version"
TWO = {(4, ""): {"min.insync.replicas": "2"}}
LED = partition(1, 2, 3, isr=(1,), eligible_leader_replicas=(2,))
GONE = partition(1, 2, 3, isr=(), leader=-1, eligible_leader_replicas=(2,), last_known_elr=(1,))
FENCED = (broker(1, fenced=True), broker(2, fenced=True), broker(3, fenced=True))


def set_feature(image: MetadataImage, level: int) -> MetadataImage:
    members = {each: replace(known, features=SUPPORTED_FEATURES) for each, known in image.brokers.items()}
    image = replace(image, brokers=members)
    update = FeatureUpdateKey(feature=ELR, max_version_level=level, upgrade_type=1 if level else 2)
    request = UpdateFeaturesRequest(feature_updates=[update])
    result = update_features(image, settings(), (1,), request, with_results=False)
    assert result.response.error_code == 0, result.response.error_message
    return after(image, result)


def set_min_isr(image: MetadataImage, kind: int, name: str, value: str) -> MetadataImage:
    config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    result = at_once(incremental_alter_configs(image, settings(), request))
    assert result.response.responses[0].error_code == 0
    return after(image, result)


def found(image: MetadataImage) -> PartitionRegistration:
    return image.topics["t"].partitions[0]


def with_feature(image: MetadataImage, level: int) -> MetadataImage:
    """As in a log of Apache Kafka: nothing else changes with it."""
    return replace(image, features={**image.features, ELR: level})


def is_fenced(image: MetadataImage, broker_id: int, *isr: int) -> MetadataImage:
    """The broker is fenced, and this is the remaining ISR."""
    image = replace(image, brokers={**image.brokers, broker_id: broker(broker_id, fenced=True)})
    record = isr_change(image, *isr)
    return image if record is None else after(image, ControllerResult((record,), None))


def returned(image: MetadataImage, broker_id: int) -> MetadataImage:
    image = replace(image, brokers={**image.brokers, broker_id: broker(broker_id)})
    records = at_once(handle_broker_unfenced(image, settings(), broker_id))
    return after(image, ControllerResult(tuple(records), None))


def test_switched_off_nobody_outside_an_isr_is_eligible_and_not_when_it_is_on_again() -> None:
    image = set_feature(cluster(LED, configs=TWO), 0)
    assert (found(image).isr, found(image).eligible_leader_replicas) == ((1,), ())
    assert found(set_feature(image, 1)).eligible_leader_replicas == ()


def test_what_was_left_behind_by_a_switch_goes_when_it_is_on_again() -> None:
    """Apache Kafka 4.3.0 keeps it. With min.insync.replicas 1 the leader meanwhile commits alone."""
    image = set_feature(with_feature(cluster(LED, configs=TWO), 0), 1)
    assert found(image).eligible_leader_replicas == ()


def test_while_it_is_off_nobody_is_elected_who_was_eligible_before() -> None:
    image = is_fenced(with_feature(cluster(LED, configs=TWO), 0), 1)
    assert (found(image).isr, found(image).leader) == ((1,), -1)
    assert found(returned(image, 1)).leader == 1


def test_setting_the_level_that_it_has_changes_nothing() -> None:
    assert found(set_feature(cluster(LED, configs=TWO), 1)) == LED


@pytest.mark.parametrize(("kind", "name"), [(2, "t"), (4, "")])
def test_another_min_insync_replicas_ends_it_where_somebody_may_commit(kind: int, name: str) -> None:
    assert found(set_min_isr(cluster(LED, configs=TWO), kind, name, "1")).eligible_leader_replicas == ()


@pytest.mark.parametrize("change", ["feature", "topic", "cluster"])
def test_where_nobody_commits_who_has_everything_may_still_lead(change: str) -> None:
    """Apache Kafka 4.3.0 does not record it: all brokers may return, and none may lead."""
    image = cluster(GONE, brokers=FENCED, configs=TWO)
    if change == "feature":
        image = set_feature(image, 0)
    else:
        image = set_min_isr(image, *((2, "t") if change == "topic" else (4, "")), value="1")
    assert found(returned(image, 3)).leader == -1, "it has left before"
    now = found(returned(image, 2))
    assert (now.leader, now.isr) == (2, (2,))
    assert (now.eligible_leader_replicas, now.last_known_elr) == ((), ())


def test_so_does_the_last_known_leader_where_nobody_is_eligible() -> None:
    gone = replace(GONE, eligible_leader_replicas=())
    image = set_feature(cluster(gone, brokers=FENCED, configs=TWO), 0)
    assert found(returned(image, 2)).leader == -1
    now = found(returned(image, 1))
    assert (now.leader, now.isr, now.last_known_elr, now.leader_recovering) == (1, (1,), (), True)
