"""Members of streams groups as Kafka Streams keeps them: they give up at once what they are no longer told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafkacompat.api.streams_group_describe import HANDLER as DESCRIBE
from kafkacompat.api.streams_group_heartbeat import HANDLER as HEARTBEAT
from kafkacompat.coordinator._tests.kit import LeadingCoordinator, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.create_topics_request import CreatableTopic
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

GROUP = "app"
CHANGELOG = "app-store-changelog"
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
TURNS_MAX = 20
Tasks = dict[str, list[int]]


def topology(*topics: str, epoch: int = 0, changelog: str | None = None) -> Topology:
    """One subtopology "0" that reads these topics, with a state if it has a changelog."""
    changelogs = [] if changelog is None else [TopicInfo(name=changelog)]
    return Topology(
        epoch=epoch,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=list(topics), state_changelog_topics=changelogs)
        ],
    )


class Creator:
    """AutoTopicCreator. It remembers the internal topics, which a test may publish."""

    def __init__(self) -> None:
        self.wanted: dict[str, CreatableTopic] = {}
        self.errors: dict[str, str] = {}

    def request(self, topics: Any, asker: Any = None) -> None: ...

    def create_streams_internal_topics(self, topics: Any, asker: Any, error_kept_ms: int) -> None:
        self.wanted |= {each.name: each for each in topics}

    def streams_creation_errors(self, names: Any) -> dict[str, str]:
        return {name: self.errors[name] for name in names if name in self.errors}


class StreamsWorld(LeadingCoordinator):
    """A coordinator with topics `t` (3 partitions) and `u` (1), which assigns at once."""

    def __init__(self, delay_ms: int = 0, interval_ms: int = 0, **node: Any) -> None:
        super().__init__(
            GroupSettings(),
            node={
                "group.streams.initial.rebalance.delay.ms": delay_ms,
                "group.streams.assignment.interval.ms": interval_ms,
                **{f"group.streams.{name}": value for name, value in node.items()},
            },
        )
        self.auto_create = Creator()  # type: ignore[assignment]
        self.has = {OFFSETS_TOPIC: 1, "t": 3, "u": 1}

    def create(self, **topics: int) -> None:
        """Publish more topics. An underscore stands for a dash."""
        self.has |= {name.replace("_", "-"): count for name, count in topics.items()}
        self.publish(
            [
                topic_image(name, count, name.encode()[-16:].rjust(16, b"\1"))
                for name, count in self.has.items()
            ]
        )
        self.time.advance(0)


def heartbeat(world: LeadingCoordinator, version: int = 1, **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
    answer = world.call_to_the_end(HEARTBEAT, request, version)
    world.time.advance(0)
    for _ in range(TURNS_MAX):
        if not isinstance(answer, Deferred) or answer.done:
            break
        world.time.advance(0)  # a large topology is read in steps
    return answer.result() if isinstance(answer, Deferred) and answer.done else answer


def described(world: LeadingCoordinator, *groups: str) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=list(groups or (GROUP,)))
    return world.call_to_the_end(DESCRIBE, request, 1).groups


class Streamer:
    """A client. `has` is what it runs, by role."""

    def __init__(
        self,
        world: LeadingCoordinator,
        member_id: str,
        told: Topology,
        process: str | None = None,
        instance: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.told = told
        self.process = process or member_id
        self.instance = instance
        self.epoch = 0
        self.has: dict[str, Tasks] = {role: {} for role in ROLES}

    def join(self, **fields: Any) -> Any:
        self.epoch, self.has = 0, {role: {} for role in ROLES}
        return self._send(topology=self.told, rebalance_timeout_ms=10_000, process_id=self.process, **fields)

    def beat(self, **fields: Any) -> Any:
        """Tells what it has."""
        return self._send(**fields)

    def settle(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.beat()

    def leave(self, epoch: int = -1) -> Any:
        return heartbeat(self.world, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance)

    @contextmanager
    def loses_answers(self) -> Iterator[None]:
        """The answers to what it sends inside do not arrive."""
        epoch, has = self.epoch, self.has
        yield
        self.epoch, self.has = epoch, has

    def _send(self, **fields: Any) -> Any:
        tasks = {
            role: [
                TaskIds(subtopology_id=each, partitions=list(some)) for each, some in self.has[role].items()
            ]
            for role in ROLES
        }
        answer = heartbeat(
            self.world,
            **{
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance,
                **tasks,
                **fields,
            },
        )
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            told = {role: getattr(answer, role) for role in ROLES if getattr(answer, role) is not None}
            self.has = self.has | {
                role: {each.subtopology_id: each.partitions for each in tasks} for role, tasks in told.items()
            }
        return answer

    @property
    def active(self) -> set[tuple[str, int]]:
        return tasks_of(self.has["active_tasks"])

    @property
    def standby(self) -> set[tuple[str, int]]:
        return tasks_of(self.has["standby_tasks"])


def tasks_of(tasks: Mapping[str, list[int]]) -> set[tuple[str, int]]:
    return {(subtopology_id, partition) for subtopology_id, some in tasks.items() for partition in some}
