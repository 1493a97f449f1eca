"""What `format` is told of a quorum's first voters and of feature levels: text in, values out, refusals in words.

It knows the syntax of kafka-storage's --initial-controllers (KIP-853) and --feature; no file and no directory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.cli.failure import CommandFailed
from kafkacompat.ids import is_reserved_uuid, uuid_from_text
from kafkacompat.raft.voter_node import VoterNode

HIGHEST_PORT = 65535


def parse_initial_controllers(text: str, listener_name: str) -> tuple[VoterNode, ...]:
    """`id@host:port:directory-id,...` as voters by id. CommandFailed for another form and for one id or directory twice."""
    voters: dict[int, VoterNode] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        voter = _parse_controller(entry, listener_name)
        if voter.id in voters:
            raise CommandFailed(f"--initial-controllers names node {voter.id} more than once")
        if any(other.directory_id == voter.directory_id for other in voters.values()):
            raise CommandFailed(
                f"--initial-controllers gives the directory id of {entry} to another node too"
            )
        voters[voter.id] = voter
    if not voters:
        raise CommandFailed("--initial-controllers names no controller")
    return tuple(voters[node_id] for node_id in sorted(voters))


def _parse_controller(entry: str, listener_name: str) -> VoterNode:
    form = "id@host:port:directory-id"
    id_text, at, rest = entry.partition("@")
    address, colon, directory_text = rest.rpartition(":")
    host, second_colon, port_text = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not (at and colon and second_colon and host) or (":" in host and not bracketed):
        raise CommandFailed(f"--initial-controllers: {entry!r} has not the form {form}")
    if not _is_number(id_text):
        raise CommandFailed(f"--initial-controllers: {id_text!r} of {entry!r} is no node id")
    if not _is_number(port_text) or int(port_text) > HIGHEST_PORT:
        raise CommandFailed(f"--initial-controllers: {port_text!r} of {entry!r} is no port")
    try:
        directory_id = uuid_from_text(directory_text)
    except ValueError as error:
        raise CommandFailed(f"--initial-controllers: the directory id of {entry!r}: {error}") from error
    if is_reserved_uuid(directory_id):
        raise CommandFailed(f"--initial-controllers: the directory id of {entry!r} is reserved")
    return VoterNode(int(id_text), directory_id, ((listener_name, host, int(port_text)),))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def parse_feature_levels(entries: Sequence[str], dynamic: bool) -> tuple[tuple[str, int], ...]:
    """Kafka's default levels with those of `name=level` entries in their place. `dynamic`: the voters are in the log, so
    that kraft.version is 1. CommandFailed for an unknown name or level and where one feature lacks another."""
    from kafkacompat.controller.features import (
        DEFAULT_LEVELS,
        FEATURE_DEPENDENCIES,
        KRAFT_VERSION,
        SUPPORTED_FEATURES,
    )

    levels = dict(DEFAULT_LEVELS)
    for entry in entries:
        name, equals, level_text = entry.partition("=")
        if not equals or not _is_number(level_text):
            raise CommandFailed(f"--feature takes name=level, not {entry!r}")
        if name not in SUPPORTED_FEATURES:
            raise CommandFailed(
                f"--feature: {name} is unknown; known are {', '.join(sorted(SUPPORTED_FEATURES))}"
            )
        lowest, highest = SUPPORTED_FEATURES[name]
        if not lowest <= int(level_text) <= highest:
            raise CommandFailed(f"--feature: {name} has the levels {lowest} to {highest}, not {level_text}")
        if name == KRAFT_VERSION:
            if int(level_text) != int(dynamic):
                raise CommandFailed(
                    f"--feature: kraft.version is {int(dynamic)} with these settings and options, not {level_text}"
                )
            continue
        levels[name] = int(level_text)
    for (name, level), needs in FEATURE_DEPENDENCIES.items():
        for needed, least in needs.items():
            if levels[name] >= level and levels[needed] < least:
                raise CommandFailed(f"--feature: {name}={levels[name]} needs {needed} of {least} at least")
    # A level of 0 is that of a feature without a record.
    return tuple((name, level) for name, level in levels.items() if level)
