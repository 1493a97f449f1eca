"""The content of a record as text: text or hex for any topic, named fields for the broker's internal topics.

Pure: bytes in, text out. A payload that does not match its topic's format is shown as bytes with the reason. Nothing
is raised, because users dump files that may be corrupt.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TypeAlias

from kafkacompat.ids import METADATA_TOPIC
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.record import Record, RecordMalformed
from kafkacompat.wire.apis import COORDINATOR_CLASSES, metadata_record_class
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.primitives import read_uvarint
from kafkacompat.wire.shown import as_hex, shown

Describe: TypeAlias = Callable[[Record, bool], str]
METADATA_FRAME_VERSION = 1
_INT16 = struct.Struct(">h")
_MARKER = struct.Struct(">hi")


class Unexplained(ValueError):
    """The bytes do not match the format of their topic."""


def describer(directory: str, values: str) -> Describe:
    """Return the function that shows the records of a partition's directory. values: 'auto', 'text' or 'hex'."""
    show = as_hex if values == "hex" else as_text
    topic = directory.rpartition("-")[0]
    if values == "auto" and topic == METADATA_TOPIC:
        payload: Callable[[Record], str] = metadata_payload
    elif values == "auto" and topic in COORDINATOR_CLASSES:
        classes = COORDINATOR_CLASSES[topic]

        def payload(record: Record) -> str:
            return coordinator_payload(record, classes)

    else:

        def payload(record: Record) -> str:
            headers = "".join(f" {name}={show(value)}" for name, value in record.headers)
            return f"key: {show(record.key)} payload: {show(record.value)}" + (
                f" headers:{headers}" if headers else ""
            )

    def describe(record: Record, is_control: bool) -> str:
        try:
            return control_payload(record) if is_control else payload(record)
        except (Unexplained, WireError, RecordMalformed, struct.error) as error:
            return f"key: {as_hex(record.key)} payload: {as_hex(record.value)} (not decoded: {error})"

    return describe


def as_text(data: bytes | None) -> str:
    """Return UTF-8 on one line. Line breaks and bytes that are not UTF-8 are escaped."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def metadata_payload(record: Record) -> str:
    """Return a record of __cluster_metadata: the varints of its frame, then the message."""
    if record.value is None:
        raise Unexplained("a metadata record without a value")
    frame, position = read_uvarint(record.value, 0)
    if frame != METADATA_FRAME_VERSION:
        raise Unexplained(f"frame version {frame}")
    kind, position = read_uvarint(record.value, position)
    version, position = read_uvarint(record.value, position)
    try:
        message_class = metadata_record_class(kind)
    except KeyError:
        raise Unexplained(f"metadata record type {kind}") from None
    return f"payload: {message_text(message_class, version, record.value, position)}"


def coordinator_payload(record: Record, classes: Callable[[int], tuple[type[Message], type[Message]]]) -> str:
    """Return a record of a coordinator's topic: the key starts with its type as int16, the value with its version as int16."""
    if record.key is None:
        raise Unexplained("a coordinator record without a key")
    (kind,) = _INT16.unpack_from(record.key)
    try:
        key_class, value_class = classes(kind)
    except KeyError:
        raise Unexplained(f"coordinator record type {kind}") from None
    key = message_text(key_class, key_class.MIN_VERSION, record.key, _INT16.size)
    if record.value is None:
        return f"key: {key} payload: null"
    (version,) = _INT16.unpack_from(record.value)
    return f"key: {key} payload: {message_text(value_class, version, record.value, _INT16.size)}"


def control_payload(record: Record) -> str:
    """Return the value of a control record: the end of a transaction, or a record of raft."""
    from kafkacompat.wire.messages.kraft_version_record import KRaftVersionRecord
    from kafkacompat.wire.messages.leader_change_message import LeaderChangeMessage
    from kafkacompat.wire.messages.snapshot_footer_record import SnapshotFooterRecord
    from kafkacompat.wire.messages.snapshot_header_record import SnapshotHeaderRecord
    from kafkacompat.wire.messages.voters_record import VotersRecord

    raft: dict[int, type[Message]] = {
        ControlType.LEADER_CHANGE: LeaderChangeMessage,
        ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
        ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
        ControlType.KRAFT_VERSION: KRaftVersionRecord,
        ControlType.KRAFT_VOTERS: VotersRecord,
    }
    kind = parse_control_key(record.key)
    value = record.value or b""
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f"coordinatorEpoch: {_MARKER.unpack_from(value)[1]}"
    if kind not in raft:
        raise Unexplained(f"control record type {kind}")
    # The message's first field is its version.
    (version,) = _INT16.unpack_from(value)
    return f"payload: {message_text(raft[kind], version, value, 0)}"


def message_text(message_class: type[Message], version: int, data: bytes, position: int) -> str:
    """Return the message as JSON, after its type and version."""
    if not message_class.MIN_VERSION <= version <= message_class.MAX_VERSION:
        raise Unexplained(f"{message_class.__name__} has no version {version}")
    return json.dumps(shown(message_class, version, data, position), ensure_ascii=False)
