"""Parts of the node that are made when somebody first asks for them, and modules that are imported after the start.

The modules of such a part take long to import. They are imported in a worker's thread, so that the loop goes on
meanwhile, and whoever asks waits. The part is then made in the loop's thread.

`Provisions` imports, in the background, everything that the node may ever need. From then on the node opens no file of
its package, so a want of descriptors and a package that is replaced cannot touch it. Before that, what fails for such a
reason waits and is tried again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkacompat.deferred import Deferred

if TYPE_CHECKING:
    from kafkacompat.ports import Workers
    from kafkacompat.tasks import Tasks

T = TypeVar("T")
U = TypeVar("U")
AGAIN_MS = 1_000
"""After a failure, before the next attempt that nobody asks for."""
BEGIN_MS = 200
"""After the node serves, before the provisions: its first answers come first."""
PAUSE_MS = 1
"""Between two modules. The loop has the interpreter to itself meanwhile."""
HELD_MAX_MS = 30_000
"""How long a request waits for the provisions. One for each connection may."""
TOLD_EVERY = 60
"""Of attempts that fail in a row, every so many is logged."""
IMPORTER = "<frozen importlib."
"""How the names of the files of Python's import begin, in a traceback."""
logger = logging.getLogger(__name__)


class NotMade(Exception):
    """A part could not be made. Later it may be: the system may have lacked memory, or descriptors for the modules."""

    def __init__(self, module: str, reason: Exception) -> None:
        super().__init__(f"{module} could not be imported, or what it is for not be made: {reason}")
        self.reason = reason
        self.__cause__ = reason


def came_of_an_import(error: BaseException | None) -> bool:
    """Whether the error arose while a module was imported: its file is missing, or no descriptor is left to read it."""
    if isinstance(error, ImportError):
        return True
    trace = error.__traceback__ if isinstance(error, OSError) else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(IMPORTER):
            return True
        trace = trace.tb_next
    return False


def held(until: Deferred[Any], answer: Callable[[], Deferred[U]]) -> Deferred[U]:
    """The result of `answer`, which is called when `until` is there. If that fails, so does the result. `answer` is not
    called if the result is abandoned before."""
    owed: Deferred[U] = Deferred()
    is_wanted = True

    def let_go() -> None:
        nonlocal is_wanted
        is_wanted = False
        until.forget(there)  # `answer` may keep a request in memory

    def there(done: Deferred[Any]) -> None:
        if not is_wanted:
            return
        try:
            done.result()
            given = answer()
        except Exception as error:
            owed.fail(error)
            return
        owed.when_abandoned = given.abandon
        given.pass_to(owed)

    owed.when_abandoned = let_go
    until.on_done(there)
    return owed


class Late(Generic[T]):
    """Everything is called in the loop's thread."""

    __slots__ = ("_coming", "_is_insisted", "_make", "_module", "_tasks", "_workers", "made")

    def __init__(self, module: str, make: Callable[[], T], workers: Workers, tasks: Tasks) -> None:
        """`module` is the name of the module that imports all others of the part. `make` makes the part, and passes it
        to those who use it. It may import the module."""
        self._module = module
        self._make = make
        self._workers = workers
        self._tasks = tasks
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
        if self._coming is None or self._coming.done:
            self._coming = self._tasks.run(f"import of {self._module}", self._import())
        return self._coming.then(lambda part: part)

    async def _import(self) -> T:
        try:
            await self._workers.submit(partial(import_module, self._module))
            return self.now()
        except Exception as error:
            raise NotMade(self._module, error) from error

    def insist(self) -> None:
        """Make the part although nobody waits for it. After a failure, which is logged, it is tried again."""
        if not self._is_insisted:
            self._is_insisted = True
            self._tasks.start(f"import of {self._module}", self._try_until_made())

    async def _try_until_made(self) -> None:
        while True:
            try:
                await self.ready()
                break
            except NotMade as error:
                is_of_system = isinstance(error.reason, OSError)
                logger.error("trying again soon: %s", error, exc_info=None if is_of_system else error.reason)
            await self._tasks.sleep(AGAIN_MS)
        self._is_insisted = False

    def hold(self, answer: Callable[[], Deferred[U]]) -> Deferred[U]:
        """The result of `answer`, which is called when the part is there. It is not called if the result is abandoned
        before."""
        return answer() if self.made is not None else held(self.ready(), answer)


class Provisions:
    """Imports what the node may ever need, one module after another. Call `begin` once, when the node serves."""

    def __init__(
        self,
        names: Callable[[], list[str]],
        workers: Workers,
        tasks: Tasks,
        keep: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`names` lists the modules. It and `check` are called in a worker's thread. `check` raises an OSError or
        ImportError while nothing must be imported. `keep` is called when everything is there."""
        self._names = names
        self._workers = workers
        self._tasks = tasks
        self._keep = keep
        self._check = check
        self.is_complete = False
        self._waiting: list[Deferred[None]] = []
        self._failures = 0
        """In a row."""

    def begin(self) -> None:
        self._tasks.start("imports in the background", self._import_all())

    def hold(self, answer: Callable[[], Deferred[U]]) -> Deferred[U]:
        """The result of `answer`, which is called when everything is there, or after HELD_MAX_MS."""
        if self.is_complete:
            return answer()
        until: Deferred[None] = Deferred()
        self._waiting.append(until)
        self._release_after(HELD_MAX_MS, until)
        return held(until, answer)

    async def _import_all(self) -> None:
        await self._tasks.sleep(BEGIN_MS)
        for name in await self._in_worker(self._names):
            if name in sys.modules:
                continue
            await self._in_worker(partial(self._import, name))
            if self._failures:
                logger.warning("modules of this node can be imported again")
                self._failures = 0
            await self._tasks.sleep(PAUSE_MS)
        self.is_complete = True
        logger.info(
            "everything that this node may need is loaded; it opens no file of its package from now on"
        )
        self._keep()
        for until in self._waiting:  # each in a turn of its own
            self._release_after(0, until)

    async def _in_worker(self, job: Callable[[], U]) -> U:
        """The result of the job, which is tried until it succeeds."""
        while True:
            try:
                return await self._workers.submit(job)
            except Exception as error:
                if self._failures % TOLD_EVERY == 0:
                    expected = isinstance(error, OSError | ImportError)
                    text = "modules of this node cannot be imported, trying again every second: %s"
                    logger.error(text, error, exc_info=None if expected else error)
                self._failures += 1
            await self._tasks.sleep(AGAIN_MS)

    def _import(self, name: str) -> None:
        self._check()
        import_module(name)

    def _release_after(self, delay_ms: int, until: Deferred[None]) -> None:
        def release(_: Deferred[None]) -> None:
            if until in self._waiting:
                self._waiting.remove(until)
                until.resolve(None)

        self._tasks.sleep(delay_ms).on_done(release)
