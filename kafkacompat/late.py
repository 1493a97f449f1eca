"""A part of the node that is made when somebody first asks for it.

The modules of such a part take long to import, and much memory. A node that nobody asks has neither. They are imported
in a worker's thread, so that the loop goes on meanwhile, and whoever asks waits. The part is then made in the loop's
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.ports import Workers

T = TypeVar("T")
U = TypeVar("U")


class Late(Generic[T]):
    """Everything is called in the loop's thread."""

    __slots__ = ("_coming", "_make", "_module", "_workers", "made")

    def __init__(self, module: str, make: Callable[[], T], workers: Workers) -> None:
        """`module` is the name of the module that imports all others of the part. `make` makes the part, and passes it
        to those who use it. It may import the module."""
        self._module = module
        self._make = make
        self._workers = workers
        self.made: T | None = None
        """None until somebody has asked and the part is there."""
        self._coming: Deferred[T] | None = None

    def now(self) -> T:
        """The part, whatever that takes. Holds up the loop if nobody has asked before: only for a start, and for what
        shows everything."""
        if self.made is None:
            import_module(self._module)
            self.made = self._make()
        return self.made

    def ready(self) -> Deferred[T]:
        """The part, as soon as it is there. Fails if a module cannot be imported, or the part not be made. The next
        question tries again."""
        if self.made is not None:
            return Deferred.of(self.made)
        if self._coming is None:
            imported = self._workers.submit(partial(import_module, self._module))
            self._coming = coming = imported.then(lambda _: self.now())
            coming.on_done(self._came)
            return coming
        return self._coming.then(lambda part: part)

    def _came(self, _: Deferred[T]) -> None:
        self._coming = None

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
