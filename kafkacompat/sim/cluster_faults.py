"""The faults of a simulated cluster: kill -9 of any nodes, clean restarts, power losses, failed syncs, pauses, network
partitions in both directions and in one.

Kafka acknowledges records that are in the page caches of the ISR. So a power loss occurs only where Kafka's promise
covers it: on a machine all of whose partitions have another running replica in sync, and no other node fails until the
controller has noticed. kill -9 may occur at any time, also on all nodes at once. Each fault heals after a while.
`heal_all` ends all faults at once, for the liveness phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import NO_LEADER
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.faults.cuts import Cuts
from kafkacompat.sim.faults.deaths import Deaths
from kafkacompat.sim.faults.disk_faults import DiskFaults
from kafkacompat.sim.faults.failing_syncs import FailingSyncs
from kafkacompat.sim.faults.load_faults import LoadFaults
from kafkacompat.sim.faults.pool_faults import PoolFaults
from kafkacompat.sim.faults.slowness import Slowness
from kafkacompat.sim.image_oracles import Key, partitions_of

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, PartitionRegistration
    from kafkacompat.partition.partition import PendingPartitionChange
    from kafkacompat.sim.cluster_life import Life
    from kafkacompat.sim.cluster_simulation import ClusterSimulation
    from kafkacompat.sim.machine import SimulatedMachine

FIRST_FAULT_US = 2_500_000
"""No faults before this time, so that the cluster can start."""
NEWCOMER_WITHIN_US, NEWCOMER_LOOK_US = 1_000_000, 3_000
LOOK_AGAIN_US = 100_000


class ClusterFaults:
    def __init__(self, simulation: ClusterSimulation, chance: Chance) -> None:
        self._simulation = simulation
        self._chance = chance
        self.count = 0
        self.is_over = False
        self._cuts = Cuts(simulation, self, chance)
        self.fragile: int | None = None
        """The machine that lost power, until the controller no longer counts on its replicas."""
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
            self._cuts.pause_beyond_session,
            self._cuts.pause,
            self._cuts.split,
            self._cuts.isolate,
            self._cuts.isolate_leader,
            self._cuts.cut_one_way,
            self._cuts.reset_connections,
        )
        simulation.scheduler.after(FIRST_FAULT_US, self._strike)
        self.pools = PoolFaults(simulation, self.tell)
        self.deaths = Deaths(simulation, self.tell)
        self.loads = LoadFaults(simulation, self.tell)
        self._others = (
            DiskFaults(simulation, self.tell),
            Slowness(simulation, self.tell),
            self.pools,
            self.deaths,
            self.loads,
        )
        for each in self._others:
            each.begin()
        FailingSyncs(simulation, self).begin(FIRST_FAULT_US)

    def _strike(self, _: Any) -> None:
        if self.is_over:
            return
        if self.fragile is not None:
            self._simulation.scheduler.after(LOOK_AGAIN_US, self._strike)
            return
        if self._kinds[self._chance.randrange(len(self._kinds))]():
            self.count += 1
        mean_ms = self._simulation.options.fault_interval_ms
        delay_us = int(mean_ms * 1000 * (0.2 + 1.6 * self._chance.uniform()))
        self._simulation.scheduler.after(delay_us, self._strike)

    @property
    def spares(self) -> bool:
        """Whether no other node may fail now, because the controller still counts on a machine that has lost data."""
        return self.fragile is not None

    @property
    def has_cuts(self) -> bool:
        """Whether some nodes cannot reach others."""
        return bool(self._cuts.links)

    def spares_others_than(self, machine_id: int) -> bool:
        return self.fragile not in (None, machine_id)

    def heal_all(self) -> None:
        simulation = self._simulation
        self.is_over = True
        self.tell("all is healed")
        for each in self._others:
            each.end()
            self.count += each.count
        simulation.network.calm(3_000)
        for machine in simulation.ordered:
            if machine.life is None:
                machine.start()
            elif machine.life.is_paused:
                machine.life.resume()

    def tell(self, what: str) -> None:
        if self._simulation.tell is not None:
            self._simulation.tell(f"*** {what}")

    def later(self, call: Callable[[Any], None], argument: Any) -> None:
        delay_ms = self._chance.between(20, self._simulation.options.fault_ms)
        self._simulation.scheduler.after(delay_ms * 1000, call, argument)

    def any(self) -> SimulatedMachine:
        machines = self._simulation.ordered
        return machines[self._chance.randrange(len(machines))]

    def leader(self) -> SimulatedMachine:
        """Return the leader of a random partition."""
        simulation = self._simulation
        leaders = [
            partition.leader
            for _, partition in partitions_of(simulation.image_oracles.newest)
            if partition.leader != NO_LEADER
        ]
        return simulation.machines[leaders[self._chance.randrange(len(leaders))]] if leaders else self.any()

    # Ends of processes.

    def _kill(self, machine: SimulatedMachine) -> bool:
        if machine.life is None:
            return False
        self._simulation.counters.kills += 1
        machine.kill()
        self.restart_later(machine)
        return True

    def _kill_one(self) -> bool:
        return self._kill(self.any())

    def _kill_leader(self) -> bool:
        return self._kill(self.leader())

    def _kill_last_in_sync(self) -> bool:
        """Kill a leader that is alone in its ISR."""
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
        machine = self.any()
        life = machine.life
        if life is None or life.is_paused:
            return False
        self.tell(f"node {life.id} is told to stop")
        life.enter("stop", life.shut_down)
        return True

    def restart_later(self, machine: SimulatedMachine) -> None:
        if self.is_over:
            self._simulation.scheduler.after(50_000, self._restart, (machine, machine.lives))
        else:
            self.later(self._restart, (machine, machine.lives))

    def _restart(self, planned: tuple[SimulatedMachine, int]) -> None:
        machine, lives = planned
        if machine.lives == lives and machine.life is None:
            machine.start()

    # Power losses.

    def _lose_power(self) -> bool:
        return self._cut_power(self.any(), None)

    def _lose_power_of_second(self) -> bool:
        """Cut the power of a partition's only follower that is in sync."""
        image = self._simulation.image_oracles.newest
        for _, partition in partitions_of(image):
            seconds = [each for each in partition.isr if each != partition.leader]
            if len(seconds) == 1 and self._cut_power(self._simulation.machines[seconds[0]], None):
                return True
        return False

    def _lose_power_of_newcomer(self) -> bool:
        """Cut the power of a replica that is about to join an ISR, and restart it at once."""
        self._await_newcomer(self._simulation.scheduler.now_us + NEWCOMER_WITHIN_US)
        return True

    def _await_newcomer(self, until_us: int) -> None:
        scheduler = self._simulation.scheduler
        if self.is_over or scheduler.now_us > until_us:
            return
        if self.fragile is None:
            for machine in self._simulation.ordered:
                for key, pending in _proposals_of(machine.life):
                    added = [each for each in pending.isr if each not in _isr(self._simulation, key)]
                    if added and self._cut_power(self._simulation.machines[added[0]], key):
                        return
        scheduler.after(NEWCOMER_LOOK_US, self._await_newcomer, until_us)

    def _cut_power(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """Cut a machine's power if that is allowed. `joining` is a partition whose leader has asked to add the
        machine's replica. It does not prevent the fault."""
        if machine.life is None or not self.survives_without(machine, joining):
            return False
        simulation = self._simulation
        simulation.counters.power_losses += 1
        machine.lose_power()
        if joining is None:
            self.restart_later(machine)
        else:
            delay_us = self._chance.between(10_000, 60_000)
            simulation.scheduler.after(delay_us, self._restart, (machine, machine.lives))
        self.count_as_without_power(machine)
        return True

    def halted(self, machine: SimulatedMachine) -> None:
        """A node has halted itself because of a disk error."""
        self.tell(f"node {machine.id} halts")
        self._simulation.counters.halts += 1
        self.end_within(machine)

    def end_within(self, machine: SimulatedMachine) -> None:
        """The process ends in the middle of a step."""
        if machine.life is not None:
            self._simulation.partition_oracles.dies_within(machine.life)
            machine.life.die(silently=False)
        self.restart_later(machine)

    def count_as_without_power(self, machine: SimulatedMachine) -> None:
        simulation = self._simulation
        simulation.partition_oracles.power_lost(machine.id)
        if machine.is_broker:
            self.fragile = machine.id
            known = simulation.image_oracles.newest.brokers.get(machine.id)
            self._look_whether_noticed((machine.id, -1 if known is None else known.epoch))

    def survives_without(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """Whether every partition that counts on this machine's replicas has other running replicas in sync."""
        if self.has_cuts or not machine.is_broker:
            return not machine.is_broker
        if not self._metadata_is_settled():
            return False
        for key, partition in partitions_of(self._simulation.image_oracles.newest):
            is_leaders_turn = key != joining and self._is_about_to_change(key)
            if machine.id in partition.replicas and is_leaders_turn:
                return False
            if key == joining and partition.removing_replicas:
                return False  # once added, the replica may complete the reassignment and be the only one that remains
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
            and self._is_heard(broker)
        )

    def _is_heard(self, broker: BrokerRegistration) -> bool:
        """Whether the controller heard from the broker recently. After a healed partition, a broker may still be
        fenced at any moment."""
        margin_ms = self._simulation.options.session_ms // 2
        return any(
            life.liveness.sessions.has_valid_session(
                broker.id, broker.epoch, life.liveness.now_ms() + margin_ms
            )
            for life in (machine.life for machine in self._simulation.ordered)
            if life is not None and life.liveness is not None and life.metadata.is_active
        )

    def _metadata_is_settled(self) -> bool:
        """Whether there is an active controller, and everything ever proposed is committed or lost.

        The controller must have been active long enough to have heard from every broker. If it fenced a running one,
        the lost replica could be the only one in sync.
        """
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
        """Check whether the controller no longer counts on the machine and will not again, or has registered its next
        incarnation."""
        machine_id, epoch = fragile
        simulation = self._simulation
        image = simulation.image_oracles.newest
        broker = image.brokers.get(machine_id)
        is_counted_on = any(machine_id in _counted_on(each) for _, each in partitions_of(image))
        if broker is not None and broker.epoch == epoch and (is_counted_on or not broker.fenced):
            simulation.scheduler.after(LOOK_AGAIN_US // 4, self._look_whether_noticed, fragile)
            return
        self.fragile = None
        simulation.partition_oracles.power_is_harmless_again(machine_id)


def _isr(simulation: ClusterSimulation, key: Key) -> tuple[int, ...]:
    partition = simulation.image_oracles.partition(key)
    return () if partition is None else partition.isr


def _proposals_of(life: Life | None) -> Iterator[tuple[Key, PendingPartitionChange]]:
    """Yield the ISR changes for which a node waits."""
    if life is not None and life.partitions is not None:
        for key, core in life.partitions.by_id.items():
            if core.is_leader and core.pending is not None:
                yield key, core.pending


def _counted_on(partition: PartitionRegistration) -> set[int]:
    """Return the replicas that the controller considers complete."""
    return {
        *partition.isr,
        *partition.eligible_leader_replicas,
        *partition.last_known_elr,
        partition.leader,
    }
