"""The small text files of a log directory: offset checkpoints, leader epochs, partition.metadata, the clean-shutdown
mark.

The functions format and parse their text. A file that does not parse raises CheckpointCorrupt. The callers decide: as in
Kafka, a start goes on without the recovery points or log starts of such a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from kafkacompat.ids import TopicPartition, Uuid, parse_int, uuid_from_text, uuid_to_text
from kafkacompat.tasks import at_once, sorted_in_steps

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
REMOTE_CLEANING = "remote-cleaning"
"""The folder of a partition with segments of the remote storage that are being cleaned. Apache Kafka does not look into it."""
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
SYNC_FAILED_FILE = "sync-failed"
"""kafkacompat's own empty file in a partition's directory. It says: read the data after the recovery point from the
disk, not from the page cache."""


class CheckpointCorrupt(ValueError):
    """The text is not a checkpoint of version 0."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """One line of topic, partition and offset for each partition, sorted so that equal states give equal bytes."""
    # One call of `sorted` in a worker would stop the loop's thread until its end.
    ordered = at_once(sorted_in_steps(offsets.items()))
    return _format(f"{topic} {partition} {offset}" for (topic, partition), offset in ordered)


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    result = {}
    for line in _parse(data):
        try:
            topic, partition, offset = line.split(" ")
            result[TopicPartition(topic, parse_int(partition))] = parse_int(offset, 63)
        except ValueError as error:
            raise CheckpointCorrupt(f"{line!r} is not a topic, a partition and an offset") from error
    return result


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Format (epoch, start offset) pairs, given in ascending order."""
    return _format(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """Parse (epoch, start offset) pairs. The file is not synced with every change, so a crash may cut it: it must end
    with a complete line."""
    if data and not data.endswith(b"\n"):
        raise CheckpointCorrupt("the last line has no end")
    result = []
    for line in _parse(data):
        try:
            epoch, start_offset = line.split(" ")
            result.append((parse_int(epoch), parse_int(start_offset, 63)))
        except ValueError as error:
            raise CheckpointCorrupt(f"{line!r} is not an epoch and an offset") from error
    return result


def format_partition_metadata(topic_id: Uuid) -> bytes:
    """The file's bytes, without a final newline as in Kafka."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def parse_partition_metadata(data: bytes) -> Uuid:
    lines = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    if lines.get("version") != "0" or "topic_id" not in lines:
        raise CheckpointCorrupt("partition.metadata has no version 0 and topic_id")
    try:
        return uuid_from_text(lines["topic_id"].strip())
    except ValueError as error:
        raise CheckpointCorrupt(str(error)) from error


def format_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode("ascii")


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch of the clean shutdown. -1 if it cannot be read, or if an older release left an empty file."""
    try:
        content = json.loads(data)
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


def _format(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in ("0", len(body), *body)).encode("utf-8")


def _parse(data: bytes) -> list[str]:
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(str(error)) from error
    if not lines:
        return []
    if lines[0] != "0":
        raise CheckpointCorrupt(f"version {lines[0]!r} of a checkpoint is unknown")
    if len(lines) < 2 or not lines[1].isascii() or not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
        raise CheckpointCorrupt("a checkpoint's count does not match its lines")
    return lines[2:]
