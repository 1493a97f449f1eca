"""A cluster that mirrors follow: who leads what there, and one fetch in flight to each of its leaders.

The shell around following.py: it sends, waits and carries out. Its tasks end when nothing follows the cluster any more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.addresses import split_host_and_port
from kafkacompat.faults import report
from kafkacompat.mirror.following import BACKOFF_MS, EARLIEST, LATEST, MirrorFetches, Outcome
from kafkacompat.net.failures import ChannelError
from kafkacompat.tasks import WakeUp, Work, in_turns, pause
from kafkacompat.wire.errors import code_of
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import Uuid
    from kafkacompat.mirror.mirrored_partition import MirroredPartition
    from kafkacompat.mirror.traffic import MirrorTopicTraffic
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock
    from kafkacompat.tasks import Started, Tasks
    from kafkacompat.wire.messages.fetch_response import FetchResponse

logger = logging.getLogger(__name__)

CARRIED_OUT_US = 20
"""Of a partition of an answer, mostly a line in the log."""

REQUEST_TIMEOUT_MS = 30_000
METADATA_AGE_MS = 30_000
"""How often the source is asked for its leaders and for new partitions, without an occasion."""
CLUSTER = -1
TOLD_MAX = 5
"""Troubles in one line of the log."""
METADATA_PURPOSE, FETCH_PURPOSE = "mirror-metadata", "mirror-fetch"

Address = tuple[str, int]


class Channel(Protocol):
    """The parts of net.channels.Channel that are used here."""

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]: ...


class Channels(Protocol):
    """The parts of net.channels.Channels that are used here, and one more."""

    def get(self, host: str, port: int, purpose: str) -> Channel: ...

    def close_all(self) -> None: ...

    def renew(self) -> Deferred[None]:
        """New connections are made with the credentials and the stores that lie in the files now. Never fails."""
        ...


class SourceUnknown(Exception):
    """How to connect to the source cannot be read. The text has the reason, without secrets."""


def servers_of(bootstrap: str) -> list[Address]:
    """Those that have the form HOST:PORT."""
    return [found for each in bootstrap.split(",") if (found := split_host_and_port(each.strip()))]


class Source:
    """`add` and `remove` partitions. It connects with the first one, and closes its connections with the last one."""

    def __init__(
        self,
        bootstrap: str,
        tasks: Tasks,
        clock: Clock,
        hosted: HostedPartitions,
        connect: Callable[[str], Deferred[Channels]],
        grown: Callable[[str, int], None],
    ) -> None:
        """`connect` gives new channels to the cluster of these servers, and fails with SourceUnknown. `grown` is called with a
        topic and its number of partitions at the source, if this node leads the first one."""
        self.bootstrap = bootstrap
        self.fetches = MirrorFetches()
        self._tasks = tasks
        self._clock = clock
        self._hosted = hosted
        self._connect = connect
        self._grown = grown
        self._channels: Channels | None = None
        self._servers = servers_of(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._turn = 0
        """Which server is asked for metadata. The next one after each trouble."""
        self._lost = 0
        """Metadata requests without an answer in a row."""
        self._troubled = 0
        """Answers in a row that lack something."""
        self._looking: Started | None = None
        self._look = WakeUp(tasks)
        self._is_look_due = False
        """Since the last request for metadata began there was an occasion for another."""
        self._fetching: dict[int, tuple[Started, WakeUp]] = {}
        self._told: dict[int, str] = {}
        """The last trouble with each leader and with the cluster (CLUSTER), which is logged once while it lasts."""

    def add(self, core: Partition, topic_id: Uuid, traffic: MirrorTopicTraffic) -> None:
        self.fetches.add(core, topic_id, traffic)
        followed = self.fetches.partitions[core.topic_partition]
        if followed.failed is not None:
            self._tell_failed(followed)
        elif self._looking is None or self._looking.done:
            self._looking = self._tasks.start(f"mirroring {self.bootstrap}", self._run())
        else:
            self._look_soon()

    def remove(self, core: Partition) -> None:
        self.fetches.remove(core)
        if not self.fetches.partitions:
            self.close()

    def close(self) -> None:
        for task, _ in self._fetching.values():
            task.cancel()
        self._fetching.clear()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._disconnect()

    def _disconnect(self) -> None:
        if self._channels is not None:
            self._channels.close_all()
            self._channels = None

    # Metadata.

    def _look_soon(self) -> None:
        self._is_look_due = True
        self._look.call()

    async def _run(self) -> None:
        await self._tasks.sleep(0)  # the same image may add more partitions
        while self.fetches.partitions:
            asked_ms = self._clock.monotonic_ms()
            self._is_look_due = False
            try:
                is_known = await self._take_metadata()
            except Exception as error:
                report(f"mirroring {self.bootstrap}", error)
                is_known = False
            # Occasions come in numbers while a leader of the source is away.
            await self._tasks.sleep(BACKOFF_MS)
            if is_known and not self._is_look_due:
                await self._look.wait(asked_ms + METADATA_AGE_MS - self._clock.monotonic_ms())

    async def _take_metadata(self) -> bool:
        names = [MetadataRequestTopic(name=name) for name in self.fetches.topics()]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        servers = [*self._servers, *self._brokers.values()]
        if not servers:
            self._tell(CLUSTER, "no server has the form HOST:PORT")
            return False
        host, port = servers[self._turn % len(servers)]
        try:
            if self._channels is None:
                self._channels = await self._connect(self.bootstrap)
            else:
                await self._channels.renew()
            response = await self._channels.get(host, port, METADATA_PURPOSE).request(
                request, REQUEST_TIMEOUT_MS
            )
        except (ChannelError, OSError, SourceUnknown) as error:
            self._turn += 1
            self._lost += 1
            if self._lost <= len(servers):  # each one has its own text
                self._tell(CLUSTER, str(error))
            if self._lost % len(servers) == 0:
                self._disconnect()  # the credentials may be others now
            return False
        self._lost = 0
        self._brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        outcome = Outcome()
        grown = await in_turns(self.fetches.take_metadata_in_turns(response, outcome))
        for topic, count in grown.items():
            self._grown(topic, count)
        trouble = "; ".join(outcome.notes[:TOLD_MAX])
        if len(outcome.notes) > TOLD_MAX:
            trouble += f"; and {len(outcome.notes) - TOLD_MAX} more"
        outcome.notes = []
        self._tell(CLUSTER, trouble)
        self._troubled = self._troubled + 1 if trouble else 0
        if trouble:
            self._turn += 1  # other brokers there may know more
        await self._carry_out(outcome)
        for leader in sorted(self.fetches.leaders() & self._brokers.keys()):
            running = self._fetching.get(leader)
            if running is None or running[0].done:
                wake_up = WakeUp(self._tasks)
                task = self._tasks.start(
                    f"mirroring from node {leader} of {self.bootstrap}", self._fetch(leader, wake_up)
                )
                self._fetching[leader] = task, wake_up
            else:
                running[1].call()
        # When all of them have been asked it is so, as with a topic that is deleted there.
        return not trouble or self._troubled > len(servers)

    def _tell(self, who: int, trouble: str) -> None:
        known = self._told.get(who, "")
        if trouble == known:
            return
        if trouble:
            logger.warning("[Mirror source=%s] %s", self.bootstrap, trouble)
        else:
            name = "the cluster" if who == CLUSTER else f"node {who}"
            logger.info("[Mirror source=%s] %s answers again", self.bootstrap, name)
        self._told[who] = trouble

    def _tell_failed(self, followed: MirroredPartition) -> None:
        logger.error(
            "[Mirror source=%s] Partition %s does not follow: %s",
            self.bootstrap,
            followed.name,
            followed.failed,
        )

    # Fetches.

    async def _fetch(self, leader: int, wake_up: WakeUp) -> None:
        """Ends when nothing follows that leader."""
        while leader in self.fetches.leaders():
            try:
                await self._fetch_once(leader, wake_up)
            except Exception as error:
                # Whatever the error is: partitions would not be followed any more.
                report(f"mirroring from node {leader} of {self.bootstrap}", error)
                self.fetches.lost(leader, self._clock.monotonic_ms())
                await self._tasks.sleep(BACKOFF_MS)

    async def _fetch_once(self, leader: int, wake_up: WakeUp) -> None:
        request = self.fetches.build(leader, self._clock.monotonic_ms())
        address = self._brokers.get(leader)
        if request is None or address is None or self._channels is None:
            due_ms = self.fetches.next_due_ms(leader)
            now_ms = self._clock.monotonic_ms()
            await wake_up.wait(BACKOFF_MS if due_ms is None else max(1, due_ms - now_ms))
            return
        channel = self._channels.get(*address, FETCH_PURPOSE)
        try:
            response = await channel.request(request, REQUEST_TIMEOUT_MS)
        except (ChannelError, OSError) as error:
            self._tell(leader, str(error))
            self.fetches.lost(leader, self._clock.monotonic_ms())
            self._look_soon()
            return
        self._tell(leader, code_of(response.error_code).name if response.error_code else "")
        outcome = Outcome()
        await in_turns(self._taking(leader, response, outcome))
        await self._carry_out(outcome)
        left = outcome.out_of_range
        for timestamp in (LATEST, EARLIEST):
            if left:
                left = await self._settle(channel, left, timestamp)

    def _taking(self, leader: int, response: FetchResponse, outcome: Outcome) -> Work[None]:
        """The followers here get what is appended before the rest of the response is."""
        for cost in self.fetches.take_in_turns(leader, response, self._clock.monotonic_ms(), outcome):
            self._pass_on(outcome)
            yield cost

    async def _settle(
        self, channel: Channel, asked: list[MirroredPartition], timestamp: int
    ) -> list[MirroredPartition]:
        """Returns the partitions for which the source's start is needed."""
        ids = {followed.name.topic: followed.topic_id for followed in asked}
        try:
            response = await channel.request(
                self.fetches.offsets_request(asked, timestamp), REQUEST_TIMEOUT_MS
            )
            # Offsets are asked for by name. Of a topic that was made again they would truncate the mirror of the former one.
            # Whoever still has the former one now had it when it answered.
            told = await channel.request(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name) for name in sorted(ids)],
                    allow_auto_topic_creation=False,
                ),
                REQUEST_TIMEOUT_MS,
            )
        except (ChannelError, OSError) as error:
            logger.info("[Mirror source=%s] offsets: %s", self.bootstrap, error)
            for followed in asked:
                self.fetches.resolved(followed, self._clock.monotonic_ms() + BACKOFF_MS)
            return []
        there = {topic.name: topic.topic_id for topic in told.topics if not topic.error_code}
        response.topics = [topic for topic in response.topics if there.get(topic.name) == ids.get(topic.name)]
        outcome = Outcome()
        left = await in_turns(
            self.fetches.take_offsets(asked, timestamp, response, self._clock.monotonic_ms(), outcome)
        )
        await self._carry_out(outcome)
        return left

    async def _carry_out(self, outcome: Outcome) -> None:
        """An answer may have something of every partition that the leader has lost."""
        self._pass_on(outcome)
        if outcome.needs_metadata:
            self._look_soon()
        for core, failure in outcome.broken:
            self._hosted.storage_failed(core, failure)
        for note in outcome.notes:
            logger.info("[Mirror source=%s] %s", self.bootstrap, note)
            await pause(CARRIED_OUT_US)
        for followed, problem in outcome.bugs:
            report(f"mirroring {followed.name}", problem)
            await pause(CARRIED_OUT_US)
        for followed in outcome.failed:
            self._tell_failed(followed)
            await pause(CARRIED_OUT_US)
        for followed in outcome.truncated:
            self._tasks.start(f"truncating {followed.name}", self._resume(followed))
            await pause(CARRIED_OUT_US)

    def _pass_on(self, outcome: Outcome) -> None:
        for core in dict.fromkeys(outcome.appended):
            if core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
                self._hosted.advanced(core)
            if not core.alone:
                self._hosted.wakeups.appended(core)
        outcome.appended.clear()

    async def _resume(self, followed: MirroredPartition) -> None:
        """Go on with a truncated log when its checkpoints are correct, as a follower does."""
        await self._hosted.when_true(followed.core)
        self.fetches.resolved(followed)
        running = self._fetching.get(followed.leader)
        if running is not None:
            running[1].call()
