"""New settings for the logs of partitions: for some of them at once, for the others in later steps.

A cluster-wide setting concerns every partition of the node, and each topic with settings of its own needs a new LogConfig.
Until its turn a partition keeps its former settings, as if this broker had received the image later. What the controller
decides by the new settings must not be met by the old ones: a partition takes its settings before a role or an ISR
(`first`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Timers

GIVEN_AT_ONCE_MAX = 200
"""Partitions that get the settings of an image at once, at up to 30 us each."""
GIVEN_A_STEP = 200


class Reconfiguring:
    """Bounded by the partitions of this node."""

    __slots__ = ("_advance", "_fail", "_is_planned", "_log_config", "_timers", "_waiting")

    def __init__(
        self,
        timers: Timers,
        log_config: Callable[[str], LogConfig],
        advance: Callable[[Partition], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`log_config` gives a topic's settings by the newest image. `advance` looks whether a partition's high watermark
        advances by its new settings. `fail` halts the node."""
        self._timers = timers
        self._log_config = log_config
        self._advance = advance
        self._fail = fail
        self._waiting: dict[Partition, None] = {}
        self._is_planned = False

    def begin(self, cores: Sequence[Partition]) -> Sequence[Partition]:
        """Returns the partitions that have their settings now. The caller looks at their high watermarks when the roles of
        the same image are taken."""
        at_once, later = cores[:GIVEN_AT_ONCE_MAX], cores[GIVEN_AT_ONCE_MAX:]
        for core in at_once:
            self._waiting.pop(core, None)
        self._give(at_once)
        self._waiting.update(dict.fromkeys(later))
        self._plan()
        return at_once

    def first(self, core: Partition) -> None:
        """Give this partition its settings now, if it waits for them."""
        if self._waiting and core in self._waiting:
            del self._waiting[core]
            self._give((core,))

    def gone(self, core: Partition) -> None:
        self._waiting.pop(core, None)

    def _give(self, cores: Iterable[Partition]) -> None:
        """Partitions of a topic share its settings."""
        configs: dict[str, LogConfig] = {}
        for core in cores:
            topic = core.topic_partition.topic
            config = configs.get(topic)
            if config is None:
                config = configs[topic] = self._log_config(topic)
            core.log.config = config

    def _plan(self) -> None:
        if self._waiting and not self._is_planned:
            self._is_planned = True
            self._timers.call_after(0, self._step)

    def _step(self) -> None:
        self._is_planned = False
        waiting = self._waiting
        try:
            # The last ones first: taking from the front of a large dictionary passes over everything taken before.
            some = [waiting.popitem()[0] for _ in range(min(len(waiting), GIVEN_A_STEP))]
            self._give(some)
            for core in some:
                self._advance(core)
        except Exception as problem:
            self._fail(problem)
            return
        self._plan()
