"""Replication of this node's partitions: the leaders that are followed, and the ISR changes proposed to the
controller.

Each partition with a new role is added to or removed from the fetcher of its leader. A timer looks for lagging ISR
members, and proposals are sent. This shell connects fetchers, alter_partition_manager and the manager; it decides
nothing about offsets. Parts that only a cluster of several nodes needs are imported on demand, so a single node starts
as fast without them. Settings: num.replica.fetchers, replica.fetch.*, replica.lag.time.max.ms,
replica.socket.timeout.ms, and the throttles'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.ids import NO_LEADER, java_string_hash
from kafkacompat.partition.hosted_partitions import visits
from kafkacompat.partition.partition import Altered
from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
from kafkacompat.partition.traffic import IsrChanges
from kafkacompat.tasks import in_turns, pause

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, MetadataImage
    from kafkacompat.deferred import Deferred
    from kafkacompat.partition.alter_partition_manager import AlterPartitionManager
    from kafkacompat.partition.following import PartitionFetchState
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.partition import Partition, PendingPartitionChange
    from kafkacompat.partition.replica_fetcher import Channel, ReplicaFetcher
    from kafkacompat.partition.services import PartitionServices
    from kafkacompat.tasks import Started

logger = logging.getLogger(__name__)

REHOMED_US = 10
"""Of a partition whose leader's address has changed."""

Key = tuple[bytes, int]


class Channels(Protocol):
    """The parts of net.channels.Channels that are used here."""

    def get(self, host: str, port: int, purpose: str) -> Channel: ...


class ReplicaFetcherManager:
    """Created before the ReplicaManager, which attaches itself. `close` ends all fetching."""

    def __init__(
        self,
        services: PartitionServices,
        listener_name: str,
        channels: Channels,
        *,
        broker_epoch: Callable[[], int],
        alter: Callable[[Any], Deferred[Any]],
    ) -> None:
        """`listener_name` is the listener of the leaders (inter.broker.listener.name). `alter` sends an
        AlterPartitionRequest to the active controller, however long that takes, and gives the response or fails."""
        clock, settings, node_id = services.clock, services.settings, services.node_id
        self._services = services
        self._tasks = services.tasks
        self._clock = clock
        self._settings = settings
        self._listener_name = listener_name
        self._channels = channels
        self._broker_epoch = broker_epoch
        self._alter = alter
        self._lag_time_max_ms = settings.get_int("replica.lag.time.max.ms")
        windows = settings.get_int("replication.quota.window.num")
        window_ms = 1000 * settings.get_int("replication.quota.window.size.seconds")
        self.leader_throttle = ReplicationQuotaManager(
            node_id,
            clock,
            lambda: settings.get_int("leader.replication.throttled.rate"),
            lambda config: config.leader_replication_throttled_replicas,
            windows,
            window_ms,
        )
        """Used by the FetchEngine."""
        self.follower_throttle = ReplicationQuotaManager(
            node_id,
            clock,
            lambda: settings.get_int("follower.replication.throttled.rate"),
            lambda config: config.follower_replication_throttled_replicas,
            windows,
            window_ms,
        )
        self._hosted: HostedPartitions | None = None
        self._brokers: Mapping[int, BrokerRegistration] | None = None
        """Those of the last image."""
        self._count = settings.get_int("num.replica.fetchers")
        """Of the last image."""
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        """By (leader, index)."""
        self._fetcher_of: dict[Key, ReplicaFetcher] = {}
        self._without_address: dict[Key, Partition] = {}
        """Partitions whose leader's address is not known yet."""
        self._to_rehome: dict[Partition, None] = {}
        """Partitions whose leader's address has changed or become known, and all if the number of fetchers has changed. They
        are handled one after another."""
        self._is_rehoming = False
        self._alters: AlterPartitionManager | None = None
        self.isr_changes = IsrChanges()
        self._isr_check: Started | None = None
        self._leads = False
        """Since the last check began, a partition with other replicas was seen to be led here."""
        self._closed = False

    def followed(self) -> list[tuple[int, int, PartitionFetchState]]:
        """(leader, index of the fetcher, partition) of each partition that is fetched."""
        return [
            (leader, index, followed)
            for (leader, index), fetcher in self._fetchers.items()
            for followed in fetcher.fetches.partitions.values()
        ]

    def min_fetch_rate(self) -> float:
        """Of the slowest fetcher, in fetches a second. 0 without fetchers."""
        return min((fetcher.fetch_rate() for fetcher in self._fetchers.values()), default=0.0)

    def attach(self, hosted: HostedPartitions) -> None:
        self._hosted = hosted
        hosted.standing.lag_time_max_ms = self._lag_time_max_ms

    def close(self) -> None:
        """Stop all fetching and proposing."""
        self._closed = True
        if self._isr_check is not None:
            self._isr_check.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._fetcher_of.clear()
        if self._alters is not None:
            self._alters.close()

    # Roles

    def on_image(self, new: MetadataImage) -> None:
        """Take over new addresses of brokers, and another num.replica.fetchers."""
        count = self._settings.get_int("num.replica.fetchers")
        if self._closed or (new.brokers is self._brokers and count == self._count):
            return
        self._brokers = new.brokers
        moved = [
            fetcher
            for fetcher in self._fetchers.values()
            if count != self._count or self._address_of(fetcher.leader_id) != fetcher.address
        ]
        self._count = count
        for fetcher in moved:
            self._to_rehome.update(dict.fromkeys(fetcher.cores()))
        self._to_rehome.update(dict.fromkeys(self._without_address.values()))
        if self._to_rehome and not self._is_rehoming:
            self._is_rehoming = True
            self._services.start_or_halt("following leaders anew", self._rehome())

    async def _rehome(self) -> None:
        """Partitions that were removed meanwhile are skipped."""
        assert self._hosted is not None
        while self._to_rehome and not self._closed:
            core = next(iter(self._to_rehome))
            del self._to_rehome[core]
            if self._hosted.by_id.get((core.topic_id, core.topic_partition.partition)) is core:
                self._hosted.follow_anew(core)
            await pause(REHOMED_US)
        self._is_rehoming = False

    def role_taken(self, core: Partition) -> None:
        key = core.topic_id, core.topic_partition.partition
        if core.is_leader or core.leader == NO_LEADER or self._closed:
            self._unfollow(key, core)
            if core.is_leader and not core.alone:
                self._check_later()
            return
        address = self._address_of(core.leader)
        if address is None:
            self._unfollow(key, core)
            self._without_address[key] = core
            return
        self._without_address.pop(key, None)
        fetcher = self._fetcher_for(core, address)
        before = self._fetcher_of.get(key)
        if before is not None and before is not fetcher:
            before.remove(core)
        self._fetcher_of[key] = fetcher
        fetcher.add(core)

    def gone(self, core: Partition) -> None:
        self._unfollow((core.topic_id, core.topic_partition.partition), core)

    def _unfollow(self, key: Key, core: Partition) -> None:
        self._without_address.pop(key, None)
        fetcher = self._fetcher_of.pop(key, None)
        if fetcher is not None:
            fetcher.remove(core)

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        assert self._hosted is not None  # attached before any image
        broker = self._hosted.standing.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _fetcher_for(self, core: Partition, address: tuple[str, int]) -> ReplicaFetcher:
        name = core.topic_partition
        index = (31 * java_string_hash(name.topic) + name.partition) % self._count
        fetcher = self._fetchers.get((core.leader, index))
        if fetcher is not None and fetcher.address == address:
            return fetcher
        if fetcher is not None:
            fetcher.close()
        fetcher = self._fetchers[core.leader, index] = self._make_fetcher(core.leader, index, address)
        return fetcher

    def _make_fetcher(self, leader_id: int, index: int, address: tuple[str, int]) -> ReplicaFetcher:
        assert self._hosted is not None
        from kafkacompat.partition.fetch_session_handler import FetchSettings
        from kafkacompat.partition.following import FollowerFetches
        from kafkacompat.partition.replica_fetcher import ReplicaFetcher

        number = self._settings.get_int
        settings = FetchSettings(
            max_wait_ms=number("replica.fetch.wait.max.ms"),
            min_bytes=number("replica.fetch.min.bytes"),
            partition_max_bytes=number("replica.fetch.max.bytes"),
            response_max_bytes=number("replica.fetch.response.max.bytes"),
            backoff_ms=number("replica.fetch.backoff.ms"),
        )
        return ReplicaFetcher(
            self._services,
            self._hosted,
            leader_id,
            address,
            self._channels.get(*address, f"replica-fetcher-{index}"),
            FollowerFetches(self._services.node_id, self._broker_epoch, settings, self.follower_throttle),
            self._close_idle,
        )

    def _close_idle(self, fetcher: ReplicaFetcher) -> None:
        for key, each in list(self._fetchers.items()):
            if each is fetcher:
                del self._fetchers[key]
        fetcher.close()

    # ISR changes.

    def propose(self, core: Partition, proposal: PendingPartitionChange) -> None:
        if self._closed:
            return
        if self._alters is None:
            from kafkacompat.partition.alter_partition_manager import AlterPartitionManager

            self._alters = AlterPartitionManager(
                self._services, self._broker_epoch, self._alter, self._altered, self.isr_changes
            )
        shrinks = len(proposal.isr) < len(proposal.maximal)
        logger.info(
            "[Partition %s broker=%d] %s ISR from %s to %s",
            core.topic_partition,
            self._services.node_id,
            "Shrinking" if shrinks else "Expanding",
            core.isr,
            proposal.isr,
        )
        self._alters.submit(core, proposal)

    def _altered(self, core: Partition, outcome: Altered) -> None:
        assert self._hosted is not None
        self._hosted.reconfiguring.first(core)
        # A replica whose joining is refused is no longer waited for either, and the image with the reason may have come
        # before the refusal.
        is_decided = outcome is Altered.COMMITTED or outcome is Altered.REJECTED
        if is_decided and core.maybe_increment_leader_high_watermark(self._clock.monotonic_ms()):
            self._hosted.advanced(core)

    def _check_later(self) -> None:
        self._leads = True
        if not self._closed and (self._isr_check is None or self._isr_check.done):
            self._isr_check = self._services.start_or_halt("isr-expiration", self._check_isr())

    async def _check_isr(self) -> None:
        """Look for lagging ISR members, every half of the allowed lag, so that a lag is noticed soon. Ends when nothing is
        led that has other replicas."""
        assert self._hosted is not None
        while self._leads:
            await self._tasks.sleep(self._lag_time_max_ms // 2)
            self._leads = False
            await in_turns(visits(self._hosted.by_id, self._check))

    def _check(self, core: Partition) -> bool:
        """Returns whether something had to be done."""
        assert self._hosted is not None
        if not core.is_leader or core.alone:
            return self._hosted.advance_if_waiting(core)
        self._leads = True
        proposal = core.maybe_shrink_isr(self._clock.monotonic_ms())
        if proposal is not None:
            self.propose(core, proposal)
        return self._hosted.advance_if_waiting(core) or proposal is not None
