"""All oracles of a simulated cluster. Nodes report to them. And exceptions that a node's parts log with a traceback.

Such exceptions are unexpected: the broker continues, but the simulation fails. Exceptions caused by refusing disks are
excluded, because disks fail in simulations. A planted bug counts as noticed also if it is logged without a traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kafkacompat.sim.counters import ShareGroupCounters, StreamsGroupCounters
from kafkacompat.sim.image_oracles import ImageOracles
from kafkacompat.sim.mirror_oracles import MirrorOracles
from kafkacompat.sim.partition_oracles import ClientOracles, PartitionOracles
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.rights_oracle import RightsOracle
from kafkacompat.sim.share_oracles import GROUP_ID, ShareOracles
from kafkacompat.sim.streams_oracle import StreamsOracle
from kafkacompat.sim.views import MachineView, NodeView
from kafkacompat.sim.waiting_oracles import AnswerOracle, check_fetches
from kafkacompat.sim.workers import Unforeseen


class Listener(logging.Handler):
    def __init__(self, found: Callable[[BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self._found(error)
        for named in record.args if isinstance(record.args, tuple) else ():
            if isinstance(named, Unforeseen):
                self._found(named)


@contextmanager
def heard(found: Callable[[BaseException], None]) -> Iterator[None]:
    """`found` gets each exception that is logged, also if logging is disabled."""
    logger, listener = logging.getLogger("kafkacompat"), Listener(found)
    level, propagate = logger.level, logger.propagate
    if level > logging.ERROR:
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate


class ClusterOracles:
    def __init__(self, env: Environment, machines: Mapping[int, MachineView]) -> None:
        self.mirrors = MirrorOracles(env, machines) if env.options.mirror_ms else None
        self.partitions = self.mirrors or PartitionOracles(env, machines)
        self.images = ImageOracles(env, machines, self.partitions)
        self.clients = ClientOracles(env, machines, self.partitions)
        self.rights = RightsOracle(env, machines)
        self.answers = AnswerOracle(env, machines)
        self.share_counters = ShareGroupCounters(rounds=env.counters.rounds)
        self.shares: ShareOracles | None = None
        """None in a cluster without a share group."""
        if env.options.share_workers:
            self.shares = ShareOracles(env, machines, self.partitions, GROUP_ID, self.share_counters)
        self.streams_counters = StreamsGroupCounters()
        self.streams: StreamsOracle | None = None
        """None in a cluster without a streams group."""
        if env.options.streams_members:
            self.streams = StreamsOracle(env, machines, self.streams_counters)

    def after_event(self, life: NodeView) -> None:
        self.partitions.look(life)
        if self.shares is not None:
            self.shares.after_event(life)
        if self.streams is not None:
            self.streams.after_event(life)
        if life.alive and life.partitions is not None and life.fetches is not None:
            with life.machine.watched():
                check_fetches(life.id, life.partitions, life.fetches)
