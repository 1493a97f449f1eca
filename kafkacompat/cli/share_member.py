"""A member of a share group (KIP-932): it reports to the coordinator, which assigns partitions.

Several members may have the same partition. The one thread of the command calls `tend` between two steps of its work.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Sequence

from kafkacompat.cli.trouble import Trouble
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import COORDINATOR_RETRIABLE, check, error_name
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_to_text
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

JOIN_EPOCH, LEAVE_EPOCH = 0, -1
RETRY_S = 0.5
UNASSIGNED_HEARTBEAT_S = 0.5
"""A new member gets its first partitions with a later heartbeat, so it does not wait for a whole interval."""
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

TopicPartition = tuple[bytes, int]
"""A topic's id and a partition."""


class ShareMember:
    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        """Raises CommandFailed if the cluster has no share groups."""
        if not cluster.any().serves(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest.MIN_VERSION):
            raise CommandFailed("the broker serves no share groups")
        self._cluster = cluster
        self.group = group
        self._topics = list(topics)
        self.member_id = uuid_to_text(uuid.uuid4().bytes)
        self._epoch = JOIN_EPOCH
        self._heartbeat_at = 0.0
        self._trouble = Trouble()
        self._idle = Trouble()
        self.assignment: frozenset[TopicPartition] = frozenset()

    def tend(self) -> None:
        """Send a heartbeat if it is due. It is sent again later if no coordinator answers."""
        now = time.monotonic()
        if now < self._heartbeat_at:
            return
        self._heartbeat_at = now + RETRY_S
        try:
            answer = self._ask(self._epoch)
        except BrokerAway as away:
            self._trouble.tell(str(away))
            return
        code = answer.error_code
        if code in COORDINATOR_RETRIABLE:
            self._trouble.tell(f"group {self.group}: {error_name(code)}")
            return
        self._trouble.end()
        if code in REJOIN:
            # The group went on without this member. It joins again, and keeps its partitions until it gets others.
            self._epoch, self._heartbeat_at = JOIN_EPOCH, now
            return
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise CommandFailed(f"group {self.group} is not a share group")
        check(code, f"group {self.group}", answer.error_message)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assignment = frozenset(
                (topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            )
        if self.assignment:
            self._idle.end()
        else:
            self._idle.tell(
                f"group {self.group} has no partition for this worker yet (if that lasts, the brokers' logs tell why its "
                "state cannot be kept)"
            )
        interval_s = answer.heartbeat_interval_ms / 1000
        self._heartbeat_at = now + (interval_s if self.assignment else UNASSIGNED_HEARTBEAT_S)

    def leave(self) -> None:
        """Leave the group. If no coordinator answers, the group drops the member when its session ends."""
        if self._epoch > JOIN_EPOCH:
            self._epoch = JOIN_EPOCH
            with contextlib.suppress(BrokerAway):
                self._ask(LEAVE_EPOCH)

    def _ask(self, epoch: int) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=self._topics if epoch == JOIN_EPOCH else None,
        )
        return self._cluster.coordinator_call(
            self.group,
            request,
            ShareGroupHeartbeatResponse,
            lambda answer: answer.error_code,
            within_s=0,
        )
