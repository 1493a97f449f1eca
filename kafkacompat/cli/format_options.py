"""Parses the options of `format` for the first voters, feature levels and users. Refusals are texts for a person.

It knows the syntax of kafka-storage's --initial-controllers (KIP-853), --feature and --add-scram (KIP-900), and
neither files nor directories.
"""

from __future__ import annotations

import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkacompat.failure import CommandFailed
from kafkacompat.ids import is_reserved_uuid, uuid_from_text
from kafkacompat.raft.voter_node import VoterNode

if TYPE_CHECKING:
    from kafkacompat.security.scram import ScramMechanism
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

HIGHEST_PORT = 65535


def parse_initial_controllers(text: str, listener_name: str) -> tuple[VoterNode, ...]:
    """Parse `id@host:port:directory-id,...` into voters by id. Raises CommandFailed for another form or a repeated id
    or directory."""
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
        raise CommandFailed(f"--initial-controllers: {entry!r} does not have the form {form}")
    if not _is_number(id_text):
        raise CommandFailed(f"--initial-controllers: {id_text!r} of {entry!r} is not a node id")
    if not _is_number(port_text) or int(port_text) > HIGHEST_PORT:
        raise CommandFailed(f"--initial-controllers: {port_text!r} of {entry!r} is not a port")
    try:
        directory_id = uuid_from_text(directory_text)
    except ValueError as error:
        raise CommandFailed(f"--initial-controllers: the directory id of {entry!r}: {error}") from error
    if is_reserved_uuid(directory_id):
        raise CommandFailed(f"--initial-controllers: the directory id of {entry!r} is reserved")
    return VoterNode(int(id_text), directory_id, ((listener_name, host, int(port_text)),))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def parse_release(text: str) -> int:
    """The metadata.version of `--release-version`. Raises CommandFailed."""
    from kafkacompat.controller.features import METADATA_VERSIONS, level_of_release

    level = level_of_release(text)
    if level is None:
        raise CommandFailed(
            f"--release-version: {text!r} is unknown; known are {', '.join(METADATA_VERSIONS.values())}, "
            "and each release without its last part"
        )
    return level


def parse_feature_levels(
    entries: Sequence[str], dynamic: bool, release_level: int | None = None
) -> tuple[tuple[str, int], ...]:
    """Return Kafka's levels for a new cluster of this metadata.version (None: the latest one), changed by `name=level`
    entries.

    `dynamic`: the voters are in the log, so kraft.version is 1. Raises CommandFailed for an unknown name or level, and
    for a level that depends on a missing feature.
    """
    from kafkacompat.controller.features import (
        FEATURE_DEPENDENCIES,
        KRAFT_VERSION,
        METADATA_VERSION,
        SUPPORTED_FEATURES,
        default_levels,
    )

    asked: dict[str, int] = {}
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
        asked[name] = int(level_text)
    if METADATA_VERSION in asked:
        if release_level is not None:
            raise CommandFailed(
                "--feature metadata.version and --release-version say the same: give one of them"
            )
        release_level = asked.pop(METADATA_VERSION)
    levels = dict(default_levels() if release_level is None else default_levels(release_level))
    levels |= asked
    for (name, level), needs in FEATURE_DEPENDENCIES.items():
        for needed, least in needs.items():
            if levels.get(name, 0) >= level and levels[needed] < least:
                raise CommandFailed(
                    f"--feature: {name}={levels[name]} requires {needed} at level {least} or higher"
                )
    first = levels.pop(METADATA_VERSION)
    # Level 0 means that the feature has no record.
    return ((METADATA_VERSION, first), *((name, levels[name]) for name in sorted(levels) if levels[name]))


def parse_scram_credential(text: str) -> UserScramCredentialRecord:
    """Parse `MECHANISM=[name=...,password=...]` into the stored credential. CommandFailed never repeats the password."""
    from kafkacompat.security.scram import NONCE_BITS, SCRAM_BY_NAME, nonce_text
    from kafkacompat.wire.messages.user_scram_credential_record import UserScramCredentialRecord

    name, equals, rest = text.strip().partition("=")
    mechanism = SCRAM_BY_NAME.get(name)
    if not equals or mechanism is None:
        raise CommandFailed(f"--add-scram begins with one of {', '.join(SCRAM_BY_NAME)} and an equals sign")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise CommandFailed(f"--add-scram: the value after {name}= must be in square brackets")
    said = _components(rest[1:-1])
    user = said.pop("name", None)
    if user is None:
        raise CommandFailed("--add-scram needs a name")
    salt = _decoded(said, "salt")
    iterations = _iterations(said.pop("iterations", str(mechanism.min_iterations)), mechanism)
    password, salted = said.pop("password", None), _decoded(said, "saltedpassword")
    if said:
        raise CommandFailed(f"--add-scram has unknown fields: {', '.join(sorted(said))}")
    if password is None and (salted is None or salt is None):
        raise CommandFailed("--add-scram needs a password, or a saltedpassword with its salt")
    if salt is None:
        salt = nonce_text(secrets.randbits(NONCE_BITS)).encode()
    if password is not None:
        salted = mechanism.salted_password(password, salt, iterations)
    assert salted is not None
    kept = mechanism.credential(salt, salted, iterations)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism.type,
        salt=kept.salt,
        stored_key=kept.stored_key,
        server_key=kept.server_key,
        iterations=kept.iterations,
    )


def _components(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, component in enumerate(text.split(","), 1):
        name, equals, value = component.partition("=")
        if not equals:
            raise CommandFailed(f"--add-scram: part {number} between the brackets has no equals sign")
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        found[name] = value[1:-1] if is_quoted else value
    return found


def _decoded(said: dict[str, str], name: str) -> bytes | None:
    text = said.pop(name, None)
    try:
        return None if text is None else b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise CommandFailed(f"--add-scram: {name} is not base64") from None


def _iterations(text: str, mechanism: ScramMechanism) -> int:
    low, high = mechanism.min_iterations, mechanism.max_iterations
    if not _is_number(text) or len(text) > len(str(high)) or not low <= int(text) <= high:
        raise CommandFailed(f"--add-scram: iterations of {mechanism.name} are {low} to {high}, not {text}")
    return int(text)
