"""What befalls a simulated cluster: kill -9 of any nodes, orderly restarts, power losses, syncs that fail, pauses, partitions both
ways and one way.

Kafka acknowledges what is in the page caches of the ISR, so a power loss comes only where it keeps its promise: to a machine all
of whose partitions have another replica in sync and at work, and nobody else falls until the controller has noticed. kill -9
comes at will, to all at once as well. Each fault heals by itself after a while; `heal_all` ends them at once, for the liveness
phase.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import NO_LEADER
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.deaths import Deaths
from kafkacompat.sim.faults.disk_faults import DiskFaults
from kafkacompat.sim.faults.pool_faults import PoolFaults
from kafkacompat.sim.faults.refusals import directory_of
from kafkacompat.sim.faults.slowness import Slowness
from kafkacompat.sim.image_oracles import Key, partitions_of
from kafkacompat.sim.machine import METADATA_DIRECTORY
from kafkacompat.sim.quorum_oracles import Breach

if TYPE_CHECKING:
    from kafkacompat.controller.image import PartitionImage
    from kafkacompat.partition.isr import PendingIsr
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation
    from kafkacompat.sim.machine import SimulatedMachine

FIRST_FAULT_US = 2_500_000
"""Until then the cluster comes to life."""
NEWCOMER_WITHIN_US, NEWCOMER_LOOK_US = 1_000_000, 3_000
LOOK_AGAIN_US = 100_000
HALTS_WITHIN_US = 2_000_000
"""After a sync that failed: no job takes so long."""


class ClusterFaults:
    def __init__(self, simulation: ClusterSimulation, chance: Chance) -> None:
        self._simulation = simulation
        self._chance = chance
        self.count = 0
        self._is_over = False
        self._cut: list[list[tuple[int, int]]] = []
        self._fragile: int | None = None
        """The machine that lost power, until the controller counts on it no more."""
        self._kinds: tuple[Callable[[], bool], ...] = (
            self._kill_one,
            self._kill_one,
            self._kill_leader,
            self._kill_last_in_sync,
            self._kill_last_in_sync,
            self._kill_controller,
            self._kill_many,
            self._stop_in_order,
            self._lose_power,
            self._lose_power,
            self._lose_power_of_second,
            self._lose_power_of_second,
            self._lose_power_of_newcomer,
            self._lose_power_of_newcomer,
            self._pause_beyond_session,
            self._pause,
            self._split,
            self._isolate,
            self._isolate_leader,
            self._cut_one_way,
            self._reset_connections,
        )
        simulation.scheduler.after(FIRST_FAULT_US, self._strike)
        self.pools = PoolFaults(simulation, self._tell)
        self.deaths = Deaths(simulation, self._tell)
        self._others = (
            DiskFaults(simulation, self._tell),
            Slowness(simulation, self._tell),
            self.pools,
            self.deaths,
        )
        for each in self._others:
            each.begin()
        # A stream of its own: in three runs of four no disk fails, and the other faults are the same as without.
        self._disk_chance = Chance(simulation.seed, "failing syncs")
        if self._disk_chance.happens(0.25):
            simulation.scheduler.after(FIRST_FAULT_US, self._let_a_sync_fail)

    def _strike(self, _: Any) -> None:
        if self._is_over:
            return
        if self._fragile is not None:
            self._simulation.scheduler.after(LOOK_AGAIN_US, self._strike)
            return
        if self._kinds[self._chance.randrange(len(self._kinds))]():
            self.count += 1
        mean_ms = self._simulation.options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform()))
        self._simulation.scheduler.after(delay_us, self._strike)

    @property
    def spares(self) -> bool:
        """Nobody is to fall now: the controller still counts on a machine that has lost what it had."""
        return self._fragile is not None

    def spares_others_than(self, machine_id: int) -> bool:
        return self._fragile not in (None, machine_id)

    def heal_all(self) -> None:
        simulation = self._simulation
        self._is_over = True
        self._tell("all is healed")
        for each in self._others:
            each.end()
            self.count += each.count
        simulation.network.calm(3_000)
        for machine in simulation.ordered:
            if machine.life is None:
                machine.start()
            elif machine.life.is_paused:
                machine.life.resume()

    def _tell(self, what: str) -> None:
        if self._simulation.tell is not None:
            self._simulation.tell(f"*** {what}")

    def _later(self, call: Callable[[Any], None], argument: Any) -> None:
        delay_ms = self._chance.between(20, self._simulation.options.fault_ms)
        self._simulation.scheduler.after(delay_ms * 1000, call, argument)

    def _any(self) -> SimulatedMachine:
        machines = self._simulation.ordered
        return machines[self._chance.randrange(len(machines))]

    def _leader(self) -> SimulatedMachine:
        """Of some partition."""
        simulation = self._simulation
        leaders = [
            partition.leader
            for _, partition in partitions_of(simulation.image_oracles.newest)
            if partition.leader != NO_LEADER
        ]
        return simulation.machines[leaders[self._chance.randrange(len(leaders))]] if leaders else self._any()

    # Ends of processes.

    def _kill(self, machine: SimulatedMachine) -> bool:
        if machine.life is None:
            return False
        self._simulation.counters.kills += 1
        machine.kill()
        self.restart_later(machine)
        return True

    def _kill_one(self) -> bool:
        return self._kill(self._any())

    def _kill_leader(self) -> bool:
        return self._kill(self._leader())

    def _kill_last_in_sync(self) -> bool:
        """A leader that is alone in its ISR."""
        for _, partition in partitions_of(self._simulation.image_oracles.newest):
            if len(partition.isr) == 1 and self._kill(self._simulation.machines[partition.isr[0]]):
                return True
        return False

    def _kill_controller(self) -> bool:
        for machine in self._simulation.ordered:
            if machine.life is not None and machine.life.metadata.is_active:
                return self._kill(machine)
        return False

    def _kill_many(self) -> bool:
        killed = [self._kill(each) for each in self._simulation.ordered if self._chance.happens(0.6)]
        return any(killed)

    def _stop_in_order(self) -> bool:
        machine = self._any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self._tell(f"node {life.id} is told to stop")
        life.enter("stop", life.shut_down)
        return True

    def restart_later(self, machine: SimulatedMachine) -> None:
        if self._is_over:
            self._simulation.scheduler.after(50_000, self._restart, (machine, machine.lives))
        else:
            self._later(self._restart, (machine, machine.lives))

    def _restart(self, planned: tuple[SimulatedMachine, int]) -> None:
        machine, lives = planned
        if machine.lives == lives and machine.life is None:
            machine.start()

    # Power.

    def _lose_power(self) -> bool:
        return self._cut_power(self._any(), None)

    def _lose_power_of_second(self) -> bool:
        """Of the only follower that is in sync."""
        image = self._simulation.image_oracles.newest
        for _, partition in partitions_of(image):
            seconds = [each for each in partition.isr if each != partition.leader]
            if len(seconds) == 1 and self._cut_power(self._simulation.machines[seconds[0]], None):
                return True
        return False

    def _lose_power_of_newcomer(self) -> bool:
        """Of the next that is on its way into an ISR, and it is back at once."""
        self._await_newcomer(self._simulation.scheduler.now_us + NEWCOMER_WITHIN_US)
        return True

    def _await_newcomer(self, until_us: int) -> None:
        scheduler = self._simulation.scheduler
        if self._is_over or scheduler.now_us > until_us:
            return
        if self._fragile is None:
            for machine in self._simulation.ordered:
                for key, pending in _proposals_of(machine.life):
                    added = [each for each in pending.isr if each not in _isr(self._simulation, key)]
                    if added and self._cut_power(self._simulation.machines[added[0]], key):
                        return
        scheduler.after(NEWCOMER_LOOK_US, self._await_newcomer, until_us)

    def _cut_power(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """`joining`: the partition whose leader has asked for it, which does not stand in the way."""
        if machine.life is None or not self._survives_without(machine, joining):
            return False
        simulation = self._simulation
        simulation.counters.power_losses += 1
        machine.lose_power()
        if joining is None:
            self.restart_later(machine)
        else:
            delay_us = self._chance.between(10_000, 60_000)
            simulation.scheduler.after(delay_us, self._restart, (machine, machine.lives))
        self._count_as_without_power(machine)
        return True

    # Disks.

    def _let_a_sync_fail(self, _: Any) -> None:
        """One of the next of some broker."""
        if self._is_over:
            return
        machines = [each for each in self._simulation.ordered if each.is_broker]
        machine = machines[self._disk_chance.randrange(len(machines))]
        machine.disk.fails_sync = partial(self._fails, machine)
        mean_ms = 4 * self._simulation.options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * self._disk_chance.uniform()))
        self._simulation.scheduler.after(delay_us, self._let_a_sync_fail)

    def _fails(self, machine: SimulatedMachine, path: str) -> bool:
        """Of a partition's file it takes what a power loss would take, so it comes only where that may come."""
        life = machine.life
        if self._is_over or self._fragile is not None or life is None or not life.is_serving:
            return False
        if life.is_stopping or not self._survives_without(machine, None):
            return False
        machine.disk.fails_sync = lambda path: False
        self._tell(f"node {machine.id}: the sync of {path} fails")
        if self._disk_chance.happens(0.4):
            lasts_us = self._disk_chance.between(200, 2_000) * 1000
            until_us = self._simulation.scheduler.now_us + lasts_us
            machine.disk.fails_sync = partial(self._goes_on_failing, machine, directory_of(path), until_us)
        self.count += 1
        self._simulation.counters.failed_syncs += 1
        self._count_as_without_power(machine)
        planned = machine, machine.lives, posixpath.dirname(path)
        self._simulation.scheduler.after(HALTS_WITHIN_US, self._look_whether_halted, planned)
        return True

    def _goes_on_failing(self, machine: SimulatedMachine, directory: str, until_us: int, path: str) -> bool:
        """Each sync there, while nobody counts on the machine."""
        return (
            not self._is_over
            and self._fragile == machine.id
            and self._simulation.scheduler.now_us < until_us
            and directory_of(path) == directory
        )

    def _look_whether_halted(self, planned: tuple[SimulatedMachine, int, str]) -> None:
        machine, lives, directory = planned
        life = machine.life
        if life is None or machine.lives != lives or life.is_stopping:
            return
        kept = {log.directory for log in life.logs.logs.values()}
        is_kept = directory in kept or life.has_online(directory)
        if is_kept or directory.startswith(METADATA_DIRECTORY):
            raise Breach("no trust after a failed sync", f"node {machine.id} runs on, of {directory}")
        if life.has_lost_directories:
            return  # It is started anew, by which the controller will know.
        # Of a topic that was deleted.
        self._fragile = None
        self._simulation.partition_oracles.power_is_harmless_again(machine.id)

    def halted(self, machine: SimulatedMachine) -> None:
        """A node ends itself for what its disk has told it."""
        self._tell(f"node {machine.id} halts")
        self._simulation.counters.halts += 1
        self.end_within(machine)

    def end_within(self, machine: SimulatedMachine) -> None:
        """Its process ends in the midst of a step."""
        if machine.life is not None:
            self._simulation.partition_oracles.dies_within(machine.life)
            machine.life.die(silently=False)
        self.restart_later(machine)

    def _count_as_without_power(self, machine: SimulatedMachine) -> None:
        simulation = self._simulation
        simulation.partition_oracles.power_lost(machine.id)
        if machine.is_broker:
            self._fragile = machine.id
            known = simulation.image_oracles.newest.brokers.get(machine.id)
            self._look_whether_noticed((machine.id, -1 if known is None else known.epoch))

    def _survives_without(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """Whoever counts on this one's replicas has others that are in sync and at work."""
        if self._cut or not machine.is_broker:
            return not machine.is_broker
        if not self._metadata_is_settled():
            return False
        for key, partition in partitions_of(self._simulation.image_oracles.newest):
            is_leaders_turn = key != joining and self._is_about_to_change(key)
            if machine.id in partition.replicas and is_leaders_turn:
                return False
            if key == joining and partition.removing_replicas:
                return False  # taken in, it may end the move, and be the only one that stays
            is_led = partition.leader in (NO_LEADER, machine.id) or self._is_at_work(partition.leader)
            if machine.id in partition.replicas and not is_led:
                return False
            others = set(partition.isr) - {machine.id}
            if machine.id in _counted_on(partition) and not (others and all(map(self._is_at_work, others))):
                return False
        return True

    def _is_at_work(self, machine_id: int) -> bool:
        machine = self._simulation.machines[machine_id]
        life = machine.life
        broker = self._simulation.image_oracles.newest.brokers.get(machine_id)
        return (
            life is not None
            and machine.is_well
            and not life.is_paused
            and not life.is_stopping
            and broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and life.heartbeats is not None
            and life.heartbeats.broker_epoch == broker.epoch
        )

    def _metadata_is_settled(self) -> bool:
        """Somebody is the active controller, and all that was ever proposed is committed or lost. It has been active for so
        long that it has heard from every broker: one at work that it fenced would leave the lost replica the only one in sync."""
        newest = self._simulation.image_oracles.newest
        known_us = self._simulation.scheduler.now_us - 2000 * self._simulation.options.session_ms
        return any(
            life is not None
            and life.metadata.is_active
            and life.active_since_us <= known_us
            and life.metadata.image.offset == newest.offset
            and life.driver.is_all_committed
            for life in (machine.life for machine in self._simulation.ordered)
        )

    def _is_about_to_change(self, key: Key) -> bool:
        return any(
            key == proposed_for
            for machine in self._simulation.ordered
            for proposed_for, _ in _proposals_of(machine.life)
        )

    def _look_whether_noticed(self, fragile: tuple[int, int]) -> None:
        """The controller counts on the machine no more and will not, or has taken its next life in, by which it knows."""
        machine_id, epoch = fragile
        simulation = self._simulation
        image = simulation.image_oracles.newest
        broker = image.brokers.get(machine_id)
        is_counted_on = any(machine_id in _counted_on(each) for _, each in partitions_of(image))
        if broker is not None and broker.epoch == epoch and (is_counted_on or not broker.fenced):
            simulation.scheduler.after(LOOK_AGAIN_US // 4, self._look_whether_noticed, fragile)
            return
        self._fragile = None
        simulation.partition_oracles.power_is_harmless_again(machine_id)

    # Pauses and the network.

    def _pause(self) -> bool:
        machine = self._leader() if self._chance.happens(0.5) else self._any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self._tell(f"node {life.id} is paused")
        life.pause()
        self._simulation.counters.pauses += 1
        self._later(self._resume, life)
        return True

    def _pause_beyond_session(self) -> bool:
        """Until just after the controller has given it up: it is taken back as the one that it was."""
        life = self._any().life
        if life is None or life.is_paused:
            return False
        self._tell(f"node {life.id} is paused")
        life.pause()
        self._simulation.counters.pauses += 1
        session_ms = self._simulation.options.session_ms
        self._simulation.scheduler.after(
            self._chance.between(session_ms, session_ms + 300) * 1000, self._resume, life
        )
        return True

    def _resume(self, life: Life) -> None:
        if life.alive and life.is_paused:
            self._tell(f"node {life.id} goes on")
            life.resume()

    def _sever(self, links: list[tuple[int, int]]) -> bool:
        self._tell(f"cut: {links}")
        self._simulation.network.cut(links)
        self._cut.append(links)
        self._later(self._mend, links)
        return bool(links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        self._cut.remove(links)
        self._tell(f"mended: {links}")
        if not self._is_over:
            self._simulation.network.mend(links)

    def _split(self) -> bool:
        ids = [each.id for each in self._simulation.ordered]
        side = {each for each in ids if self._chance.happens(0.5)}
        self._simulation.counters.partitions += 1
        return self._sever([(a, b) for a in ids for b in ids if (a in side) != (b in side)])

    def _isolate_one(self, lonely: int) -> bool:
        others = [each.id for each in self._simulation.ordered if each.id != lonely]
        self._simulation.counters.partitions += 1
        return self._sever([(lonely, other) for other in others] + [(other, lonely) for other in others])

    def _isolate(self) -> bool:
        return self._isolate_one(self._any().id)

    def _isolate_leader(self) -> bool:
        return self._isolate_one(self._leader().id)

    def _cut_one_way(self) -> bool:
        lonely = self._any().id
        others = [each.id for each in self._simulation.ordered if each.id != lonely]
        self._simulation.counters.one_way_partitions += 1
        if self._chance.happens(0.5):
            return self._sever([(lonely, other) for other in others])
        return self._sever([(other, lonely) for other in others])

    def _reset_connections(self) -> bool:
        self._simulation.network.burst_loss = 0.1 + 0.5 * self._chance.uniform()
        self._later(self._end_burst, None)
        return True

    def _end_burst(self, _: Any) -> None:
        self._simulation.network.burst_loss = 0.0


def _isr(simulation: ClusterSimulation, key: Key) -> tuple[int, ...]:
    partition = simulation.image_oracles.partition(key)
    return () if partition is None else partition.isr


def _proposals_of(life: Life | None) -> Iterator[tuple[Key, PendingIsr]]:
    """The changes of in-sync sets that a node waits for."""
    if life is not None and life.partitions is not None:
        for key, core in life.partitions.by_id.items():
            if core.is_leader and core.pending is not None:
                yield key, core.pending


def _counted_on(partition: PartitionImage) -> set[int]:
    """By whom the controller thinks that they have everything."""
    return {
        *partition.isr,
        *partition.eligible_leader_replicas,
        *partition.last_known_elr,
        partition.leader,
    }
