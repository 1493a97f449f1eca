"""Assigns producer ids from blocks that the controller gives, and requests the next block before the current one ends.

As in Kafka, a block has 1000 ids and the next one is requested at 90 % use. So an id is never assigned twice in a
cluster, and a restart loses at most the rest of two blocks. While no id is available, Kafka refuses requests. Here
they may wait: `when_available`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.node.node_to_controller_channel_manager import UNANSWERED, NodeToControllerChannelManager
from kafkacompat.tasks import pause
from kafkacompat.wire.errors import code_of
from kafkacompat.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkacompat.wire.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

if TYPE_CHECKING:
    from kafkacompat.tasks import Tasks

PREFETCH_SHARE = 0.9
ALLOCATION_TIMEOUT_MS = 60_000
PARK_TIMEOUT_MS = 1_000
"""The time for which librdkafka would wait before it asks again."""
RESUMED_COST = 100
"""The cost of the answer to a request that has waited."""

logger = logging.getLogger(__name__)


class AllocationRefused(Exception):
    """The controller gave no block, for example because the broker epoch is not current."""


async def allocate_block(
    channel: NodeToControllerChannelManager, node_id: int, broker_epoch: Callable[[], int]
) -> tuple[int, int]:
    """A block of the active controller: (first id, count)."""
    request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=broker_epoch())
    response: AllocateProducerIdsResponse = await channel.request(request, ALLOCATION_TIMEOUT_MS)
    if response.error_code:
        raise AllocationRefused(f"AllocateProducerIds failed with {code_of(response.error_code).name}")
    return response.producer_id_start, response.producer_id_len


class RPCProducerIdManager:
    """`allocate` asks the controller for a new block: (first id, count). If it fails, the next request tries again."""

    __slots__ = (
        "_allocate",
        "_asked",
        "_end",
        "_next",
        "_prefetch_at",
        "_spare",
        "_tasks",
        "_waiting",
    )

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]], tasks: Tasks) -> None:
        self._allocate = allocate
        self._tasks = tasks
        self._waiting: list[Deferred[None]] = []
        """Of the requests that wait for a block, for PARK_TIMEOUT_MS at most."""
        self._asked = False
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._spare: tuple[int, int] | None = None

    def next_producer_id(self) -> int | None:
        """Return a new id, or None while a block is being requested (COORDINATOR_LOAD_IN_PROGRESS)."""
        if self._next >= self._end:
            if self._spare is None:
                self._ask()
            self._take_spare()
            if self._next >= self._end:
                return None
        producer_id = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._spare is None:
            self._ask()
        return producer_id

    def when_available(self) -> Deferred[None]:
        """Resolve when an id is available (at once if one is now), when the controller gives no block, or after
        PARK_TIMEOUT_MS."""
        if self._next < self._end or self._spare is not None:
            return Deferred.of(None)
        arrival: Deferred[None] = Deferred()
        self._waiting.append(arrival)
        if len(self._waiting) == 1:
            self._tasks.start("patience for a block of producer ids", self._let_go_later(self._waiting))
            self._ask()
        return arrival

    async def _let_go(self) -> None:
        """Each connection may have a request that waits, so each turn of the loop resumes some."""
        waiting, self._waiting = self._waiting, []
        for at, arrival in enumerate(waiting):
            if at:
                await pause(RESUMED_COST)
            arrival.resolve(None)

    async def _let_go_later(self, waiting: list[Deferred[None]]) -> None:
        await self._tasks.sleep(PARK_TIMEOUT_MS)
        if self._waiting is waiting:
            await self._let_go()

    def _take_spare(self) -> None:
        if self._spare is not None:
            first, count = self._spare
            self._spare = None
            self._next, self._end = first, first + count
            self._prefetch_at = first + int(count * PREFETCH_SHARE)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._tasks.start("a block of producer ids", self._fetch_block())

    async def _fetch_block(self) -> None:
        try:
            self._spare = await self._allocate()
        except Exception as error:
            if not isinstance(error, (AllocationRefused, *UNANSWERED)):
                report("allocating a block of producer ids", error)
            logger.warning("no block of producer ids was allocated: %s", error)
        self._asked = False
        await self._let_go()
