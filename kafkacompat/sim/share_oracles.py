"""Checks what share groups promise: whoever holds a record holds it alone, what is acknowledged stays acknowledged, and no
record is passed over.

The observers stand between the broker and each leader's share-partitions: what it acquires, acknowledges, loads and releases. The
answers to members are seen as they leave. Time is that of the node that gave a lock, so that clocks may drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import Uuid
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ShareGroupCounters, TierCounters
from kafkacompat.sim.dead_letter_oracle import DeadLetterOracle
from kafkacompat.sim.partition_oracles import PartitionOracles
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.share_model import (
    ACCEPT,
    ACQUIRED,
    FINAL,
    FREE,
    GAP,
    NO_FATE,
    RENEW,
    TERMINAL,
    Fate,
    Holding,
    Kept,
    KeptStates,
    Led,
    acknowledge_error,
    each_of,
    expanded,
    rows_of,
    states_of,
)
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.produce_request import ProduceRequest
from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest

if TYPE_CHECKING:
    from kafkacompat.sim.views import NodeView


GROUP_ID = "workers"


class ShareOracles:
    """For one group that begins at the earliest records."""

    def __init__(
        self,
        env: Environment,
        machines: Mapping[int, MachineView],
        partitions: PartitionOracles,
        group_id: str,
        counters: ShareGroupCounters,
    ) -> None:
        self._env = env
        self._machines = machines
        self._partitions = partitions
        self._group_id = group_id
        self._counters = counters
        self.tier_counters: TierCounters | None = None
        self._lock_ms = env.options.share_lock_ms
        self._limit = env.options.share_deliveries
        self._fates: dict[Key, dict[int, Fate]] = {}
        self.letters = DeadLetterOracle(env, group_id, counters, self._fate, self._deleted)
        self.states = KeptStates(counters, self._archived)
        self._passed: dict[Key, int] = {}
        """Everything below was checked to be at its end."""
        self._led: dict[NodeView, dict[Any, Led]] = {}
        self._released: list[tuple[Any, list[Any]]] = []
        """Sessions that have ended in this event, and their partitions."""
        self._undone: set[Any] = set()
        """Share-partitions of which a write has failed in this event. What was released is held until its lock ends."""
        self._given: set[str] = set()
        """Members that have got records in this event."""
        self._asked: dict[tuple[NodeView, Key, str], dict[int, tuple[int, int]]] = {}
        """What a member's last request about a partition acknowledged: offset -> type and delivery count."""

    # What a node does.

    def watch(self, life: NodeView, shares: Any) -> None:
        """`shares` has the share-partitions of a node that is about to start."""
        self._led[life] = {}
        self._released, self._given = [], set()
        ends, cache = shares.ends, shares.cache
        load, release = cache.load, ends.release_session

        def watched_load(led: Any) -> Any:
            if led.core not in self._led[life] and led.key.group_id == self._group_id:
                self._watch_core(life, led.core)
            return load(led)

        def watched_release(key: Any) -> None:
            session = shares.sessions.get(key)
            partitions = [] if session is None else [tuple(each) for each in session.partitions]
            self._give_up(life, key.member_id, partitions)
            self._released.append((key, partitions))
            release(key)

        cache.load, ends.release_session = watched_load, watched_release
        self.letters.watch(life, cache._dead_letters)
        partitions: Any = life.partitions
        delete = partitions.delete_records

        def watched_delete(*named: Any, **options: Any) -> Any:
            # What is pruned in the event in which it is committed cannot be read afterwards.
            self._partitions.look(life)
            self.states.follow(life)
            return delete(*named, **options)

        partitions.delete_records = watched_delete

    def _watch_core(self, life: NodeView, core: Any) -> None:
        self.states.follow(life)
        key = core.key.topic_id, core.key.partition
        led = self._led[life][core] = Led(life, key, core, self._kept(key).changes)
        acquire, acknowledge, initialize, expire = (
            core.acquire,
            core.acknowledge,
            core.initialize,
            core.expire_locks,
        )

        def watched_acquire(member_id: str, *others: Any) -> Any:
            acquired = acquire(member_id, *others)
            now_ms = others[-1]
            for first, last, count in acquired.records:
                for offset in range(first, last + 1):
                    self._acquired(led, member_id, offset, count, now_ms)
            return acquired

        def watched_acknowledge(member_id: str, batches: Any, now_ms: int) -> Any:
            start = core.start_offset
            result = acknowledge(member_id, batches, now_ms)
            if getattr(result, "code", ErrorCode.NONE) is ErrorCode.NONE:
                self._acknowledged(led, member_id, each_of(batches), start, now_ms)
            return result

        def watched_initialize(read: Any, reset_offset: int) -> Any:
            result = initialize(read, reset_offset)
            if result.code is ErrorCode.NONE:
                self._loaded(led, read)
            return result

        def watched_expire(now_ms: int) -> Any:
            before = core.expired_records
            result = expire(now_ms)
            self._counters.locks_ended += core.expired_records - before
            return result

        def watched_completion(token: int, error: Any, now_ms: int) -> Any:
            if error.code is not ErrorCode.NONE:
                self._undone.add(core)
            return completed(token, error, now_ms)

        completed = core.write_completed
        core.acquire, core.acknowledge = watched_acquire, watched_acknowledge
        core.initialize, core.expire_locks = watched_initialize, watched_expire
        core.write_completed = watched_completion

    def _kept(self, key: Key) -> Kept:
        return self.states.of((self._group_id, *key))

    def _leads(self, led: Led) -> bool:
        """Whether no other node can have taken over. A deposed leader may not know it yet."""
        image = self._env.metadata.partition(led.key)
        return image is not None and (image.leader, image.leader_epoch) == (
            led.life.id,
            led.core.leader_epoch,
        )

    # Loads.

    def _loaded(self, led: Led, read: Any) -> None:
        self._counters.loads += 1
        self._counters.takeovers += bool(read.batches)
        records = dict(expanded(read.batches))
        led.counts = {offset: standing.deliveries for offset, standing in records.items()}
        led.ended = {offset for offset, (_, state) in records.items() if state != 0}
        start = max(read.start_offset, 0)
        if not self._leads(led):
            return
        self.states.follow(led.life)
        kept = self._kept(led.key)
        if kept.changes == led.changes_before and (max(kept.start, 0), kept.records) != (start, records):
            raise Breach(
                "leaders load what is kept",
                f"{led} gets {start}, {records}, the log of states has {kept.start}, {kept.records}",
            )
        self._pass(str(led), led.key, start)
        for offset, fate in self._fates.get(led.key, {}).items():
            if offset < start or offset < self._deleted(led.key):
                continue
            if fate.is_settled and offset not in led.ended:
                raise Breach(
                    "acknowledged stays acknowledged",
                    f"{led} loads {records.get(offset)} for offset {offset}",
                )
            if fate.released > led.counts.get(offset, 0):
                raise Breach(
                    "delivery counts are kept",
                    f"{led} loads {records.get(offset)} for offset {offset}, released was {fate.released}",
                )

    # Deliveries.

    def _acquired(self, led: Led, member_id: str, offset: int, count: int, now_ms: int) -> None:
        what = f"{led} gives {member_id} offset {offset}, delivery {count}"
        if count != led.counts.get(offset, 0) + 1:
            raise Breach("deliveries are counted", f"{what}, known is {led.counts.get(offset, 0)}")
        if count > self._limit:
            raise Breach("deliveries have a limit", f"{what} of {self._limit}")
        if offset in led.ended:
            raise Breach("acknowledged stays acknowledged", f"{what}, which it loaded as ended")
        holding = led.holdings.get(offset)
        if holding is not None and now_ms < holding.until_ms:
            raise Breach(
                "who holds a record holds it alone",
                f"{what} at {now_ms}, {holding.member_id} has it until {holding.until_ms}",
            )
        fate = self._fate(led.key, offset)
        if self._leads(led):
            if fate.is_settled:
                raise Breach("acknowledged stays acknowledged", what)
            if count <= fate.released:
                raise Breach("delivery counts are kept", f"{what}, released was {fate.released}")
        else:
            self._counters.deposed_deliveries += 1
        self._counters.last_attempts += count == self._limit
        self.letters.delivered(led, offset)
        self._given.add(member_id)
        if self.tier_counters is not None:
            log = led.life.partitions.by_id[led.key].log  # type: ignore[union-attr]
            self.tier_counters.shared += offset < log.local_log_start_offset
        led.counts[offset] = count
        led.holdings[offset] = Holding(member_id, now_ms + self._lock_ms)
        self._fates[led.key][offset] = fate._replace(deliveries=max(fate.deliveries, count))

    def _fate(self, key: Key, offset: int) -> Fate:
        return self._fates.setdefault(key, {}).get(offset, NO_FATE)

    # Acknowledgements.

    def _acknowledged(
        self, led: Led, member_id: str, each: Iterable[tuple[int, int]], start: int, now_ms: int
    ) -> None:
        asked = self._asked[led.life, led.key, member_id] = {}
        for offset, kind in each:
            if offset < start:
                continue  # as in Kafka such a request is answered as if it was carried out
            holding = led.holdings.get(offset)
            if holding is None or holding.member_id != member_id:
                raise Breach(
                    "only the holder acknowledges",
                    f"{led} takes {kind} of {member_id} for {offset}: {holding}",
                )
            asked[offset] = kind, led.counts[offset]
            if kind == RENEW:
                led.holdings[offset] = Holding(member_id, now_ms + self._lock_ms)
                continue
            led.holdings[offset] = Holding(member_id, FREE)
            if kind in FINAL:
                fate = self._fate(led.key, offset)
                is_accept_asked = fate.is_accept_asked or kind in (ACCEPT, GAP)
                self._fates[led.key][offset] = fate._replace(is_asked=True, is_accept_asked=is_accept_asked)

    def _archived(self, name: Any, offsets: Iterable[int]) -> None:
        self.letters.archived(name[1:], offsets)

    def answered(self, life: NodeView, request: Any, response: Any) -> None:
        """An answer leaves a node."""
        if isinstance(request, ProduceRequest):
            self.letters.follow(life)
        if not isinstance(request, (ShareFetchRequest, ShareAcknowledgeRequest)) or response.error_code:
            return
        self.states.follow(life)
        errors = {key: acknowledge_error(row) for key, row in rows_of(response)}
        for topic in request.topics:
            for one in topic.partitions:
                key = topic.topic_id, one.partition_index
                if errors.get(key) is not ErrorCode.NONE:
                    continue
                asked = self._asked.get((life, key, request.member_id or ""), {})
                for offset, kind in each_of(one.acknowledgement_batches):
                    if offset in asked and asked[offset][0] == kind:
                        self._settled(life, key, offset, *asked[offset])

    def _settled(self, life: NodeView, key: Key, offset: int, kind: int, count: int) -> None:
        if kind == RENEW:
            return
        fate, kept = self._fate(key, offset), self._kept(key)
        where = f"node {life.id} answers that offset {offset} of partition {key[1]}"
        is_deleted = offset < self._deleted(key)
        if kind in FINAL:
            if not is_deleted and not kept.is_ended(offset):
                raise Breach("answered is written", f"{where} is ended, kept is {kept.records.get(offset)}")
            is_accepted = fate.is_accepted or kind == ACCEPT
            self._fates[key][offset] = fate._replace(is_settled=True, is_accepted=is_accepted)
        else:
            if not is_deleted and offset >= kept.start and kept.count(offset) < count:
                raise Breach(
                    "answered is written", f"{where} is released, kept is {kept.records.get(offset)}"
                )
            self._fates[key][offset] = fate._replace(released=max(fate.released, count))

    # Sessions.

    def _give_up(self, life: NodeView, member_id: str, partitions: Iterable[tuple[Uuid, int]]) -> None:
        """The member's session ends, and its records become free."""
        for led in self._led_of(life, partitions):
            for offset, holding in led.holdings.items():
                if holding.member_id == member_id:
                    led.holdings[offset] = Holding(member_id, FREE)

    def after_event(self, life: NodeView) -> None:
        self.letters.follow(life)
        self.states.follow(life)
        released, self._released = self._released, []
        given, self._given = self._given, set()
        undone, self._undone = self._undone, set()
        shares = life.shares
        if not released or shares is None or not life.alive or shares.ends._releases:
            return  # the rest is released in the next turn
        for key, partitions in released:
            # As in Kafka a late last request ends a session that was opened after it, while that one fetches.
            if shares.sessions.get(key) is None and key.member_id not in given:
                self._check_released(life, key.member_id, partitions, undone)

    def _check_released(
        self, life: NodeView, member_id: str, partitions: Iterable[tuple[Uuid, int]], undone: set[Any]
    ) -> None:
        for led in self._led_of(life, partitions):
            if led.core in undone:
                continue
            for run in chain.from_iterable(batch.runs for batch in led.core._records.batches):
                if run.state == ACQUIRED and run.member_id == member_id:
                    raise Breach("who leaves holds nothing", f"{led} keeps {run.first} for {member_id}")

    def _led_of(self, life: NodeView, partitions: Iterable[tuple[Uuid, int]]) -> list[Led]:
        """Those that it still has. Others may still be known to requests on their way."""
        assert life.shares is not None
        names, cached = set(partitions), life.shares.cache.groups.get(self._group_id, {})
        cores = {each.core for each in cached.values()}
        return [led for core, led in self._led[life].items() if led.key in names and core in cores]

    # Records that are over.

    def _deleted(self, key: Key) -> int:
        """Up to where somebody asked to delete records."""
        ledger = self._partitions.ledgers.get(key)
        return 0 if ledger is None else ledger.starts.asked

    def _pass(self, where: str, key: Key, start: int) -> None:
        """The group does not deliver anything below `start` any more. It has been acknowledged, or delivered as often as
        allowed, or deleted."""
        first = max(self._passed.get(key, 0), self._deleted(key))
        for offset in range(first, start):
            fate = self._fate(key, offset)
            if not fate.is_asked and fate.deliveries < self._limit:
                raise Breach("no record is lost", f"{where} begins at {start}, of {offset} is known {fate}")
        self.letters.passed(where, key, first, start)
        self._passed[key] = max(first, start)

    def missing(self, keys: Iterable[Key]) -> str | None:
        """Return what the group has not consumed yet of a healed cluster. None if it has consumed everything."""
        for key in keys:
            image = self._env.metadata.partition(key)
            life = None if image is None else self._machines[image.leader].life
            if life is None or life.shares is None or life.partitions is None:
                return f"partition {key[1]} has no leader"
            end = life.partitions.by_id[key].log.high_watermark
            if not end:
                continue
            known = [
                led for led in life.shares.cache.groups.get(self._group_id, {}).values() if led.key[1:] == key
            ]
            if not known:
                return f"the share group does not fetch from partition {key[1]}"
            core = known[0].core
            # As in Kafka the start offset may wait for the next record, after a load with gaps.
            present = dict(states_of(core))
            left = [each for each in range(core.start_offset, end) if present.get(each) not in TERMINAL]
            if left:
                return f"the share group has not ended {left} of {end} in partition {key[1]}"
            self._pass("at the end it", key, core.start_offset)
            kept = self._kept(key)
            left = [
                each for each in range(max(kept.start, self._deleted(key)), end) if not kept.is_terminal(each)
            ]
            if left:
                return f"the log of states has no end for {left} in partition {key[1]}"
        return self._unlike()

    def _unlike(self) -> str | None:
        """Compare what coordinators have in memory with what is kept."""
        loaded = 0
        for machine in self._machines.values():
            for name, state in ({} if machine.life is None else machine.life.share_states()).items():
                kept = self.states.of(tuple(name))
                live = state.offset.start_offset, dict(expanded(state.offset.batches.items))
                loaded += 1
                if live != (kept.start, kept.records):
                    return f"node {machine.id} has {live} for {name}, kept is {kept.start}, {kept.records}"
        if loaded != len(self.states.states):
            return f"of {len(self.states.states)} states coordinators have {loaded}"
        return None
