"""A Kafka in a process of its own: what runs in that process. The tests' end is kafka_process.py.

What tests must know even after this process was killed, it tells them at once: which disks are in use, what was logged, which
requests there were, which faults were hit.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.exchanges.exchange import Exchange
from kafkacompat.exchanges.recorded import Recorded
from kafkacompat.testing.channel import Channel
from kafkacompat.testing.exchange import bytes_of
from kafkacompat.testing.exchanges import Exchanges
from kafkacompat.testing.faults import Fault, Faults, Rule
from kafkacompat.testing.folder_disk import FolderDisk, new_folder
from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.log import BrokerLog
from kafkacompat.testing.ports import GivenPorts, ReservedPorts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kafkacompat.testing.kafka import TestDisk

PARENT_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class SentFault:
    """A fault, as it goes from process to process."""

    number: int
    rule: Rule
    """Without the function of the test."""
    has_function: bool
    hits: int = 0
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to be."""

    name: str
    arguments: Mapping[str, Any]
    """Of `Kafka`."""
    ports: Sequence[int]
    folder: str
    cluster_id: str
    clock: Any
    records_requests: bool
    watches_requests: bool
    faults: Sequence[SentFault]
    disks: Mapping[int, FolderDisk] | None = None
    """None: new ones."""


class HostedFaults(Faults):
    """The faults of the tests. They are told what is hit."""

    def __init__(self, changed: Callable[[], None], channel: Channel) -> None:
        super().__init__(changed)
        self._channel = channel
        self._numbers: dict[Fault, int] = {}
        self._own = -1
        """Faults that begin here have negative numbers."""

    def put(self, sent: SentFault) -> None:
        rule = sent.rule
        if sent.has_function:
            rule = replace(rule, when=lambda request: bool(self._channel.call("when", sent.number, request)))
        fault = Fault(rule, self)
        fault.go_on_from(sent.hits, sent.seen)
        self._numbers[fault] = sent.number
        with self._met:
            self._all.append(fault)
            self.active = (*self.active, fault)
        self._changed()

    def sent(self, fault: Fault) -> SentFault:
        """One that has begun here."""
        with self._met:
            number = self._numbers.setdefault(fault, self._own)
            self._own = min(self._own, number - 1)
            return SentFault(number, replace(fault.rule, when=None), False, *fault.counts)

    def take(self, number: int) -> None:
        for fault, each in list(self._numbers.items()):
            if each == number:
                self.remove(fault)

    def clear(self) -> None:
        super().clear()
        self._numbers.clear()

    def _is_hit(self, fault: Fault, node: int) -> bool:
        is_hit = super()._is_hit(fault, node)
        number = self._numbers.get(fault)
        if number is not None:
            self._channel.tell("counted", number, *fault.counts)
        return is_hit


class HostedLog(BrokerLog):
    def __init__(self, prefix: str, channel: Channel) -> None:
        super().__init__(prefix)
        self._channel = channel

    def add(self, line: str) -> None:
        self._channel.tell("log", line)


class HostedExchanges(Exchanges):
    def __init__(self, inner: Exchanges, channel: Channel) -> None:
        super().__init__(inner.state_of)
        self._channel = channel

    def keep(self, recorded: Recorded) -> None:
        self._channel.tell("recorded", recorded)


class HostedKafka(Kafka):
    """The Kafka of this process, with what the tests have reserved for it."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self._order = order
        self._channel = channel
        super().__init__(**order.arguments)
        self.name = order.name
        self._cluster_id = order.cluster_id
        self._log = HostedLog(order.name, channel)
        self._exchanges = HostedExchanges(self._exchanges, channel)
        faults = HostedFaults(self._hooks.look, channel)
        self._hooks.faults = faults
        self.hosted_faults = faults
        for each in order.faults:
            faults.put(each)
        self.clock.set_state(order.clock)
        if order.records_requests:
            self.record_requests()
        if order.watches_requests:
            self.watch()

    def _reserved_ports(self) -> ReservedPorts:
        return GivenPorts(self._order.ports)

    def _new_disk(self) -> TestDisk:
        return FolderDisk(new_folder(self._order.folder), self.clock.now_ms)

    def _use(self, disks: dict[int, TestDisk]) -> None:
        super()._use(disks)
        self._channel.tell("disks", disks)

    # What the tests call.

    def begin(self) -> Any:
        """Returns the state to which a reset goes back."""
        disks = self._order.disks
        if disks is None:
            self.start()
            return self._blank
        self._begin({node_id: FolderDisk(each.folder, self.clock.now_ms) for node_id, each in disks.items()})
        return None

    def catch_up(self) -> None:
        """What was told before has arrived when this is answered."""

    def watch(self) -> None:
        self.watch_requests(self._tell_exchange)

    def _tell_exchange(self, exchange: Exchange) -> None:
        reply = exchange.reply
        self._channel.call("watch", replace(exchange, reply=None if reply is None else [bytes_of(reply)]))

    def running_nodes(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    def paused_nodes(self) -> list[int]:
        return [node_id for node_id in self.nodes if node_id in self.paused]

    def resume_all(self) -> None:
        self.paused.resume_all()

    def move_clock(self, name: str, *arguments: Any, **named: Any) -> None:
        getattr(self.clock, name)(*arguments, **named)

    def clock_state(self) -> Any:
        return self.clock.state()

    def shrunk_isr(self, *arguments: Any, **named: Any) -> SentFault:
        return self.hosted_faults.sent(self.shrink_isr(*arguments, **named))

    def put_fault(self, sent: SentFault) -> None:
        self.hosted_faults.put(sent)

    def take_fault(self, number: int) -> None:
        self.hosted_faults.take(number)

    def clear_faults(self) -> None:
        self.hosted_faults.clear()


def host(connection: Connection, folder: str, parent: int) -> None:
    """Be a Kafka until the tests end, or the parent. They end this process with a signal otherwise."""
    kafkas: list[HostedKafka] = []

    def serve(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "order":
            (order,) = arguments
            kafkas.append(HostedKafka(order, channel))
            return kafkas[0].begin()
        return getattr(kafkas[0], name)(*arguments, **named)

    channel = Channel(connection, serve, lambda *_: None)
    threading.Thread(target=channel.run, name="tests", daemon=True).start()
    while os.getppid() == parent:
        if channel.ended.wait(PARENT_LOOK_S):
            # Without its parent the tests may live, and another process may use the folder already.
            if os.getppid() == parent:
                shutil.rmtree(folder, ignore_errors=True)
            return
