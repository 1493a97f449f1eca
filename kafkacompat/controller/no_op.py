"""The record that says nothing: the active controller writes one at an interval (KIP-835).

So the last record of the metadata log is never old, and its age shows whether a node follows the log. As in Apache Kafka it
is also written while other records are.

A full disk that refuses it does not end the leadership. Equal disks with equal logs fill at the same time, and then no
voter could write the vote for a successor: an idle cluster would have no controller. The next change hands over. Apache
Kafka's controllers halt on a full disk.
"""

from __future__ import annotations

from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import MetadataRecord
from kafkacompat.controller.result import ControllerResult
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.messages.no_op_record import NoOpRecord

AFTER_FAILURE_MS = 60_000
"""Delay after a record that could not be written, because each attempt is logged. Nobody misses the record."""


def no_op_interval_ms(settings: ControllerSettings) -> int | None:
    """metadata.max.idle.interval.ms. None if it is 0: no such records."""
    return settings.static.get_int("metadata.max.idle.interval.ms") or None


def write_no_op_record(
    image: MetadataImage, settings: ControllerSettings
) -> Work[ControllerResult[MetadataRecord, bool]]:
    """Every supported metadata.version knows the record. False: one is enough."""
    return ControllerResult((MetadataRecord(NoOpRecord(), 0),), False)
    yield TURN_COST
