"""`kafkacompat features`: show and change the levels of a cluster's features, as kafka-features does (KIP-584).

It is an ordinary client. The controller decides whether every node supports a level, and what a downgrade may lose.
"""

from __future__ import annotations

import argparse

from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.format_options import parse_release
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.client.blocking import Cluster, Remote
from kafkacompat.client.brokers import check
from kafkacompat.controller.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SUPPORTED_FEATURES,
    default_levels,
)
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from kafkacompat.wire.messages.update_features_response import UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
TIMEOUT_MS = 30_000
LEVEL_MAX = 2**15 - 1
_LEVELS = {name: level for level, name in METADATA_VERSIONS.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("describe", help="the levels of the cluster, and those that a broker supports")
    upgrade = actions.add_parser(
        "upgrade", help="raise levels; nodes that do not support them cannot join any more"
    )
    downgrade = actions.add_parser("downgrade", help="lower levels")
    downgrade.add_argument(
        "--unsafe",
        action="store_true",
        help="also where metadata would be lost, if the controller can do that",
    )
    add_bootstrap_to(actions)
    for each in (upgrade, downgrade):
        each.add_argument(
            "feature",
            nargs="*",
            metavar="NAME=LEVEL",
            help="for example share.version=2, metadata.version=4.4-IV2",
        )
        each.add_argument(
            "-r",
            "--release-version",
            metavar="RELEASE",
            help="all features but kraft.version to the levels of a release of Kafka, for example 4.4",
        )
        each.add_argument("--dry-run", action="store_true", help="only ask whether it can be done")


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "describe":
        with Cluster(address_of(arguments)) as cluster:
            describe(cluster.any())
        return 0
    upgrades = arguments.action == "upgrade"
    if bool(arguments.feature) is (arguments.release_version is not None):
        raise CommandFailed("name either features with their levels, or --release-version")
    wanted = dict(map(parse_level, arguments.feature))
    with Cluster(address_of(arguments)) as cluster:
        remote = cluster.any()
        if arguments.release_version is not None:
            wanted = levels_of_release(remote, parse_release(arguments.release_version), upgrades)
        if not wanted:
            print("every feature has its level")
            return 0
        kind = UPGRADE if upgrades else UNSAFE_DOWNGRADE if arguments.unsafe else SAFE_DOWNGRADE
        update(remote, wanted, kind, only_validate=arguments.dry_run)
    can_be = "can be" if arguments.dry_run else "is"
    for name, level in wanted.items():
        print(f"{name} {can_be} {level_text(name, level)}")
    return 0


def describe(remote: Remote) -> None:
    versions = _versions(remote)
    levels = {each.name: each.max_version_level for each in versions.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in versions.supported_features}
    print_table(
        ("feature", "level", "supported from", "to"),
        [
            (
                name,
                level_text(name, levels.get(name, 0)),
                *(level_text(name, each) for each in supported.get(name, (0, 0))),
            )
            for name in sorted({*levels, *supported})
        ],
    )


def levels_of_release(remote: Remote, level: int, upgrades: bool) -> dict[str, int]:
    """The levels that must change, of the features that the broker shows."""
    versions = _versions(remote)
    found = {each.name: each.max_version_level for each in versions.finalized_features}
    shown = {each.name for each in versions.supported_features} - {KRAFT_VERSION}
    wanted = dict.fromkeys(SUPPORTED_FEATURES, 0) | dict(default_levels(level))
    return {
        name: each
        for name, each in wanted.items()
        if name in shown and (each > found.get(name, 0) if upgrades else each < found.get(name, 0))
    }


def update(remote: Remote, wanted: dict[str, int], kind: int, *, only_validate: bool) -> None:
    request = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in wanted.items()
        ],
        validate_only=only_validate,
    )
    answer = remote.call(request, UpdateFeaturesResponse)
    check(answer.error_code, "the features", answer.error_message)
    for each in answer.results:
        check(each.error_code, each.feature, each.error_message)


def parse_level(text: str) -> tuple[str, int]:
    """Raises CommandFailed."""
    name, equals, level_text = text.partition("=")
    if name == METADATA_VERSION and level_text in _LEVELS:
        return name, _LEVELS[level_text]
    try:
        level = parse_int(level_text) if equals else -1
    except ValueError:
        level = -1
    if not 0 <= level <= LEVEL_MAX:
        raise CommandFailed(f"a feature is given as NAME=LEVEL, not {text!r}")
    return name, level


def level_text(name: str, level: int) -> str:
    """metadata.version has names."""
    return METADATA_VERSIONS.get(level, str(level)) if name == METADATA_VERSION else str(level)


def _versions(remote: Remote) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="kafkacompat-features", client_software_version="1")
    answer = remote.call(request, ApiVersionsResponse)
    check(answer.error_code, "the features")
    return answer
