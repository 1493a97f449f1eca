"""The shards of one internal topic on this node, the shard of each key, and rounds over all of them.

It follows the leadership in published images. A partition with an empty log costs one object and is active at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.coordinator.core import Machine, OperationRefused
from kafkacompat.coordinator.partition_writer import ServicePartitionWriter
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.ids import partition_for_key
from kafkacompat.meters import RecentTimes
from kafkacompat.tasks import Limit, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.coordinator.services import CoordinatorServices
    from kafkacompat.coordinator.shard import ShardSettings, ShardTimers
    from kafkacompat.tasks import Started, Tasks, Work


MAX_REMEMBERED_KEYS = 10_000
"""Keys whose partition is cached, since hashing a key costs more than a lookup."""
REMEMBERED_LENGTH_MAX = 500
"""Characters of such a key. A client may name groups that take 128 KiB each."""
_INITIAL = ShardState.INITIAL
"""A module's name, because looking up an enum member is far slower."""


class Shards:
    """`load_times`: of the partitions."""

    __slots__ = (
        "_by_partition",
        "_large",
        "_make_machine",
        "_node_id",
        "_on_active",
        "_remembered",
        "_services",
        "_settings",
        "_topic",
        "_waiting",
        "_writer",
        "load_times",
        "partition_count",
    )

    def __init__(
        self,
        services: CoordinatorServices,
        settings: ShardSettings,
        make_machine: Callable[[int, int, ShardTimers], Machine[Any]],
        on_active: Callable[[Shard], None] | None = None,
    ) -> None:
        """`make_machine(partition, leader epoch, timers)` makes the state of a shard, and makes it again if there was no memory to
        load it."""
        self._services = services
        self._settings = settings
        self._node_id = services.node_id
        self._topic = settings.topic
        self._make_machine = make_machine
        self._on_active = on_active
        self._writer = ServicePartitionWriter(services.partitions, settings.topic, settings.append_timeout_ms)
        self._large = Limit(1)
        self.load_times = RecentTimes()
        self._by_partition: dict[int, Shard] = {}
        self._waiting: dict[Shard, None] = {}
        """Shards that may have something to load, and are started in steps."""
        self._remembered: dict[str, int] = {}
        self.partition_count = 0
        """0 while the topic does not exist."""

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Start the shards that this node now leads, and close those it no longer leads.

        The shards of a topic that was just created have nothing to load. The first request starts them, so their logs
        need not exist yet.
        """
        topic = new.topics.get(self._topic)
        former = old.topics.get(self._topic)
        if topic is former:
            return
        just_made = former is None and old.offset >= 0
        partitions = {} if topic is None else topic.partitions
        if len(partitions) != self.partition_count:
            self.partition_count = len(partitions)
            self._remembered.clear()
        recreated = former is not None and topic is not None and former.id != topic.id
        for index in list(self._by_partition):
            image = partitions.get(index)
            if recreated or image is None or image.leader != self._node_id:
                self._by_partition.pop(index).close()
        has_more = False
        for index, image in partitions.items():
            if image.leader != self._node_id:
                continue
            shard = self._by_partition.get(index)
            renewed = self._settings.reloads_for_new_epoch or (
                shard is not None and shard.state is ShardState.FAILED
            )
            if shard is not None and renewed and image.leader_epoch > shard.epoch:
                self._by_partition.pop(index).close()
                shard = None
            if shard is None:
                shard = self._by_partition[index] = self._make_shard(index, image.leader_epoch)
            shard.epoch = image.leader_epoch
            if shard.state is _INITIAL and not just_made:
                self._waiting[shard] = None
                has_more = True
        if has_more:
            self._services.tasks.start("starting a coordinator's partitions", self._start_waiting())

    async def _start_waiting(self) -> None:
        """A request starts its shard sooner. The logs of a topic that was just made may not be open yet."""
        while self._waiting:
            self._start_next()
            await pause(STARTED_US)

    def _start_next(self) -> None:
        shard = next(iter(self._waiting))
        del self._waiting[shard]
        if shard.state is _INITIAL:
            shard.start()

    def partition_for(self, key: str) -> int:
        """Raises OperationRefused COORDINATOR_NOT_AVAILABLE while the topic does not exist."""
        partition = self._remembered.get(key)
        if partition is None:
            if self.partition_count == 0:
                raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            partition = partition_for_key(key, self.partition_count)
            if len(key) <= REMEMBERED_LENGTH_MAX:
                if len(self._remembered) >= MAX_REMEMBERED_KEYS:
                    self._remembered.clear()
                self._remembered[key] = partition
        return partition

    def shard_for(self, key: str) -> Shard:
        """The active or loading shard of a key. Raises OperationRefused NOT_COORDINATOR if another node has it."""
        if self.partition_count == 0:
            raise OperationRefused(ErrorCode.NOT_COORDINATOR)
        shard = self._by_partition.get(self.partition_for(key))
        if shard is None:
            raise OperationRefused(ErrorCode.NOT_COORDINATOR)
        if shard.state is _INITIAL:
            shard.start()
        return shard

    def started(self) -> Iterator[Shard]:
        """All shards, started if necessary."""
        for shard in self:
            if shard.state is _INITIAL:
                shard.start()
            yield shard

    def with_state(self) -> list[Shard]:
        """The shards that have a state, or load one. Those that wait for their turn are started now."""
        while self._waiting:
            self._start_next()
        return [shard for shard in self if shard.state in (ShardState.ACTIVE, ShardState.LOADING)]

    def states(self) -> list[str]:
        """The state of each shard on this node. Those of a new topic that nobody has asked for yet have nothing to load:
        they are active."""
        return [
            (ShardState.ACTIVE if shard.state is _INITIAL else shard.state).value
            for shard in self._by_partition.values()
        ]

    def get(self, partition: int) -> Shard | None:
        return self._by_partition.get(partition)

    def __iter__(self) -> Iterator[Shard]:
        return iter(list(self._by_partition.values()))

    def close(self) -> None:
        """The node ends: all that is parked is answered in this step of the loop."""
        for index in list(self._by_partition):
            self._by_partition.pop(index).close(at_once=True)

    def _make_shard(self, partition: int, epoch: int) -> Shard:
        return Shard(
            partition,
            epoch,
            self._services,
            self._settings,
            self._writer,
            self._large,
            partial(self._make_machine, partition, epoch),
            self._on_active,
            self.load_times,
            self._replace,
        )

    def _replace(self, shard: Shard) -> None:
        """Load the partition anew in another shard. Nobody may go on with the state of this one."""
        if self._by_partition.get(shard.partition) is not shard:
            return
        other = self._by_partition[shard.partition] = self._make_shard(shard.partition, shard.epoch)
        shard.close()
        if other.state is _INITIAL:
            other.start()


T = TypeVar("T")

STARTED_US = 500
"""Of a shard: some 50 if its log is open, and up to 1,000 if not."""
STRETCH = 250
"""Places examined, and so the most tombstones written, in one step."""
TOMBSTONE_COST = 12


def stretches(items: Iterator[T]) -> Iterator[list[T]]:
    while stretch := list(islice(items, STRETCH)):
        yield stretch


async def in_order(shard: Shard, steps: Work[None]) -> None:
    """Carry out a work whose steps look at the state and write: each in its turn among the operations. Otherwise a request
    that waits for the end of a large transaction would be carried out between a look and what it leads to. The work is
    abandoned when the shard is no longer active."""
    while True:
        await shard.when_free()
        if shard.state is not ShardState.ACTIVE:
            return
        cost = next(steps, None)
        if cost is None:
            return
        await pause(cost)


class Rounds:
    """Call `plan` for each kind of round, then `stop`. A round that is not complete at the next interval continues."""

    def __init__(
        self, tasks: Tasks, shards: Callable[[], Iterable[Shard]], is_due: Callable[[], bool] = lambda: True
    ) -> None:
        """`shards`: those of a round. `is_due` is asked before each round. The next one comes in any case."""
        self._tasks = tasks
        self._shards = shards
        self._is_due = is_due
        self._loops: list[Started] = []

    def plan(self, what: str, interval_ms: int, visit: Callable[[Shard], Work[None]]) -> None:
        """`what` names the rounds. `visit` is abandoned when its shard is no longer active."""
        self._loops.append(self._tasks.start(what, self._repeat(what, interval_ms, visit)))

    def stop(self) -> None:
        for loop in self._loops:
            loop.cancel()

    async def _repeat(self, what: str, interval_ms: int, visit: Callable[[Shard], Work[None]]) -> None:
        under_way: Started | None = None
        while True:
            await self._tasks.sleep(interval_ms)
            if self._is_due() and (under_way is None or under_way.done):
                under_way = self._tasks.start(what, self._go_round(visit))

    async def _go_round(self, visit: Callable[[Shard], Work[None]]) -> int:
        """How many shards were active, and so visited."""
        visited = 0
        for shard in list(self._shards()):
            if shard.state is not ShardState.ACTIVE:
                continue
            visited += 1
            await in_order(shard, visit(shard))
        return visited
