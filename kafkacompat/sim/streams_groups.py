"""A simulated Kafka Streams application (KIP-1071): the members of one streams group in several processes, and who administers it.

The members heartbeat, run tasks in their roles, commit for the active ones, leave, vanish, are silent, and come back, some
with an instance id and some with an older or a newer topology. Source topics come late, grow, and are deleted and made anew.
The application is shut down by a member, and upgraded: its group is deleted, and it comes back with another topology. When
internal topics do not fit any more, they are deleted, as Kafka's reset tool does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.controller.features import ELIGIBLE_LEADER_REPLICAS_VERSION, default_levels
from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.administrators import UPGRADE
from kafkacompat.sim.clients import GROUP, TIMEOUT_MS, Client, CoordinatorConnection
from kafkacompat.sim.cluster_options import (
    APPLICATION,
    LATE,
    REPLICATION_FACTOR,
    TOPIC,
    is_of_application,
)
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.group_clients import AWAY_MS, GROUP_SESSION_MS
from kafkacompat.sim.group_oracles import GroupHistory, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE
from kafkacompat.sim.modern_members import LEAVES, REBALANCE_MS, SURE_SHARE, ModernMember
from kafkacompat.sim.streams_model import Task, layout_of, misfits, parts_of, topology_of
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
)
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.counters import StreamsGroupCounters
    from kafkacompat.sim.oracles import ClusterOracles

ACTIVE, STANDBY, WARMUP = ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
Role = tuple[str, str, int]
"""One of ROLES, subtopology id, partition."""
(
    STALE_TOPOLOGY,
    MISSING_SOURCE_TOPICS,
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    SHUTDOWN_APPLICATION,
    ASSIGNMENT_DELAYED,
) = range(6)
COUNTED = {
    STALE_TOPOLOGY: "stale_topologies",
    MISSING_SOURCE_TOPICS: "source_topics_missing",
    INCORRECTLY_PARTITIONED_TOPICS: "incorrectly_partitioned",
    MISSING_INTERNAL_TOPICS: "internal_topics_missing",
    ASSIGNMENT_DELAYED: "delayed",
}
LOOK_MS, AGAIN_MS = 150, 300


class StreamsMember(ModernMember[Role]):
    """It owns tasks in roles. A task that it shall have in another role it takes up after it has given up the former."""

    counters: StreamsGroupCounters

    def __init__(
        self,
        links: Links,
        client_id: int,
        application: Application,
        process_id: str,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        ledger, owners, counters = application.ledger, application.owners, application.counters
        super().__init__(links, client_id, ledger, owners, counters, instance_id, is_twin=is_twin)
        self._application = application
        self.process_id = process_id
        self.version = 0
        """Of the topology that it has."""
        self._on_disk: dict[Task, int] = {}
        """The offset in the state of tasks that it has had."""
        self._endpoints_epoch = -1
        self.is_waiting = False
        """Whether it is gone until the application goes on."""

    # What it tells, and is told.

    def draw_another(self) -> None:
        newest = self._application.version
        self.version, self._endpoints_epoch = newest, -1
        if not self.env.is_calm and self._application.may_change:
            kind = self.chance.uniform()
            self.version = newest + 1 if kind < 0.06 else max(0, newest - 1) if kind < 0.25 else newest

    def heartbeat_request(self) -> StreamsGroupHeartbeatRequest:
        request = self.leave_request(self.epoch)
        request.endpoint_information_epoch = self._endpoints_epoch
        if self.epoch == 0:
            request.topology = topology_of(self.env.options, self.version)
            request.rebalance_timeout_ms = REBALANCE_MS
            request.process_id = self.process_id
            if self.env.options.streams_endpoints:
                request.user_endpoint = Endpoint(host=f"client{self.id}", port=9000 + self.id % 100)
        if self._tells_all or self._told_owned != self.owned:
            for role, tasks in self._running().items():
                setattr(request, role, tasks)
        if self._on_disk and self.chance.happens(0.5 if self.epoch == 0 else 0.15):
            self.counters.offsets_told += 1
            self._on_disk = {task: each + self.chance.randrange(3) for task, each in self._on_disk.items()}
            request.task_offsets = self._offsets(0)
            request.task_end_offsets = self._offsets(self.chance.randrange(5))
        if self._application.takes_shutdown(self):
            request.shutdown_application = True
        return request

    def _running(self) -> dict[str, list[TaskIds]]:
        """What it has of its tasks, by role."""
        running: dict[str, dict[str, list[int]]] = {role: {} for role in ROLES}
        for role, subtopology_id, partition in sorted(filter(self._runs, self.owned)):
            running[role].setdefault(subtopology_id, []).append(partition)
        return {
            role: [TaskIds(subtopology_id=each, partitions=partitions) for each, partitions in tasks.items()]
            for role, tasks in running.items()
        }

    def _runs(self, part: Role) -> bool:
        """Whether the task runs in this role. It does not before another role is given up, and until then the coordinator may
        take it back."""
        return part in self._to_revoke or all((role, *part[1:]) not in self._to_revoke for role in ROLES)

    def _offsets(self, more: int) -> list[TaskOffset]:
        return [
            TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset + more)
            for (subtopology_id, partition), offset in sorted(self._on_disk.items())
        ]

    def leave_request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )

    def told(self, answer: Any) -> set[Role] | None:
        self._endpoints_epoch = answer.endpoint_information_epoch
        self.counters.endpoints_told += bool(answer.partitions_by_user_endpoint)
        for status in answer.status or ():
            self._hear(status.status_code, status.status_detail)
        if answer.active_tasks is None:
            return None
        told = {
            (role, tasks.subtopology_id, partition)
            for role in ROLES
            for tasks in getattr(answer, role)
            for partition in tasks.partitions
        }
        new = told - self.owned
        self.counters.standbys += sum(role == STANDBY for role, _, _ in new)
        self.counters.promoted += sum(
            role == ACTIVE and (STANDBY, *task) in self.owned for role, *task in new
        )
        for _, subtopology_id, partition in sorted(new):
            part = parts_of(self.env.options, self.version).get(subtopology_id)
            if part is not None and part.changelog is not None:
                self._on_disk.setdefault((subtopology_id, partition), 0)
        return told

    def _hear(self, status: int, detail: str) -> None:
        if status in COUNTED:
            name = COUNTED[status]
            setattr(self.counters, name, getattr(self.counters, name) + 1)
        self.env.topics_wanted += status == MISSING_INTERNAL_TOPICS
        self.counters.creations_failed += "Creation failed" in detail
        if status == SHUTDOWN_APPLICATION:
            self._application.shut_down()

    def refused_in_another_way(self, error: ErrorCode) -> None:
        if error is ErrorCode.UNSUPPORTED_VERSION and self.env.options.streams_from_level:
            self.counters.unsupported += 1
            self._be_away()
        elif error is ErrorCode.UNKNOWN_SERVER_ERROR and self.env.options.streams_endpoints:
            # As in Kafka nobody can be told of endpoints while topics are missing. The client gives up.
            self._be_away()
        elif error is ErrorCode.INVALID_REQUEST and self.epoch:
            self.counters.tasks_refused += 1
            self._vanish()
        elif error is ErrorCode.INVALID_REQUEST and self._application.may_change:
            self.counters.topologies_refused += 1
            self._application.refused(self.version)
            self._be_away()
        else:
            super().refused_in_another_way(error)

    # What it commits for.

    def partitions(self) -> AbstractSet[Key]:
        parts = parts_of(self.env.options, self.version)
        layout = self.layout({name for part in parts.values() for name in part.inputs})
        found = set()
        for subtopology_id, partition in self.alone(self.owned):
            part = parts.get(subtopology_id)
            for name in () if part is None else part.inputs:
                topic_id, count = layout.get(name, (b"", 0))
                if partition < count:
                    found.add((topic_id, partition))
        return found

    def alone(self, parts: AbstractSet[Role]) -> AbstractSet[Task]:
        return {part[1:] for part in parts if part[0] == ACTIVE and self._runs(part)}

    def part_of(self, partition: Key) -> Task:
        name = self.env.metadata.names[partition[0]]
        parts = parts_of(self.env.options, self.version)
        return next(each for each, part in parts.items() if name in part.inputs), partition[1]

    # When the application stops, its members leave and wait.

    def _act(self) -> None:
        if self._application.is_stopped and self.epoch:
            if self.chance.happens(0.2):
                self._vanish()
            else:
                self._send_leave(LEAVES, self._be_away)
        elif (
            self.is_alone and self.owned and not self.env.is_over_for_producers and self.chance.happens(0.08)
        ):
            self._leave()
        else:
            super()._act()

    def _beat(self) -> None:
        self.is_waiting = self._application.is_stopped and self.epoch == 0
        if self.is_waiting:
            self.later(self._beat, LOOK_MS)
            self.version = self._application.version
            return
        super()._beat()


class Application(Client):
    """Who runs it: stops it and lets it go on, and takes care of its topics."""

    def __init__(self, links: Links, client_id: int, counters: StreamsGroupCounters) -> None:
        super().__init__(links, client_id)
        options = links.env.options
        self.counters = counters
        self.ledger = GroupHistory(APPLICATION)
        self.owners = Owners(APPLICATION, int(GROUP_SESSION_MS * 1000 * SURE_SHARE))
        self.version = 0
        self.members: list[StreamsMember] = []
        self.is_stopped = False
        self._is_group_to_be_deleted = False
        self._shutdown_at_us = -1
        """When a member shall ask for the end of the application. -1: none."""
        self.may_change = options.streams_upgrade_ms > 0
        self._has_late = not options.streams_late
        self._has_levels = not options.streams_from_level
        self._coordinator = CoordinatorConnection(self, GROUP, APPLICATION, GROUP_PURPOSE)
        self._is_deleting = False

    def start(self) -> None:
        super().start()
        options = self.env.options
        if options.streams_late:
            self.call_after(self.chance.between(500, 4_000), self._create_late)
        if options.streams_upgrade_ms:
            self.later(self._upgrade, 2 * options.streams_upgrade_ms)
        if options.streams_from_level:
            self.call_after(self.chance.between(1_000, 6_000), self._raise_levels)
        self._plan_shutdown()
        self.later(self._look, LOOK_MS)

    # Stops.

    def _plan_shutdown(self) -> None:
        self._shutdown_at_us = -1
        if self.env.options.streams_shutdown_ms and not self.env.is_calm:
            wait_ms = self.chance.between(1_000, 2 * self.env.options.streams_shutdown_ms)
            self._shutdown_at_us = self.env.scheduler.now_us + 1000 * wait_ms

    def takes_shutdown(self, member: StreamsMember) -> bool:
        """Whether this member asks for the end of the application now."""
        now_us = self.env.scheduler.now_us
        if self.env.is_calm or not 0 <= self._shutdown_at_us <= now_us or not member.epoch:
            return False
        self._plan_shutdown()
        return True

    def shut_down(self) -> None:
        if not self.is_stopped:
            self.counters.shut_down += 1
            self._stop()

    def _upgrade(self) -> None:
        if self.env.is_calm:
            return
        self.later(self._upgrade, 2 * self.env.options.streams_upgrade_ms)
        if not self.is_stopped:
            self._is_group_to_be_deleted = True
            self.version += 1
            self.counters.upgrades += 1
            self._stop()

    def refused(self, version: int) -> None:
        """The group has another topology than that of the present version, which a late member has told."""
        if version == self.version and not self.is_stopped:
            self._is_group_to_be_deleted = True
            self._stop()

    def _stop(self) -> None:
        self.is_stopped = True
        self.later(self._go_on, LOOK_MS)

    def _go_on(self) -> None:
        if not all(each.is_waiting or each.is_retired for each in self.members):
            self.later(self._go_on, LOOK_MS)
        elif self._is_group_to_be_deleted:
            self._delete_group()
        else:
            self.is_stopped = False

    def _delete_group(self) -> None:
        self.ledger.settled.clear()

        def answered(done: Deferred[Any]) -> None:
            try:
                error = done.result().results[0].error_code
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                self._is_group_to_be_deleted = False
                self.env.counters.groups_deleted += error == ErrorCode.NONE
            else:
                self._coordinator.forget()
            self.call_after(1 + self.chance.randrange(AWAY_MS), self._go_on)

        request = DeleteGroupsRequest(groups_names=[APPLICATION])
        self._coordinator.send(request, lambda: True, answered)

    # Features.

    def _raise_levels(self) -> None:
        """As `kafkacompat features upgrade` does it, until all are raised."""
        features = self.env.metadata.newest.features
        wanted = {
            name: level
            for name, level in default_levels()
            if level > features.get(name, 0) and name != ELIGIBLE_LEADER_REPLICAS_VERSION
        }
        if not wanted:
            self._has_levels = True
            self.counters.levels_raised += 1
            return
        self.env.topics_wanted += 1
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=UPGRADE)
            for name, level in wanted.items()
        ]
        request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates)
        self.ask(self.any_broker(), request, "application").on_done(
            lambda _: self.later(self._raise_levels, AGAIN_MS)
        )

    # Topics.

    def _create_late(self) -> None:
        topic = CreatableTopic(
            name=LATE, num_partitions=self.env.options.partitions, replication_factor=REPLICATION_FACTOR
        )

        def created(done: Deferred[Any]) -> None:
            if _error_of(done, "topics") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._has_late = True
                self.env.topics.add(LATE)
                self.refresh()
            else:
                self.later(self._create_late, AGAIN_MS)

        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "application").on_done(created)

    def _look(self) -> None:
        """Help the application when its topics do not fit. Not at once."""
        image = self.env.metadata.newest
        if not self._is_deleting and self.chance.happens(0.2):
            layout = layout_of(self.env.options, self.version, image)
            if misfits(layout, image):
                self._reset(image)
            elif self._is_behind(image):
                self._grow(len(image.topics[TOPIC].partitions))
        self.later(self._look, 2 * LOOK_MS)

    def _is_behind(self, image: MetadataImage) -> bool:
        """Whether the partner of the first topic has fewer partitions."""
        return (
            self.env.options.streams_late == "paired"
            and LATE in image.topics
            and TOPIC in image.topics
            and len(image.topics[LATE].partitions) < len(image.topics[TOPIC].partitions)
        )

    def _grow(self, count: int) -> None:
        more = CreatePartitionsTopic(name=LATE, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "application").on_done(self._looked)

    def _reset(self, image: MetadataImage) -> None:
        """Delete the internal topics, by their ids."""
        self.counters.resets += 1
        states = [
            DeleteTopicState(name=None, topic_id=topic.id)
            for name, topic in image.topics.items()
            if is_of_application(name)
        ]
        self._is_deleting = True
        request = DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "application").on_done(self._looked)

    def _looked(self, _: Deferred[Any]) -> None:
        """Whatever was not done is done at a later look."""
        self.env.topics_wanted += 1
        self._is_deleting = False

    @property
    def is_settled(self) -> bool:
        return self._has_late and self._has_levels and not self.is_stopped


def _error_of(done: Deferred[Any], rows: str) -> int:
    try:
        code: int = getattr(done.result(), rows)[0].error_code
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return code


class StreamsGroups:
    def __init__(self, links: Links, first_id: int, oracles: ClusterOracles) -> None:
        options = links.env.options
        self.counters = oracles.streams_counters
        self._env = links.env
        self._oracle = oracles.streams
        self.application = Application(links, first_id, self.counters)
        instances: list[str | None] = [f"static-{each}" for each in range(options.streams_static_members)]
        members = self.application.members
        for number in range(options.streams_members):
            process = f"process-{number % max(1, options.streams_processes)}"
            instance_id = instances[number] if number < len(instances) else None
            members.append(
                StreamsMember(links, first_id + 1 + number, self.application, process, instance_id)
            )
        if options.streams_twin and members:
            members.append(
                StreamsMember(
                    links,
                    first_id + 1 + len(members),
                    self.application,
                    members[0].process_id,
                    instances[0],
                    is_twin=True,
                )
            )
        shared = Counter(each.instance_id for each in members)
        for each in members:
            each.is_alone = each.instance_id is not None and shared[each.instance_id] == 1

    @property
    def clients(self) -> list[Client]:
        members = self.application.members
        return [self.application, *members] if members else []

    def missing(self, image: MetadataImage) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if self._oracle is None:
            return None
        everyone = self.application.members
        members = [each for each in everyone if not each.is_twin]
        if not self.application.is_settled:
            return "the application is stopped, or lacks a topic"
        if not all(each.is_retired for each in everyone if each.is_twin):
            return "not all twins have gone"
        owned = {each.id: sorted(each.owned) for each in members}
        if not all(each.is_settled for each in members):
            return f"not all members are settled, {owned} are owned"
        group = self._oracle.group()
        if group is None:
            return "no coordinator has the group"
        layout = layout_of(self._env.options, group.topology_epoch, image)
        lacking = [name for name in layout.internal if name not in image.topics]
        if lacking or misfits(layout, image) or not layout.tasks:
            return f"internal topics {lacking} are missing, {misfits(layout, image)} do not fit: {layout}"
        return (
            self._oracle.at_rest(group, {each.member_id: each.owned for each in members})
            or self._unlike(layout.tasks, group.topology_epoch, members)
            or (
                None
                if all(each.has_read_at_last or not each.partitions() for each in members)
                else "members have not read what was committed"
            )
        )

    def _unlike(self, counts: Mapping[str, int], version: int, members: list[StreamsMember]) -> str | None:
        """Compare what the members own with the tasks that there are."""
        wanted = sorted((each, index) for each, count in counts.items() for index in range(count))
        owned = {each.id: sorted(each.owned) for each in members}
        active = sorted(task for each in members for task in each.alone(each.owned))
        if active != wanted:
            return f"of {wanted} the members own {owned}"
        processes = len({each.process_id for each in members})
        standbys = min(self._env.options.streams_standbys, processes - 1)
        parts = parts_of(self._env.options, version)
        stateful = [task for task in wanted if parts[task[0]].changelog is not None]
        found = sorted(
            tuple(task) for each in members for role, *task in each.owned if role in (STANDBY, WARMUP)
        )
        if found != sorted(stateful * standbys):
            return f"each of {stateful} has {standbys} standbys, the members own {owned}"
        return None
