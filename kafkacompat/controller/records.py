"""Metadata records and their frame: uvarint 1, uvarint type, uvarint version, flexible message body.

It converts bytes to (type, message) and back, and maps types to message classes. Merge rules are unknown here. All
classes are imported together, at the start: a committed record cannot wait for a descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message

FRAME_VERSION = 1
MAX_RECORDS_PER_OPERATION = 10_000
"""Kafka's bound for the records of one user operation."""
MAX_RECORDS_PER_BATCH = 10_000
"""Kafka's bound for the records of a batch that need not be atomic."""

_MODULES: dict[int, tuple[str, str]] = {
    0: ("register_broker_record", "RegisterBrokerRecord"),
    1: ("unregister_broker_record", "UnregisterBrokerRecord"),
    2: ("topic_record", "TopicRecord"),
    3: ("partition_record", "PartitionRecord"),
    4: ("config_record", "ConfigRecord"),
    5: ("partition_change_record", "PartitionChangeRecord"),
    7: ("fence_broker_record", "FenceBrokerRecord"),
    8: ("unfence_broker_record", "UnfenceBrokerRecord"),
    9: ("remove_topic_record", "RemoveTopicRecord"),
    10: ("delegation_token_record", "DelegationTokenRecord"),
    11: ("user_scram_credential_record", "UserScramCredentialRecord"),
    12: ("feature_level_record", "FeatureLevelRecord"),
    14: ("client_quota_record", "ClientQuotaRecord"),
    15: ("producer_ids_record", "ProducerIdsRecord"),
    17: ("broker_registration_change_record", "BrokerRegistrationChangeRecord"),
    18: ("access_control_entry_record", "AccessControlEntryRecord"),
    19: ("remove_access_control_entry_record", "RemoveAccessControlEntryRecord"),
    20: ("no_op_record", "NoOpRecord"),
    21: ("zk_migration_state_record", "ZkMigrationStateRecord"),
    22: ("remove_user_scram_credential_record", "RemoveUserScramCredentialRecord"),
    23: ("begin_transaction_record", "BeginTransactionRecord"),
    24: ("end_transaction_record", "EndTransactionRecord"),
    25: ("abort_transaction_record", "AbortTransactionRecord"),
    26: ("remove_delegation_token_record", "RemoveDelegationTokenRecord"),
    27: ("register_controller_record", "RegisterControllerRecord"),
    28: ("clear_elr_record", "ClearElrRecord"),
}


class ReplayError(Exception):
    """The metadata log has a record that contradicts earlier ones, or that 4.3 does not know. Fatal."""


class MetadataRecord(NamedTuple):
    """A record and its version."""

    message: Message
    version: int


class RecordClasses:
    """Message classes by record type."""

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        self._classes: dict[int, type[Message]] = {
            key: getattr(import_module(f"kafkacompat.wire.messages.{module}"), name)
            for key, (module, name) in _MODULES.items()
        }

    def get(self, api_key: int) -> type[Message]:
        """Raises ReplayError for a type that Kafka 4.3 does not have."""
        found = self._classes.get(api_key)
        if found is None:
            raise ReplayError(f"metadata record type {api_key} is unknown to this software")
        return found


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 28:
            raise ReplayError("a metadata record's frame is cut short or broken")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


def frame(record: MetadataRecord) -> bytes:
    message, version = record
    assert message.API_KEY is not None
    return b"\x01" + _uvarint(message.API_KEY) + _uvarint(version) + encode(message, version)


def frame_all(records: Sequence[MetadataRecord]) -> list[bytes]:
    return [frame(record) for record in records]


def unframe(value: bytes, classes: RecordClasses) -> tuple[int, Message]:
    """(type, message). Raises ReplayError for a frame, type or version that Kafka 4.3 does not have."""
    if len(value) >= 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        api_key, version, position = value[1], value[2], 3
    else:
        frame_version, position = _read_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise ReplayError(f"a metadata record has frame version {frame_version}; only 1 is known")
        api_key, position = _read_uvarint(value, position)
        version, position = _read_uvarint(value, position)
    message_class = classes.get(api_key)
    if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
        raise ReplayError(
            f"{message_class.__name__} has version {version}, which this software does not know"
        )
    try:
        return api_key, decode(message_class, version, value, position)
    except WireError as error:
        raise ReplayError(f"a {message_class.__name__} of the metadata log is broken: {error}") from error
