"""Two simulated clusters of which one mirrors topics of the other: who creates the mirrors, lets them take over and turn back, and
the clients of these topics.

The administrator asks both clusters as `kafkacompat mirror` does, and uses that command's rules. What it decides follows from what
is committed in both clusters, because a request without an answer may still be carried out, much later. Writers write wherever a
topic takes records: for a while in both clusters. A group commits offsets there, and is looked at in the other cluster.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from kafkacompat.cli.mirror import (
    CLEANUP,
    refuse_to_turn_back,
    settings_to_follow,
)
from kafkacompat.config.topic import (
    MIRROR_LEADER_EPOCH,
    MIRROR_STATE,
    MIRROR_TOPIC_ID,
    MIRRORING,
    PAUSED,
    STOPPED,
)
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import NO_LEADER, uuid_to_text
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.sim.administrators import configs_of, settings_request
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import (
    FENCED_FOR_GOOD,
    GROUP,
    PRODUCE_TIMEOUT_MS,
    TIMEOUT_MS,
    Client,
    CoordinatorConnection,
)
from kafkacompat.sim.cluster_options import (
    MIRRORED,
    REMADE,
    REPLICATION_FACTOR,
    draw_cluster_options,
    is_mirrored,
    mirror_shape,
)
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.faults.machines import Cuts
from kafkacompat.sim.links import BROKER_PORT, host_name
from kafkacompat.sim.mirror_oracles import MirrorOracles
from kafkacompat.sim.processes import CoroutineRun
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.controller.image import TopicImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.sim.links import Links
    from kafkacompat.sim.partition_history import PartitionHistory
    from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic

OTHER_SEED = 1_000_003
"""What the second cluster draws from is the seed and this."""
OTHER_IDS = 10
"""The second cluster's nodes have ids above this."""
ADMINISTRATOR_ID, WRITER_ID, GROUP_ID, READER_ID = 20_000, 20_001, 20_002, 20_003
MOST_PARTITIONS = 3
POLL_MS = 300
FIRST_CUT_US = 4_000_000
GROUP_NAME = "mirrored-group"


class Site:
    """One of the clusters, as the administrator and the oracles know it."""

    def __init__(self, cluster: ClusterSimulation, name: str) -> None:
        oracles = cluster.oracles.mirrors
        assert oracles is not None
        self.name = name
        self.env = cluster.env
        self.oracles: MirrorOracles = oracles
        self.ledgers: dict[Key, PartitionHistory] = oracles.ledgers
        self.servers = ",".join(f"{host_name(each)}:{BROKER_PORT}" for each in cluster.env.options.brokers)
        self.hand = Client(cluster.links, ADMINISTRATOR_ID)
        self.writer = MirrorWriter(cluster.links, WRITER_ID, self)
        self.group = MirroredGroup(cluster.links, GROUP_ID, self)

    @property
    def clients(self) -> tuple[Client, ...]:
        return self.writer, self.group

    def topic(self, name: str) -> TopicImage | None:
        return self.env.metadata.newest.topics.get(name)

    def settings(self, name: str) -> Mapping[str, str]:
        return self.env.metadata.newest.config(ConfigResourceType.TOPIC, name)

    def state(self, name: str) -> str:
        """STOPPED of any topic that takes records, and "" without the topic."""
        return "" if self.topic(name) is None else self.settings(name).get(MIRROR_STATE, STOPPED)

    def first_epoch(self, name: str) -> int:
        return int(self.settings(name).get(MIRROR_LEADER_EPOCH, "0"))

    def end(self, topic: TopicImage, partition: int) -> int:
        ledger = self.ledgers.get((topic.id, partition))
        return 0 if ledger is None else ledger.end

    async def ask(self, request: Any) -> Any:
        return await self.hand.ask(self.hand.any_broker(), request, "mirrors")

    async def describe(self, name: str) -> MetadataResponseTopic:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        topic: MetadataResponseTopic = (await self.ask(asked)).topics[0]
        if topic.error_code:
            raise CommandFailed(f"topic {name}: {topic.error_code}")
        return topic

    async def values(self, name: str, *names: str) -> dict[str, str]:
        resource = DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=list(names)
        )
        (result,) = (await self.ask(DescribeConfigsRequest(resources=[resource]))).results
        if result.error_code:
            raise CommandFailed(f"settings of {name}: {result.error_code}")
        return {each.name: each.value or "" for each in result.configs}


class Lane:
    """One partition of a writer."""

    __slots__ = ("count", "is_idle", "producer_id", "records", "sequence")

    def __init__(self) -> None:
        self.producer_id = -1
        """-1: none. Each time the topic begins to take records here there is another one."""
        self.sequence = 0
        self.count = 0
        self.records = b""
        """The batch in flight."""
        self.is_idle = False


class MirrorWriter(Client):
    """Writes to the partitions of a cluster while they take records. What it gets acknowledged is checked by the oracle of all
    clients, and stays in the ledgers."""

    def __init__(self, links: Links, client_id: int, site: Site) -> None:
        super().__init__(links, client_id)
        self._site = site
        self.lanes: dict[Key, Lane] = {}
        self.is_quiet = False
        """The administrator stops the source in order."""

    def found(self, key: Key) -> None:
        if is_mirrored(self.places[key].topic):
            self.lanes[key] = Lane()
            self._next(key)

    @property
    def waits(self) -> bool:
        """Whether something may be acknowledged still."""
        return any(lane.records for lane in self.lanes.values())

    def _takes_records(self, key: Key) -> bool:
        return self._site.state(self.places[key].topic) == STOPPED

    def _next(self, key: Key) -> None:
        lane = self.lanes[key]
        if self.env.metadata.is_deleted(key):
            del self.lanes[key]
            return
        if not self._takes_records(key):
            self._begin_anew(lane)
        elif lane.records:
            self._send(key, lane)
            return
        elif self.env.is_over_for_producers:
            lane.is_idle = True
            return
        elif lane.producer_id < 0 and not self.is_quiet:
            asked = self.ask(self.any_broker(), InitProducerIdRequest(transactional_id=None))
            asked.on_done(lambda done: self._identified(key, lane, done))
            return
        elif not self.is_quiet:
            lane.count = self.chance.between(1, 3)
            lane.records = bytes(
                build_batch(
                    [
                        Record(index, self.now_ms(), None, b"%d" % (lane.sequence + index), ())
                        for index in range(lane.count)
                    ],
                    producer_id=lane.producer_id,
                    producer_epoch=0,
                    base_sequence=lane.sequence,
                )
            )
            self._send(key, lane)
            return
        lane.is_idle = self.env.is_over_for_producers
        if not lane.is_idle:
            self.later(lambda: self._next(key), POLL_MS)

    @staticmethod
    def _begin_anew(lane: Lane) -> None:
        lane.producer_id, lane.sequence, lane.records = -1, 0, b""

    def _identified(self, key: Key, lane: Lane, done: Deferred[Any]) -> None:
        try:
            answer = done.result()
        except ChannelError:
            answer = None
        if answer is not None and not answer.error_code:
            lane.producer_id = answer.producer_id
        self.later(lambda: self._next(key))

    def _send(self, key: Key, lane: Lane) -> None:
        place = self.places[key]
        if place.leader == NO_LEADER:
            self.refresh()
            self.later(lambda: self._next(key))
            return
        data = PartitionProduceData(index=key[1], records=bytearray(lane.records))
        topic = TopicProduceData(name=place.topic, topic_id=key[0], partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])
        asked = self.ask(place.leader, request, f"produce {key[0].hex()} {key[1]}")
        asked.on_done(lambda done: self._answered(key, lane, done))

    def _answered(self, key: Key, lane: Lane, done: Deferred[Any]) -> None:
        try:
            error = done.result().responses[0].partition_responses[0].error_code
        except ChannelError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error == ErrorCode.NONE:
            lane.sequence += lane.count
            lane.records = b""
            self.later(lambda: self._next(key), self.env.options.mirror_ms // 2)
            return
        if error in FENCED_FOR_GOOD and lane.sequence == 0:
            raise Breach(
                "a producer is not taken for another one",
                f"{self.places[key]} answers the first batch of {lane.producer_id} with {ErrorCode(error).name}",
            )
        if error in FENCED_FOR_GOOD or error == ErrorCode.POLICY_VIOLATION:
            self._begin_anew(lane)  # the topic follows, or has followed since
        self.refresh()
        self.later(lambda: self._next(key), POLL_MS)


class MirroredGroup(Client):
    """Commits offsets of a group while the topic takes records here, and looks at them while it follows."""

    def __init__(self, links: Links, client_id: int, site: Site) -> None:
        super().__init__(links, client_id)
        self._site = site
        self._coordinator = CoordinatorConnection(self, GROUP, GROUP_NAME, "group")
        self.issued: dict[str, tuple[Site, int, int]] = {}
        """By the metadata of a commit: where, of which partition and with which offset it was sent. Shared by both clusters."""
        self.shown: dict[int, str] = {}
        """By partition: the metadata of what was committed, as last seen here."""
        self.looks = 0
        """Answers that were seen. Compare two clusters only by what was seen after a time."""

    def start(self) -> None:
        self._plan()

    def _plan(self) -> None:
        self.later(self._act, self.env.options.mirror_ms)

    def _act(self) -> None:
        self._plan()
        topic = self._site.topic(MIRRORED)
        if topic is None:
            return
        is_over = self.env.is_over_for_producers
        if self._site.state(MIRRORED) == STOPPED and not is_over and self.chance.happens(0.5):
            self._commit(topic)
        else:
            self._look(topic)

    def _commit(self, topic: TopicImage) -> None:
        partition = self.chance.randrange(len(topic.partitions))
        offset = self.chance.between(0, self._site.end(topic, partition))
        metadata = f"{len(self.issued)}"
        self.issued[metadata] = self._site, partition, offset
        row = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=GROUP_NAME,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(topic_id=topic.id, partitions=[row])],
        )
        self._coordinator.send(request, lambda: True, self._committed)

    def _committed(self, done: Deferred[Any]) -> None:
        try:
            error = done.result().topics[0].partitions[0].error_code
        except ChannelError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error:
            self._coordinator.forget()
        self._site.oracles.counters.commits += not error

    def _look(self, topic: TopicImage) -> None:
        group = OffsetFetchRequestGroup(group_id=GROUP_NAME, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        self._coordinator.send(request, lambda: True, lambda done: self._seen(topic, done))

    def _seen(self, asked: TopicImage, done: Deferred[Any]) -> None:
        try:
            group = done.result().groups[0]
        except ChannelError:
            self._coordinator.forget()
            return
        if group.error_code:
            self._coordinator.forget()
            return
        shown = {}
        for topic in group.topics:
            if topic.topic_id != asked.id:
                continue
            for each in topic.partitions:
                if each.error_code:
                    return
                if each.committed_offset >= 0:
                    shown[each.partition_index] = each.metadata
                    self._check(topic.topic_id, each)
        self.shown = shown
        self.looks += 1

    def _check(self, topic_id: bytes, committed: Any) -> None:
        partition, offset = committed.partition_index, committed.committed_offset
        where, of, number = self.issued[committed.metadata]
        told = f"{self._site.name} has {offset} of {MIRRORED}-{partition}, committed as {number} of {of} in {where.name}"
        if (partition, offset) != (of, number):
            raise Breach("offsets of groups are copied as they are", told)
        if where is self._site:
            return
        self._site.oracles.counters.offsets_copied += 1
        ledger = self._site.ledgers.get((topic_id, partition))
        if ledger is None or offset > ledger.end:
            raise Breach(
                "offsets of groups name what is here", f"{told}; it ends at {ledger.end if ledger else None}"
            )


class MirrorAdministrator(Client):
    """One process has a hand in each cluster."""

    def __init__(self, links: Links, sites: tuple[Site, Site]) -> None:
        super().__init__(links, READER_ID)
        self._sites = sites
        self._counters = sites[0].oracles.counters
        self._running: CoroutineRun[None] | None = None
        self._stopping: dict[str, Site] = {}
        """By topic: the mirror that takes over when it has everything."""

    def start(self) -> None:
        self._plan()

    def _plan(self) -> None:
        is_over = self.env.is_over_for_producers
        self.later(self._act, POLL_MS if is_over or self._stopping else 2 * self.env.options.mirror_ms)

    def _act(self) -> None:
        self._running = CoroutineRun(self._step_all(), lambda _: self._plan())

    async def _step_all(self) -> None:
        for topic in (MIRRORED, REMADE):
            try:
                await self._step(topic)
            except (ChannelError, CommandFailed):
                continue  # another step follows

    async def _step(self, topic: str) -> None:
        first, second = self._sites
        stopping = self._stopping.get(topic)
        if stopping is not None and stopping.state(topic) != MIRRORING:
            self._end_of_stopping(topic)
        states = first.state(topic), second.state(topic)
        is_over = self.env.is_over_for_producers
        if states == ("", ""):
            await self._create(first, topic, self.chance.between(1, 2), {})
        elif "" in states:
            missing, there = (first, second) if not states[0] else (second, first)
            if there.state(topic) == STOPPED:
                await self._create_mirror(missing, there, topic)
            else:
                await self._create(missing, topic, self.chance.between(1, 2), {})
        elif states == (STOPPED, STOPPED):
            here, there = sorted(self._sites, key=lambda site: site.first_epoch(topic))
            await self._turn_back(here, there, topic)
        elif STOPPED not in states:
            last = max(self._sites, key=lambda site: site.first_epoch(topic))
            await self._put(last, topic, MIRROR_STATE, STOPPED)  # a late request has made it a mirror again
        else:
            mirror, source = (first, second) if states[1] == STOPPED else (second, first)
            if mirror.settings(topic).get(MIRROR_TOPIC_ID) != uuid_to_text(_id_of(source, topic)):
                await self._delete(mirror, topic)
            elif mirror.state(topic) == PAUSED:
                await self._put(mirror, topic, MIRROR_STATE, MIRRORING)
            elif not is_over or topic in self._stopping:
                await self._change(mirror, source, topic)

    async def _change(self, mirror: Site, source: Site, topic: str) -> None:
        """A mirror that follows is paused, or takes over, or its source changes."""
        if self._stopping.get(topic) is mirror:
            if not self._has_everything(mirror, source, topic) and self.chance.happens(0.9):
                return
            await self._stop(mirror, source, topic)
            return
        kind, there = self.chance.uniform(), source.topic(topic)
        if topic == REMADE:
            if kind < 0.3 and source is self._sites[0]:
                await self._delete(source, topic)
                self._counters.remade += 1
        elif kind < 0.15:
            if there is not None and len(there.partitions) < MOST_PARTITIONS:
                more = CreatePartitionsTopic(name=topic, count=len(there.partitions) + 1, assignments=None)
                await source.ask(CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS))
                self._counters.grown += 1
        elif kind < 0.3:
            await self._put(mirror, topic, MIRROR_STATE, PAUSED)
            self._counters.pauses += 1
        elif kind < 0.5:
            await self._stop(mirror, source, topic)
        elif kind < 0.7:
            source.writer.is_quiet = True
            self._stopping[topic] = mirror

    async def _stop(self, mirror: Site, source: Site, topic: str) -> None:
        self._counters.stops += 1
        self._counters.stops_behind += not self._has_everything(mirror, source, topic)
        await self._put(mirror, topic, MIRROR_STATE, STOPPED)
        self._end_of_stopping(topic)

    def _end_of_stopping(self, topic: str) -> None:
        if self._stopping.pop(topic, None) is not None:
            for site in self._sites:
                site.writer.is_quiet = False

    def _has_everything(self, mirror: Site, source: Site, topic: str) -> bool:
        here, there = mirror.topic(topic), source.topic(topic)
        assert here is not None
        assert there is not None
        return not source.writer.waits and all(
            mirror.end(here, each) == source.end(there, each) for each in there.partitions
        )

    async def _create(self, site: Site, topic: str, partitions: int, settings: dict[str, str]) -> None:
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=REPLICATION_FACTOR,
            configs=configs_of(settings),
        )
        await site.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))

    async def _create_mirror(self, here: Site, there: Site, topic: str) -> None:
        described = await there.describe(topic)
        words = Namespace(mirror=here.name, source=there.servers)
        settings = settings_to_follow(words, described)
        await self._create(here, topic, len(described.partitions), settings)

    async def _delete(self, site: Site, topic: str) -> None:
        which = DeleteTopicState(name=None, topic_id=_id_of(site, topic))
        await site.ask(DeleteTopicsRequest(topics=[which], timeout_ms=TIMEOUT_MS))

    async def _put(self, site: Site, topic: str, name: str, value: str) -> None:
        await site.ask(settings_request(ConfigResourceType.TOPIC, topic, {name: value}))

    async def _turn_back(self, here: Site, there: Site, topic: str) -> None:
        own, theirs = await here.describe(topic), await there.describe(topic)
        own_values = await here.values(topic, MIRROR_STATE, CLEANUP)
        their_values = await there.values(topic, MIRROR_STATE, MIRROR_TOPIC_ID)
        try:
            refuse_to_turn_back(own, theirs, own_values, their_values)
        except CommandFailed:
            self._counters.turns_refused += 1
            if len(own.partitions) > len(theirs.partitions):
                await self._delete(here, topic)
            return
        settings = settings_to_follow(Namespace(mirror=here.name, source=there.servers), theirs)
        await here.ask(settings_request(ConfigResourceType.TOPIC, topic, settings))
        self._counters.turns += 1

    @staticmethod
    def _has_copied(mirror: Site, source: Site, there: TopicImage) -> bool:
        """What a group has committed in the mirror for a partition stays while the source has nothing. An offset of what the source
        has given up names no record."""
        issued = source.group.issued
        return all(
            mirror.group.shown.get(partition) == metadata
            for partition, metadata in source.group.shown.items()
            if issued[metadata][2] <= source.end(there, partition)
        )

    def missing(self) -> str | None:
        """What clusters at rest owe. None: nothing."""
        for topic in (MIRRORED, REMADE):
            states = [site.state(topic) for site in self._sites]
            if sorted(states) != sorted((MIRRORING, STOPPED)):
                return f"{topic} is {states} in the two clusters"
            mirror, source = sorted(self._sites, key=lambda site: site.state(topic))
            here, there = mirror.topic(topic), source.topic(topic)
            assert here is not None
            assert there is not None
            if mirror.settings(topic).get(MIRROR_TOPIC_ID) != uuid_to_text(there.id):
                return f"{topic} follows another topic than that of {source.name}"
            if len(here.partitions) != len(there.partitions):
                return f"{topic} has {len(here.partitions)} of {len(there.partitions)} partitions"
            for partition in there.partitions:
                name = f"{topic}-{partition}"
                own, theirs = (
                    site.ledgers.get((each.id, partition)) for site, each in ((mirror, here), (source, there))
                )
                if own is None or theirs is None or own.end != theirs.end:
                    ends = [None if each is None else each.end for each in (own, theirs)]
                    return f"{name} ends at {ends[0]} in {mirror.name}, and at {ends[1]} in {source.name}"
                if own.batches != theirs.batches:
                    raise Breach("a mirror is its source", f"{name} differs in {mirror.name}")
            if topic == MIRRORED and not self._has_copied(mirror, source, there):
                return (
                    f"offsets of the group are {mirror.group.shown}, and {source.group.shown} at the source"
                )
        if not all(lane.is_idle for site in self._sites for lane in site.writer.lanes.values()):
            return "a writer waits for an acknowledgement"
        return None


def _id_of(site: Site, topic: str) -> bytes:
    found = site.topic(topic)
    if found is None:
        raise CommandFailed(f"topic {topic} is deleted in {site.name}")
    return found.id


class MirrorSimulation(ClusterSimulation):
    """Two clusters in one run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, **mirror_shape(seed))
        other_seed = seed + OTHER_SEED
        drawn = draw_cluster_options(other_seed)
        ids = {
            "controllers": tuple(each + OTHER_IDS for each in drawn.controllers),
            "brokers": tuple(each + OTHER_IDS for each in drawn.brokers),
        }
        shape = {**mirror_shape(other_seed), "mirror_ms": self.env.options.mirror_ms, **ids}
        other = ClusterSimulation(other_seed, beside=self, **shape)
        self.clusters = self, other
        first, second = self.sites = Site(self, "site-a"), Site(other, "site-b")
        first.oracles.meet(second.oracles)
        second.group.issued = first.group.issued
        for cluster, site in zip(self.clusters, self.sites, strict=True):
            cluster.clients += site.clients
        self.mirrors = MirrorAdministrator(self.links, self.sites)
        self.clients.append(self.mirrors)
        self._cuts = Cuts(self.faults.control)
        self.env.scheduler.after(FIRST_CUT_US, self._cut_sites)

    def missing(self) -> str | None:
        return super().missing() or self.mirrors.missing()

    def _cut_sites(self, _: Any) -> None:
        control, options = self.faults.control, self.env.options
        if control.is_over:
            return
        others = [each.id for each in self.clusters[1].machines.ordered]
        if not control.spares and self._cuts.cut_off(others):
            control.count += 1
            self.sites[0].oracles.counters.sites_cut += 1
        mean_ms = 8 * options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * control.chance.uniform()))
        self.env.scheduler.after(delay_us, self._cut_sites)

    def check(self) -> None:
        for site in self.sites:
            site.oracles.check_once()
