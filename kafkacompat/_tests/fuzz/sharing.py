"""An author who also knows share groups and groups with heartbeats: it joins them, opens share sessions and acquires records.

It is another one than Author, because the same seed has other requests here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from kafkacompat.api.registry import Entry

from .author import WEIGHTS, Author
from .choices import Choices, happens, one_of
from .memory import ALIASES, SUBJECTS_KEPT, MemberKnown, Memory, learn_member
from .values import GROUPS, LEARNED, LONG, POOLS, TOPICS, Vocabulary

SHARE_GROUP = "shared"
SHARE_MEMBERS = ("AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw", "AAAAAAAAAAAAAAAAAAAABA")
"""Their names are ids."""
SHARING_SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.record.lock.duration.ms": "15000",
}
"""Of a node by itself. Otherwise the states of share-partitions have no topic."""
SESSIONS_KEPT = 200
HEARTBEATS = {"ConsumerGroupHeartbeat", "ShareGroupHeartbeat"}
SHARE_SESSIONS = {"ShareFetch", "ShareAcknowledge"}
OFFSETS = ("first_offset", "last_offset", "start_offset")
ALL_GROUPS = (*GROUPS, SHARE_GROUP)
SHARING = Vocabulary(
    POOLS
    | {
        "group_id": ALL_GROUPS,
        "groups": ALL_GROUPS,
        "groups_names": ALL_GROUPS,
        "group_ids": ALL_GROUPS,
        "share_session_epoch": (0, 0, 1, 1, 2, 3, -1, 2**31 - 1, -2),
        "acknowledge_types": (1, 1, 1, 1, 2, 3, 4, 0, 5, -1),
        "first_offset": (0, 0, 0, 1, 2, 3, 5, -1, 2**63 - 1),
        "last_offset": (0, 0, 1, 2, 3, 5, 9, -1, 2**63 - 1),
        "start_offset": (0, 0, 1, 2, 5, -1, 2**63 - 1),
        "max_records": (500, 500, 1, 2, 0, -1, 2**31 - 1),
        "batch_size": (500, 1, 2, 0, -1),
        "share_acquire_mode": (0, 0, 1, 2, -1),
        "state_epoch": (0, 0, 1, 2, 3, -1),
        "delivery_state": (0, 0, 2, 4, 1, 3, -1, 127),
        "delivery_count": (1, 1, 2, 5, 0, -1, 32767),
        "subscribed_topic_names": TOPICS,
        "subscribed_topic_regex": ("t.*", "t[01]", "", "(", ".*", "(a+)+$", "t{1000}"),
        "server_assignor": ("range", "uniform", "", "x"),
        "instance_id": ("i0", "i1", "", LONG),
    },
    LEARNED | dict.fromkeys(OFFSETS, "offset"),
)


class SharingMemory(Memory):
    aliases = ALIASES | dict.fromkeys(OFFSETS, "offset")

    def __init__(self) -> None:
        super().__init__()
        self.sharers: deque[MemberKnown] = deque(maxlen=SUBJECTS_KEPT)
        """Members of share groups."""
        self.share_sessions: dict[tuple[str, str], int] = {}
        """The epoch that comes next, of group and member."""

    def learn(self, request: Any, response: Any) -> None:
        super().learn(request, response)
        name = type(response).__name__
        if name in ("ConsumerGroupHeartbeatResponse", "ShareGroupHeartbeatResponse"):
            if response.member_id and not response.error_code:
                members = self.sharers if name.startswith("Share") else self.members
                learn_member(members, request.group_id, response.member_id, response.member_epoch)
        elif name in ("ShareFetchResponse", "ShareAcknowledgeResponse"):
            self._share_session(request, response)
        elif name == "DeleteTopicsResponse":
            gone = {topic.name for topic in response.responses if not topic.error_code}
            self.topics = {known: each for known, each in self.topics.items() if known not in gone}

    def _share_session(self, request: Any, response: Any) -> None:
        """The last epoch ends the session, and after an error it begins anew."""
        session = request.group_id, request.member_id
        epoch = request.share_session_epoch
        if response.error_code or epoch < 0 or len(self.share_sessions) > SESSIONS_KEPT:
            self.share_sessions.pop(session, None)
        else:
            self.share_sessions[session] = epoch + 1


class SharingAuthor(Author):
    memory: SharingMemory
    weights = WEIGHTS | {
        "ConsumerGroupHeartbeat": 4,
        "ShareGroupHeartbeat": 5,
        "ShareFetch": 8,
        "ShareAcknowledge": 4,
    }
    vocabulary = SHARING
    make_memory = SharingMemory
    _is_of_shares = False

    def _members_for(self, entry: Entry) -> Sequence[MemberKnown]:
        self._is_of_shares = "Share" in entry.name
        return self.memory.sharers if self._is_of_shares else super()._members_for(entry)

    def _of_subject(self, name: str) -> Any:
        member = self._member
        if member is not None:
            if name == "member_epoch":
                return member.generation_id
            if name == "share_session_epoch":
                return self.memory.share_sessions.get((member.group_id, member.member_id), 0)
        elif self._is_of_shares:
            if name == "group_id":
                return SHARE_GROUP
            if name == "member_id":
                return one_of(self._choices, SHARE_MEMBERS)
        return super()._of_subject(name)

    def _adjust(self, entry: Entry, message: Any) -> None:
        super()._adjust(entry, message)
        if entry.name in HEARTBEATS and happens(self._choices, 200):
            join_or_stay(self._choices, message)
        elif (
            entry.name in SHARE_SESSIONS and message.share_session_epoch <= 0 and happens(self._choices, 200)
        ):
            acknowledge_nothing(message)


MAY_CHANGE = ("subscribed_topic_names", "server_assignor")
"""What a member that stays may tell anew. It repeats no other field of a heartbeat that may be absent."""


def join_or_stay(choices: Choices, heartbeat: Any) -> None:
    """As a client would: whoever joins tells everything, whoever stays repeats nothing."""
    if heartbeat.member_epoch > 0:
        default = type(heartbeat)()
        for name in type(heartbeat).__slots__:
            if name not in MAY_CHANGE and getattr(default, name) is None:
                setattr(heartbeat, name, None)
        return
    heartbeat.member_epoch = 0
    heartbeat.member_id = heartbeat.member_id or one_of(choices, SHARE_MEMBERS)
    heartbeat.subscribed_topic_names = heartbeat.subscribed_topic_names or [one_of(choices, TOPICS)]
    if hasattr(heartbeat, "rebalance_timeout_ms"):
        heartbeat.rebalance_timeout_ms = 5_000
        heartbeat.topic_partitions = []
        heartbeat.server_assignor = None


def acknowledge_nothing(message: Any) -> None:
    """Nothing is acquired before a session begins."""
    for topic in message.topics:
        for partition in topic.partitions:
            partition.acknowledgement_batches = []
