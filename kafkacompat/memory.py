"""The memory that a node holds for what clients name, in bytes, and its bounds for a connection and for the node.

What is held is counted for as long as it exists: the count ends with the object that stands for it. So nothing that
removes a member, converts a group or unloads a partition can forget to give its memory back.

Large lists and dictionaries are freed in pieces (`Freeing`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.tasks import Tasks

NO_CONNECTION = -1
AGAIN_MS = 1_000
"""After a deletion for which there was no memory."""
FREED_AT_ONCE = 5_000
"""Elements that are freed in one turn of the loop, at up to a third of a microsecond."""


class Held:
    """Some bytes that are held. Whoever holds them keeps this object, and nobody else does."""

    __slots__ = ("_connection_id", "_memory", "_number", "size")

    def __init__(self, memory: Memory, size: int, connection_id: int, number: int) -> None:
        self._memory = memory
        self._connection_id = connection_id
        self._number = number
        self.size = size

    def grow(self, more: int) -> None:
        """It is larger from now on, or smaller. Only for what no connection and no time bounds."""
        self.size += more
        self._memory.used += more

    def __del__(self) -> None:
        self._memory.give_back(self.size, self._connection_id, self._number)


class Memory:
    """Asks for room first (`has_room`): `hold` always succeeds, because what was loaded from a log has to be held."""

    __slots__ = (
        "_brief",
        "_of_connections",
        "_taken",
        "brief",
        "most",
        "most_brief",
        "most_of_connection",
        "used",
    )

    def __init__(self, most: int, most_of_connection: int, most_brief: int) -> None:
        """`most`: bytes of the node. `most_of_connection`: those that the requests of one connection have caused.
        `most_brief`: see `hold_briefly`."""
        self.most = most
        self.most_of_connection = most_of_connection
        self.most_brief = most_brief
        self.used = 0
        self.brief = 0
        self._of_connections: dict[int, int] = {}
        self._brief: dict[int, tuple[int, Callable[[], object]]] = {}
        """By number, oldest first: the size, and what gives it up."""
        self._taken = 0

    def has_room(self, size: int, connection_id: int = NO_CONNECTION) -> bool:
        if size <= 0:
            return True
        if self.used + size > self.most:
            return False
        return (
            connection_id == NO_CONNECTION
            or self._of_connections.get(connection_id, 0) + size <= self.most_of_connection
        )

    def hold(self, size: int, connection_id: int = NO_CONNECTION) -> Held:
        self.used += size
        if connection_id != NO_CONNECTION:
            self._of_connections[connection_id] = self._of_connections.get(connection_id, 0) + size
        return Held(self, size, connection_id, 0)

    def hold_briefly(self, size: int, connection_id: int, give_up: Callable[[], object]) -> Held:
        """Hold what its client comes back for at once. If there is more than `most_brief` of it, the oldest is given up:
        a client that has not come back is the least likely to come. Otherwise a few connections that ask and do not come
        back would keep everybody else out."""
        held = self.hold(size, connection_id)
        self._taken += 1
        held._number = self._taken
        self._brief[self._taken] = size, give_up
        self.brief += size
        while self.brief > self.most_brief:
            number = next(iter(self._brief))
            oldest, give_up = self._brief.pop(number)
            self.brief -= oldest
            give_up()
        return held

    def give_back(self, size: int, connection_id: int, number: int) -> None:
        """Called by the one that is held."""
        self.used -= size
        if connection_id != NO_CONNECTION:
            left = self._of_connections[connection_id] - size
            if left:
                self._of_connections[connection_id] = left
            else:
                del self._of_connections[connection_id]
        if number and self._brief.pop(number, None) is not None:
            self.brief -= size


class Freeing:
    """Frees large containers in turns of the loop: the last reference to half a million objects takes a tenth of a second to go."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waiting: deque[list[Any] | dict[Any, Any]] = deque()

    def free(self, held: list[Any] | dict[Any, Any]) -> None:
        """Empty it in later turns of the loop if it is large. Nobody may use it any more."""
        if len(held) <= FREED_AT_ONCE:
            return
        self._waiting.append(held)
        if len(self._waiting) == 1:
            self._tasks.start("freeing large containers", self._free_all())

    async def _free_all(self) -> None:
        while self._waiting:
            await pause()
            held = self._waiting[0]
            if isinstance(held, list):
                try:
                    del held[-FREED_AT_ONCE:]
                except MemoryError:  # the list notes what it lets go of
                    await self._tasks.sleep(AGAIN_MS)
            else:
                for _ in range(min(len(held), FREED_AT_ONCE)):
                    held.popitem()
            if not held:
                self._waiting.popleft()
