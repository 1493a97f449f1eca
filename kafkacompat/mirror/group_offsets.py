"""The offsets that groups have committed at a source, committed here too while the topics follow (Kafka: MirrorCheckpointTask).

Each broker copies for the groups that it coordinates, in rounds: it lists the groups of each broker of the source, asks for their
offsets, and commits what differs here. Batches have the same offsets and leader epochs in both clusters, so an offset is copied
as it is, with its leader epoch and its metadata.

- Only groups of a kind that commits offsets: classic ones of consumers, consumer groups and streams groups.
- Only topics that follow this source. Whether they still do is looked at right before the commit, and whether the source's topic
  has still the id of the one that is followed, after its offsets were read.
- No offset above the high watermark here: its records may never come. It is copied in a later round.
- A group with members here refuses the commit, as any from outside, and keeps its own offsets.

Offsets without members expire, so from time to time all are committed again, as long as the source has them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from kafkacompat.faults import report
from kafkacompat.ids import TopicPartition, uuid_to_text
from kafkacompat.mirror.source import REQUEST_TIMEOUT_MS, SourceUnknown, servers_of
from kafkacompat.net.failures import ChannelError
from kafkacompat.tasks import Pace, Work, in_turns, pieces
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafkacompat.deferred import Deferred
    from kafkacompat.mirror.source import Channel, Channels
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Started, Tasks
    from kafkacompat.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
    from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse
    from kafkacompat.wire.messages.offset_fetch_response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartitions,
    )

logger = logging.getLogger(__name__)

ROUND_MS = 10_000
"""From the end of one round to the next."""
GROUPS_A_REQUEST = 20
NAMES_VERSION_MAX = 9
"""From version 10 on, OffsetFetch names topics by id, and they have another one here."""
PURPOSE = "mirror-groups"
KINDS = frozenset({"", "classic", "consumer", "streams"})
PROTOCOLS = frozenset({"", "consumer", "streams"})
COMPARED_A_STEP = 500
COMPARED_US = 2

Place = tuple[str, int]


class Groups(Protocol):
    """The groups that this broker coordinates."""

    def coordinates(self, group: str) -> bool:
        """Whether it does. If no broker does, because there is no topic for it, the topic is asked for."""
        ...

    def fetch(self, request: OffsetFetchRequest) -> Deferred[OffsetFetchResponse]: ...

    def commit(self, request: OffsetCommitRequest) -> Deferred[OffsetCommitResponse]: ...

    def ends(self, partitions: Collection[TopicPartition]) -> Deferred[Mapping[TopicPartition, int]]:
        """The high watermarks of those partitions of which they can be known."""
        ...

    def retention_ms(self) -> int:
        """How long offsets of a group without members are kept."""
        ...


Offsets = dict[Place, OffsetCommitRequestPartition]


def commit_of(fetched: OffsetFetchResponsePartitions) -> OffsetCommitRequestPartition:
    """What a group has committed for a partition, as it is committed here. It is compared as a whole."""
    return OffsetCommitRequestPartition(
        partition_index=fetched.partition_index,
        committed_offset=fetched.committed_offset,
        committed_leader_epoch=fetched.committed_leader_epoch,
        committed_metadata=fetched.metadata or "",
    )


def has_offsets(group: ListedGroup) -> bool:
    return group.group_type.lower() in KINDS and group.protocol_type in PROTOCOLS


def groups_to_copy(response: ListGroupsResponse, coordinates: Callable[[str], bool]) -> Work[list[str]]:
    pace = Pace(COMPARED_A_STEP)
    found: list[str] = []
    for each in response.groups:
        if has_offsets(each) and coordinates(each.group_id):
            found.append(each.group_id)
        if pace.is_over():
            yield COMPARED_A_STEP * COMPARED_US
    return found


def offsets_of(answer: OffsetFetchResponseGroup, topics: Collection[str], pace: Pace) -> Work[Offsets]:
    """The offsets of these topics."""
    found: Offsets = {}
    for topic in answer.topics:
        if topic.name not in topics:
            continue
        for each in topic.partitions:
            if each.error_code == ErrorCode.NONE and each.committed_offset >= 0:
                found[topic.name, each.partition_index] = commit_of(each)
            if pace.is_over():
                yield COMPARED_A_STEP * COMPARED_US
    return found


def wanted_offsets(
    theirs: OffsetFetchResponse, ours: OffsetFetchResponse, topics: Collection[str], *, all_again: bool
) -> Work[dict[str, Offsets]]:
    """What is to be committed here, by group: the offsets that differ. `all_again`: the others too."""
    pace = Pace(COMPARED_A_STEP)
    known: dict[str, Offsets] = {}
    for group in ours.groups:
        if group.error_code == ErrorCode.NONE:
            known[group.group_id] = yield from offsets_of(group, topics, pace)
    wanted: dict[str, Offsets] = {}
    for group in theirs.groups:
        here = known.get(group.group_id)
        if group.error_code != ErrorCode.NONE or here is None:
            continue
        there = yield from offsets_of(group, topics, pace)
        offsets = {place: value for place, value in there.items() if all_again or here.get(place) != value}
        if offsets:
            wanted[group.group_id] = offsets
    return wanted


def commit_request(
    group: str, offsets: Offsets, ends: Mapping[TopicPartition, int], topics: Collection[str]
) -> OffsetCommitRequest | None:
    """Without members, and without what is not mirrored, or is not here yet. None if that is all."""
    parts: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), value in offsets.items():
        if name in topics and value.committed_offset <= ends.get(TopicPartition(name, index), -1):
            parts.setdefault(name, OffsetCommitRequestTopic(name=name)).partitions.append(value)
    return OffsetCommitRequest(group_id=group, topics=list(parts.values())) if parts else None


class GroupOffsets:
    """The rounds of all sources. Call `follow` when topics begin to follow, or end, and `close` once."""

    def __init__(
        self,
        tasks: Tasks,
        clock: Clock,
        connect: Callable[[str], Deferred[Channels]],
        groups: Groups,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._connect = connect
        self._groups = groups
        self._sources: dict[str, str] = {}
        """By topic."""
        self._topics: dict[str, dict[str, str]] = {}
        """Those that follow a source, by its servers, with their ids there."""
        self._rounds: dict[str, Rounds] = {}
        self.copied = 0
        """Offsets that were committed here."""

    def follow(self, topic: str, source: str | None, topic_id: str = "") -> None:
        """`topic_id`: of the topic at the source, as text. Without a source it follows no more."""
        former = self._sources.pop(topic, None)
        if former is not None and former != source:
            del self._topics[former][topic]
            if not self._topics[former]:
                del self._topics[former]
                self._rounds.pop(former).close()
        if source is None:
            return
        self._sources[topic] = source
        topics = self._topics.setdefault(source, {})
        topics[topic] = topic_id
        if source not in self._rounds:
            self._rounds[source] = Rounds(
                source, topics, self._tasks, self._clock, self._connect, self._groups, self._count
            )

    def _count(self, copied: int) -> None:
        self.copied += copied

    def close(self) -> None:
        for each in self._rounds.values():
            each.close()
        self._rounds.clear()
        self._topics.clear()
        self._sources.clear()


class Rounds:
    """Of one source. Call `close` once."""

    def __init__(
        self,
        source: str,
        topics: Mapping[str, str],
        tasks: Tasks,
        clock: Clock,
        connect: Callable[[str], Deferred[Channels]],
        groups: Groups,
        count: Callable[[int], None],
    ) -> None:
        """`topics`: those that follow the source, at any time, with their ids there. `count` is told how many offsets were
        committed."""
        self._source = source
        self._topics = topics
        self._tasks = tasks
        self._clock = clock
        self._connect = connect
        self._groups = groups
        self._count = count
        self._servers = servers_of(source)
        self._turn = 0
        self._channels: Channels | None = None
        self._renewed_ms = clock.monotonic_ms()
        self._told = ""
        """The last trouble, which is logged once while it lasts."""
        self._running: Started = tasks.start(f"following groups of {source}", self._run())

    def close(self) -> None:
        self._running.cancel()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._channels is not None:
            self._channels.close_all()
            self._channels = None

    async def _run(self) -> None:
        while True:
            await self._tasks.sleep(ROUND_MS)
            try:
                trouble = await self._round()
            except (ChannelError, OSError, SourceUnknown) as error:
                trouble = str(error)
                self._turn += 1
                self._disconnect()  # the credentials may be others now
            except Exception as error:  # the next round may be well
                report(f"following groups of {self._source}", error)
                self._disconnect()
                continue
            if trouble and trouble != self._told:
                logger.warning("[Mirror source=%s] Offsets of groups: %s", self._source, trouble)
            elif not trouble and self._told:
                logger.info("[Mirror source=%s] Offsets of groups are copied again", self._source)
            self._told = trouble

    async def _round(self) -> str:
        """Returns the last trouble, or "". Raises what ends the round."""
        if not self._servers:
            return "no server has the form HOST:PORT"
        if self._channels is None:
            self._channels = await self._connect(self._source)
        else:
            await self._channels.renew()
        channels = self._channels
        server = self._servers[self._turn % len(self._servers)]
        metadata = await channels.get(*server, PURPOSE).request(
            MetadataRequest(topics=[], allow_auto_topic_creation=False), REQUEST_TIMEOUT_MS
        )
        now_ms = self._clock.monotonic_ms()
        all_again = now_ms - self._renewed_ms >= self._groups.retention_ms() // 4
        trouble = ""
        for broker in metadata.brokers:
            channel = channels.get(broker.host, broker.port, PURPOSE)
            try:
                trouble = await self._copy_all(channel, all_again=all_again) or trouble
            except ChannelError as error:  # groups of the other brokers are copied
                trouble = str(error)
        if all_again:  # also with trouble, which may stay; what expires differs, and is copied anew
            self._renewed_ms = now_ms
        return trouble

    async def _copy_all(self, channel: Channel, *, all_again: bool) -> str:
        """Copy what the groups of a broker have."""
        listed = await channel.request(ListGroupsRequest(), REQUEST_TIMEOUT_MS)
        trouble = ""
        if listed.error_code != ErrorCode.NONE:
            return f"the source answers {code_of(listed.error_code).name} to a request for its groups"
        ours = await in_turns(groups_to_copy(listed, self._groups.coordinates))
        for names in pieces(ours, GROUPS_A_REQUEST):
            trouble = await self._copy(channel, names, all_again=all_again) or trouble
        return trouble

    async def _copy(self, channel: Channel, names: Sequence[str], *, all_again: bool) -> str:
        theirs = await channel.request(
            _fetch_request(names), REQUEST_TIMEOUT_MS, max_version=NAMES_VERSION_MAX
        )
        here = await self._groups.fetch(_fetch_request(names))
        wanted = await in_turns(wanted_offsets(theirs, here, self._topics, all_again=all_again))
        trouble = next(
            (
                f"the source answers {code_of(each.error_code).name} for group {each.group_id}"
                for each in theirs.groups
                if each.error_code != ErrorCode.NONE
            ),
            "",
        )
        if not wanted:
            return trouble
        places = {TopicPartition(*place): None for offsets in wanted.values() for place in offsets}
        ids = await self._ids(channel, dict.fromkeys(place.topic for place in places))
        ends = await self._groups.ends(places)
        for group, offsets in wanted.items():
            topics = [name for name, there in ids.items() if self._topics.get(name) == there]
            request = commit_request(group, offsets, ends, topics)
            if request is not None:
                codes = _codes(await self._groups.commit(request))
                self._count(codes.count(ErrorCode.NONE))
                refused = [code.name for code in codes if code not in EXPECTED]
                trouble = f"group {group} here: {refused[0]}" if refused else trouble
        return trouble

    async def _ids(self, channel: Channel, names: Iterable[str]) -> dict[str, str]:
        """Of topics at the source, as far as they are there."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        answer = await channel.request(request, REQUEST_TIMEOUT_MS)
        return {
            topic.name: uuid_to_text(topic.topic_id)
            for topic in answer.topics
            if topic.name is not None and topic.error_code == ErrorCode.NONE
        }


def _fetch_request(names: Sequence[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=None) for each in names])


EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""The group has members here, or is being moved to another broker."""


def _codes(answer: OffsetCommitResponse) -> list[ErrorCode]:
    return [code_of(each.error_code) for topic in answer.topics for each in topic.partitions]
