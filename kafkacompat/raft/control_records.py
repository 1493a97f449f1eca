"""Values of raft's control records: LeaderChange, KRaftVersion, Voters, snapshot header and footer.

It converts our values to Kafka's bytes and back. Roles are unknown here. All have version 0, as Kafka 4.3 writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.records.control import ControlType
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages import leader_change_message, voters_record
from kafkacompat.wire.messages.kraft_version_record import KRaftVersionRecord
from kafkacompat.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from kafkacompat.wire.messages.snapshot_header_record import SnapshotHeaderRecord

VERSION = 0


def _value(message: Message) -> bytes:
    return bytes(encode(message, VERSION))


def leader_change(leader_id: int, voters: Sequence[int], granting: Sequence[int]) -> tuple[int, bytes]:
    message = leader_change_message.LeaderChangeMessage(
        version=VERSION,
        leader_id=leader_id,
        voters=[leader_change_message.Voter(voter_id=voter) for voter in voters],
        granting_voters=[leader_change_message.Voter(voter_id=voter) for voter in granting],
    )
    return ControlType.LEADER_CHANGE, _value(message)


def kraft_version(level: int) -> tuple[int, bytes]:
    return ControlType.KRAFT_VERSION, _value(KRaftVersionRecord(version=VERSION, kraft_version=level))


def parse_kraft_version(value: bytes) -> int:
    return decode(KRaftVersionRecord, VERSION, value).kraft_version


def voters(members: Sequence[VoterNode]) -> tuple[int, bytes]:
    message = voters_record.VotersRecord(
        version=VERSION,
        voters=[
            voters_record.Voter(
                voter_id=member.id,
                voter_directory_id=member.directory_id,
                endpoints=[
                    voters_record.Endpoint(name=name, host=host, port=port)
                    for name, host, port in member.listeners
                ],
                kraft_version_feature=voters_record.KRaftVersionFeature(
                    min_supported_version=member.min_kraft_version,
                    max_supported_version=member.max_kraft_version,
                ),
            )
            for member in members
        ],
    )
    return ControlType.KRAFT_VOTERS, _value(message)


def parse_voters(value: bytes) -> tuple[VoterNode, ...]:
    record = decode(voters_record.VotersRecord, VERSION, value)
    return tuple(
        VoterNode(
            each.voter_id,
            each.voter_directory_id,
            tuple((endpoint.name, endpoint.host, endpoint.port) for endpoint in each.endpoints),
            each.kraft_version_feature.min_supported_version if each.kraft_version_feature else 0,
            each.kraft_version_feature.max_supported_version if each.kraft_version_feature else 0,
        )
        for each in record.voters
    )


def snapshot_header(last_contained_timestamp_ms: int) -> tuple[int, bytes]:
    message = SnapshotHeaderRecord(version=VERSION, last_contained_log_timestamp=last_contained_timestamp_ms)
    return ControlType.SNAPSHOT_HEADER, _value(message)


def parse_snapshot_header(value: bytes) -> int:
    return decode(SnapshotHeaderRecord, VERSION, value).last_contained_log_timestamp


def snapshot_footer() -> tuple[int, bytes]:
    return ControlType.SNAPSHOT_FOOTER, _value(SnapshotFooterRecord(version=VERSION))
