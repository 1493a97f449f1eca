"""The patient author who also knows share groups and groups with heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interop_tests.raw.excused import NOT_SENT_OF_SHARES
from interop_tests.raw.patient_author import PATIENT_MS, PatientAuthor
from kafkacompat._tests.fuzz.choices import Choices, one_of
from kafkacompat._tests.fuzz.sharing import SharingAuthor
from kafkacompat.api.registry import Entry

FETCHED_WITHIN_MS = 300
"""The first fetch of a share-partition waits until its state is loaded."""


class PatientSharer(PatientAuthor, SharingAuthor):
    """A share session has one partition: of several, an answer has those whose locks are free at that moment."""

    def __init__(self, choices: Choices, entries: Sequence[Entry]) -> None:
        super().__init__(choices, entries)
        self._not_sent = self._not_sent + NOT_SENT_OF_SHARES
        self._fetched: dict[tuple[str, str], tuple[bytes, int]] = {}
        """The partition of each session."""

    def _adjust(self, entry: Entry, message: Any) -> None:
        super()._adjust(entry, message)
        if entry.name == "ShareFetch":
            self._fetch_one(message)
            if not message.is_renew_ack:
                message.max_wait_ms = FETCHED_WITHIN_MS
        elif entry.name == "ConsumerGroupHeartbeat":
            # It is matched beside the answer, and the group has another epoch after that.
            message.subscribed_topic_regex = None
            if message.rebalance_timeout_ms > 0:
                message.rebalance_timeout_ms = PATIENT_MS

    def _fetch_one(self, message: Any) -> None:
        """Of a topic that exists: otherwise Kafka's answer is lost (docs/reference/compatibility.md)."""
        session = message.group_id or "", message.member_id or ""
        known = list(self.memory.topics.values())
        if message.share_session_epoch <= 0:
            self._fetched.pop(session, None)
        topics = []
        for topic in message.topics:
            if topic.topic_id not in known and known:
                topic.topic_id = one_of(self._choices, known)
            for partition in topic.partitions:
                place = topic.topic_id, partition.partition_index
                if topic.topic_id in known and self._fetched.setdefault(session, place) == place:
                    topic.partitions = [partition]
                    topics = [topic]
                    break
            if topics:
                break
        message.topics = topics
