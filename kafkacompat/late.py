"""A part of the node that is made when somebody first asks for it.

The modules of such a part take long to import, and much memory. A node that nobody asks has neither. They are imported
in a worker's thread, so that the loop goes on meanwhile, and whoever asks waits. The part is then made in the loop's
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.ports import Timers, Workers

T = TypeVar("T")
U = TypeVar("U")
AGAIN_MS = 1_000
"""After a failure, before the next attempt that nobody asks for."""
logger = logging.getLogger(__name__)


class NotMade(Exception):
    """A part could not be made. Later it may be: the system may have lacked memory, or descriptors for the modules."""

    def __init__(self, module: str, reason: Exception) -> None:
        super().__init__(f"{module} could not be imported, or what it is for not be made: {reason}")
        self.reason = reason
        self.__cause__ = reason


class Late(Generic[T]):
    """Everything is called in the loop's thread."""

    __slots__ = ("_coming", "_is_insisted", "_make", "_module", "_workers", "made")

    def __init__(self, module: str, make: Callable[[], T], workers: Workers) -> None:
        """`module` is the name of the module that imports all others of the part. `make` makes the part, and passes it
        to those who use it. It may import the module."""
        self._module = module
        self._make = make
        self._workers = workers
        self.made: T | None = None
        """None until somebody has asked and the part is there."""
        self._coming: Deferred[T] | None = None
        self._is_insisted = False

    def now(self) -> T:
        """The part, whatever that takes. Holds up the loop if nobody has asked before: only for a start, and for what
        shows everything."""
        if self.made is None:
            import_module(self._module)
            self.made = self._make()
        return self.made

    def ready(self) -> Deferred[T]:
        """The part, as soon as it is there. Fails with NotMade if a module cannot be imported, or the part not be made.
        The next question tries again."""
        if self.made is not None:
            return Deferred.of(self.made)
        if self._coming is not None:
            return self._coming.then(lambda part: part)
        coming: Deferred[T] = Deferred()
        self._coming = coming
        self._workers.submit(partial(import_module, self._module)).on_done(partial(self._imported, coming))
        return coming

    def _imported(self, coming: Deferred[T], imported: Deferred[Any]) -> None:
        try:
            imported.result()
            part = self.now()
        except Exception as error:
            self._coming = None
            coming.fail(NotMade(self._module, error))
            return
        self._coming = None
        coming.resolve(part)

    def insist(self, timers: Timers) -> None:
        """Make the part although nobody waits for it. After a failure, which is logged, it is tried again."""
        if self._is_insisted:
            return
        self._is_insisted = True

        def tried(part: Deferred[T]) -> None:
            self._is_insisted = False
            try:
                part.result()
            except NotMade as error:
                is_of_system = isinstance(error.reason, OSError)
                logger.error("trying again soon: %s", error, exc_info=None if is_of_system else error.reason)
                self._is_insisted = True
                timers.call_after(AGAIN_MS, again)

        def again() -> None:
            self.ready().on_done(tried)

        again()

    def hold(self, answer: Callable[[], Deferred[U]]) -> Deferred[U]:
        """The result of `answer`, which is called when the part is there. It is not called if the result is abandoned
        before."""
        if self.made is not None:
            return answer()
        owed: Deferred[U] = Deferred()
        is_wanted = True

        def let_go() -> None:
            nonlocal is_wanted
            is_wanted = False

        def there(part: Deferred[T]) -> None:
            if not is_wanted:
                return
            try:
                part.result()
                given = answer()
            except Exception as error:
                owed.fail(error)
                return
            owed.when_abandoned = given.abandon
            given.pass_to(owed)

        owed.when_abandoned = let_go
        self.ready().on_done(there)
        return owed
