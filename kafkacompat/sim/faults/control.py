"""What all faults of a simulated cluster have in common: which machine may lose data now, and how processes end and start.

Kafka acknowledges records that are in the page caches of the ISR. So data are lost only where Kafka's promise covers it: on
a machine all of whose partitions have another running replica in sync, and no other node fails until the controller has
noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import NO_LEADER
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.committed_metadata import Key, partitions_of
from kafkacompat.sim.machine import Life, Machines, SimulatedMachine
from kafkacompat.sim.partition_oracles import PartitionOracles
from kafkacompat.sim.processes import Environment

if TYPE_CHECKING:
    from kafkacompat.controller.image import BrokerRegistration, PartitionRegistration
    from kafkacompat.partition.partition import PendingPartitionChange

LOOK_AGAIN_US = 100_000


class FaultControl:
    def __init__(self, env: Environment, machines: Machines, oracles: PartitionOracles) -> None:
        self.env = env
        self.machines = machines
        self.oracles = oracles
        self.chance = Chance(env.seed, "faults")
        self.count = 0
        """Faults that have occurred."""
        self.is_over = False
        self.fragile: int | None = None
        """The machine that lost power, until the controller no longer counts on its replicas."""

    @property
    def spares(self) -> bool:
        """Whether no other node may fail now, because the controller still counts on a machine that has lost data."""
        return self.fragile is not None

    @property
    def has_cuts(self) -> bool:
        """Whether some nodes cannot reach others."""
        return bool(self.env.network.severed)

    def spares_others_than(self, machine_id: int) -> bool:
        return self.fragile not in (None, machine_id)

    def tell(self, what: str) -> None:
        if self.env.tell is not None:
            self.env.tell(f"*** {what}")

    def later(self, call: Callable[[Any], None], argument: Any) -> None:
        delay_ms = self.chance.between(20, self.env.options.fault_ms)
        self.env.scheduler.after(delay_ms * 1000, call, argument)

    def any(self) -> SimulatedMachine:
        machines = self.machines.ordered
        return machines[self.chance.randrange(len(machines))]

    def leader(self) -> SimulatedMachine:
        """Return the leader of a random partition."""
        leaders = [
            partition.leader
            for _, partition in partitions_of(self.env.metadata.newest)
            if partition.leader != NO_LEADER
        ]
        return self.machines.by_id[leaders[self.chance.randrange(len(leaders))]] if leaders else self.any()

    # Processes.

    def restart_later(self, machine: SimulatedMachine) -> None:
        if self.is_over:
            self.env.scheduler.after(50_000, self.restart, (machine, machine.lives))
        else:
            self.later(self.restart, (machine, machine.lives))

    def restart(self, planned: tuple[SimulatedMachine, int]) -> None:
        machine, lives = planned
        if machine.lives == lives and machine.life is None:
            machine.start()

    def halted(self, machine: SimulatedMachine) -> None:
        """A node has halted itself because of a disk error."""
        self.tell(f"node {machine.id} halts")
        self.env.counters.halts += 1
        self.end_within(machine)

    def end_within(self, machine: SimulatedMachine) -> None:
        """The process ends in the middle of a step."""
        if machine.life is not None:
            self.oracles.dies_within(machine.life)
            machine.life.die(silently=False)
        self.restart_later(machine)

    def count_as_without_power(self, machine: SimulatedMachine, directory: str | None = None) -> None:
        """`directory`: the name of the only one in which something is lost."""
        self.oracles.power_lost(machine.id, directory)
        if machine.is_broker:
            self.fragile = machine.id
            known = self.env.metadata.newest.brokers.get(machine.id)
            self._look_whether_noticed((machine.id, -1 if known is None else known.epoch))

    def survives_without(self, machine: SimulatedMachine, joining: Key | None) -> bool:
        """Whether every partition that counts on this machine's replicas has other running replicas in sync."""
        if self.has_cuts or not machine.is_broker:
            return not machine.is_broker
        if not self._metadata_is_settled():
            return False
        for key, partition in partitions_of(self.env.metadata.newest):
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
        machine = self.machines.by_id[machine_id]
        life = machine.life
        broker = self.env.metadata.newest.brokers.get(machine_id)
        return (
            life is not None
            and machine.is_well
            and not life.is_paused
            and not life.is_stopping
            and broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and life.lifecycle is not None
            and life.lifecycle.broker_epoch == broker.epoch
            and self._is_heard(broker)
        )

    def _is_heard(self, broker: BrokerRegistration) -> bool:
        """Whether the controller heard from the broker recently. After a healed partition, a broker may still be
        fenced at any moment."""
        margin_ms = self.env.options.session_ms // 2
        return any(
            life.liveness.sessions.has_valid_session(
                broker.id, broker.epoch, life.liveness.now_ms() + margin_ms
            )
            for life in (machine.life for machine in self.machines.ordered)
            if life is not None and life.liveness is not None and life.metadata.is_active
        )

    def _metadata_is_settled(self) -> bool:
        """Whether there is an active controller, and everything ever proposed is committed or lost.

        The controller must have been active long enough to have heard from every broker. If it fenced a running one,
        the lost replica could be the only one in sync.
        """
        newest = self.env.metadata.newest
        known_us = self.env.scheduler.now_us - 2000 * self.env.options.session_ms
        return any(
            life is not None
            and life.metadata.is_active
            and life.active_since_us <= known_us
            and life.metadata.image.offset == newest.offset
            and life.driver.is_all_committed
            for life in (machine.life for machine in self.machines.ordered)
        )

    def _is_about_to_change(self, key: Key) -> bool:
        return any(
            key == proposed_for
            for machine in self.machines.ordered
            for proposed_for, _ in proposals_of(machine.life)
        )

    def _look_whether_noticed(self, fragile: tuple[int, int]) -> None:
        """Check whether the controller no longer counts on the machine and will not again, or has registered its next
        incarnation."""
        machine_id, epoch = fragile
        image = self.env.metadata.newest
        broker = image.brokers.get(machine_id)
        is_counted_on = any(machine_id in _counted_on(each) for _, each in partitions_of(image))
        if broker is not None and broker.epoch == epoch and (is_counted_on or not broker.fenced):
            self.env.scheduler.after(LOOK_AGAIN_US // 4, self._look_whether_noticed, fragile)
            return
        self.fragile = None
        self.oracles.power_is_harmless_again(machine_id)


def proposals_of(life: Life | None) -> Iterator[tuple[Key, PendingPartitionChange]]:
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
