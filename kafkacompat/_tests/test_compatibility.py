"""docs/reference/compatibility.md says what the broker declares."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from kafkacompat.api.registry import BROKER_APIS_WITH_TELEMETRY
from kafkacompat.cli import compatibility


def test_the_page_is_up_to_date() -> None:
    assert compatibility.main(["--check"]) == 0, "run python -m kafkacompat.cli.compatibility"


def test_drift_is_noticed_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = compatibility.PAGE.read_text("utf-8")
    page.write_text(text.replace("| 18 | ApiVersions |", "| 18 | ApiVersion |"), "utf-8")
    assert compatibility.main(["--check", str(page)]) == 1
    assert compatibility.main([str(page)]) == 0
    assert page.read_text("utf-8") == text


def test_a_page_without_a_marker_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers", "utf-8")
    with pytest.raises(ValueError, match="apis"):
        compatibility.main([str(page)])


def test_every_api_served_has_its_row_or_is_named_among_those_of_brokers() -> None:
    lines = compatibility.apis().splitlines()
    served = [line for line in lines if re.match(r"\| \d", line) and not line.endswith("| - |")]
    (to_each_other,) = [line for line in lines if line.startswith("Brokers also serve")]
    keys = [int(row.split("|")[1]) for row in served]
    keys += [int(key) for key in re.findall(r"\((\d+)\)", to_each_other)]
    assert sorted(keys) == [entry.key for entry in BROKER_APIS_WITH_TELEMETRY.entries]


KIB, MIB, SECOND_MS = 1 << 10, 1 << 20, 1000
BOUNDS: tuple[tuple[str, *tuple[str | tuple[str, int], ...]], ...] = (
    # Produce and transactions.
    ("| about {}: beyond that, an answer has fewer records", "partition.fetch.ABORTED_MAX"),
    (
        "and {} MiB of new ids from one connection",
        ("txn.transaction_state_manager.CONNECTION_BYTES_MAX", MIB),
    ),
    # Groups and offsets.
    (
        "group with {} committed offsets or more, OffsetDelete of more than {} partitions",
        "coordinator.shards.STRETCH",
        "coordinator.shards.STRETCH",
    ),
    ("OffsetCommit and TxnOffsetCommit of more than {} partitions", "api.pieces.COMMITTED_PIECE"),
    ("| batches of {} offsets, each with its own result", "api.pieces.COMMITTED_PIECE"),
    (
        "are larger than {} KiB or name more than {} topics together",
        ("group.consumer_protocol.DISTINCT_BYTES_MAX", KIB),
        "group.consumer_protocol.DISTINCT_TOPICS_MAX",
    ),
    (
        "| a group has at most {} different ones. Another one is refused with INVALID_REGULAR_EXPRESSION. More than {} matched",
        "group.consumer.regular_expressions.EXPRESSIONS_MAX",
        "group.consumer.regular_expressions.NAMES_AT_ONCE",
    ),
    (
        "| at most {} characters, {} of RE2's instructions",
        "expressions.LENGTH_MAX",
        "expressions.SIZE_MAX",
    ),
    ("count together, with {} instructions", "config.client_metrics.SIZE_MAX"),
    (
        "| at most {} names of {} characters together, and {} names in {} bytes of the embedded",
        "api.subscribed_names.NAMES_MAX",
        "api.subscribed_names.NAMES_LENGTH_MAX",
        "group.consumer_protocol.METADATA_NAMES_MAX",
        "group.consumer_protocol.METADATA_BYTES_MAX",
    ),
    ("| a topology has at most {} parts", "api.streams_group_heartbeat.TOPOLOGY_PARTS_MAX"),
    ("names of topics have at most {} characters", "api.streams_group_heartbeat.NAMES_MAX"),
    ("One with more than {} tasks does not run", "group.streams.configured_topology.TASKS_MAX"),
    (
        "that names more than {} tasks, or has more than {} offsets of tasks or {} client tags",
        "api.streams_group_heartbeat.LISTED_MAX",
        "api.streams_group_heartbeat.LISTED_MAX",
        "api.streams_group_heartbeat.CLIENT_TAGS_MAX",
    ),
    (
        "| {} in one write and {} altogether",
        "share.state.share_coordinator_shard.WRITTEN_BATCHES_MAX",
        "share.state.share_coordinator_shard.STATE_BATCHES_MAX",
    ),
    ("| the same up to {} batches", "share.transitions.AS_KAFKA_MAX"),
    (
        "| a classic group of more than {} members, or with more than {} KiB of subscriptions",
        "group.consumer.conversion.CONVERTED_AT_ONCE",
        ("group.consumer.conversion.READ_AT_ONCE", KIB),
    ),
    ("| a consumer group of more than {} classic members", "group.consumer.conversion.CONVERTED_AT_ONCE"),
    ("names more than {} topics | one batch |", "group.group_coordinator.JOINS_AT_ONCE"),
    ("| a new target assignment of more than {} members", "group.target_assignment.TARGETS_AT_ONCE"),
    ("and {} MiB that the joins of one connection", ("group.environment.CONNECTION_BYTES_MAX", MIB)),
    ("one classic member has at most {} MiB", ("group.environment.MEMBER_BYTES_MAX", MIB)),
    ("| a JoinGroup with more than {} is refused", "group.group_coordinator.PROTOCOLS_MAX"),
    # Share groups.
    (
        "| DescribeShareGroupOffsets of more than {} groups, or DeleteGroups of more than {},",
        "api.describe_share_group_offsets.GROUPS_TOGETHER",
        "api.delete_groups.DELETED_A_STEP",
    ),
    (
        "| AlterShareGroupOffsets of more than {} partitions",
        "api.alter_share_group_offsets.ALTERED_TOGETHER",
    ),
    ("that expands to more than {} MiB, where", ("share.dead_letters.UNPACKED_BYTES_MAX", MIB)),
    # Elections, logs and disks.
    ("| more than {} above the voter's epoch is refused", "raft.elections.EPOCHS_MISSED_MAX"),
    ("| a value above {} counts as", "log.log_segment.INDEX_INTERVAL_MOST"),
    ("with one cache of {} MiB for all logs", ("log.index_cache.INDEX_CACHE_BYTES", MIB)),
    ("| logs of {} MiB and more are cleaned", ("log.cleaner.log_cleaner.OWN_PROCESS_BYTES", MIB)),
    ("answered without records, after {} ms", "partition.remote_fetch.LATER_MS"),
    ("up to the same bound but at most {} MiB", ("remote.remote_index_cache.MOST_BYTES", MIB)),
    ("| in memory, up to {} MiB in all", ("partition.remote_fetch.HELD_BYTES_MAX", MIB)),
    # Security.
    ("An answer may have {} MiB", ("security.jwks.JWKS_BYTES_MAX", MIB)),
    ("cause a fetch every {} s at most", ("security.jwks.MISSING_INTERVAL_MS", SECOND_MS)),
    (
        "| a message of SCRAM with more than {} KiB, one of OAUTHBEARER with more than {} KiB, and a token with more than {} ",
        ("security.scram_exchange.MESSAGE_BYTES_MAX", KIB),
        ("security.oauthbearer.MESSAGE_BYTES_MAX", KIB),
        "security.oauthbearer.TOKEN_CHARACTERS_MAX",
    ),
    (
        "| at most {}. CreateDelegationToken with more",
        "controller.delegation_token_control_manager.RENEWERS_MAX",
    ),
    (
        "| the connection is closed after {} s or {} KiB",
        ("net.tls_connection.HANDSHAKE_MS_MAX", SECOND_MS),
        ("net.tls_socket.HANDSHAKE_BYTES_MAX", KIB),
    ),
    # Requests, limits and settings.
    ("So does one with more than {} elements that is refused as a whole", "api.serve.REFUSED_AT_ONCE"),
    (
        "One array has at most {} elements and one section {} tagged fields",
        "wire.primitives.ARRAY_MAX",
        "wire.primitives.TAGS_MAX",
    ),
    ("and {} MiB after a client has left the buffer full", ("net.send_buffer.FULL_BYTES", MIB)),
    (
        "| {} KiB. The system may allow less (on Linux `net.core.rmem_max`)",
        ("net.settings.RECEIVE_BUFFER_BYTES", KIB),
    ),
    ("| {} in all sessions together. A client", "partition.fetch_session.PARTITIONS_MAX"),
    (
        "| {} in one session and {} in all of them together. A session with {} or fewer",
        "share.share_session.PARTITIONS_OF_ONE_MAX",
        "share.share_session.PARTITIONS_MAX",
        "share.share_session.FEW_PARTITIONS",
    ),
    ("| after {} ranges no further partition", "share.delayed_share_fetch.RANGES_MAX"),
    ("| more than {} batches of one partition", "share.share_partition_manager.BATCHES_MAX"),
    ("acknowledges and names more than {} topics", "share.share_partition_manager.ACKNOWLEDGED_MAX"),
    ("| any number | more than {} are refused", "controller.feature_control_manager.UPDATES_MAX"),
    ("| an answer names at most {} entries", "controller.acl_control_manager.MATCHES_TOLD_MAX"),
    ("| at most {}. One more closes the one that", "net.acceptors.HELD_MAX"),
    ("| at most {} of each, otherwise", "controller.client_quota_control_manager.PARTS_MAX"),
    (
        "| at most {} settings in a request, and of a broker {} with {} characters in all, otherwise INVALID_CONFIG; "
        "at most {} listeners",
        "controller.configuration_control_manager.SETTINGS_MAX",
        "controller.configuration_control_manager.SETTINGS_IN_ALL_MAX",
        "controller.configuration_control_manager.CHARACTERS_MAX",
        "raft.voter_set.LISTENERS_MAX",
    ),
    (
        "answer twice up to {} names in a request, DescribeShareGroupOffsets up to {} groups",
        "api.described_groups.GROUPS_TOGETHER",
        "api.describe_share_group_offsets.GROUPS_AT_ONCE",
    ),
    (
        "| a request with more than {} is refused with INVALID_REQUEST | they need",
        "api.named_rights.UNMADE_DESCRIBED_MAX",
    ),
)
"""What the page says of bounds that are no settings, and where the numbers are, with the unit that the page has them in."""


def value_of(place: str | tuple[str, int]) -> int:
    name, unit = (place, 1) if isinstance(place, str) else place
    module, _, constant = name.rpartition(".")
    whole, rest = divmod(getattr(import_module(f"kafkacompat.{module}"), constant), unit)
    assert rest == 0, name
    return int(whole)


def test_the_page_has_the_bounds_of_the_code() -> None:
    page = compatibility.PAGE.read_text("utf-8")
    told = [text.format(*(f"{value_of(each):,}" for each in places)) for text, *places in BOUNDS]
    assert [each for each in told if each not in page] == []
