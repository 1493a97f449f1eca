"""`kafkacompat start --brokers`: the process that runs the brokers of a machine as one.

It starts a process for each broker, writes their logs to one output, starts those again that end, and stops them
together. cluster.json says which brokers there are. It is looked at all the time, because `kafkacompat cluster resize`
changes it. brokers_folder.py makes the files.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from subprocess import PIPE
from typing import TYPE_CHECKING

import trio

from kafkacompat import __version__
from kafkacompat.addresses import host_and_port
from kafkacompat.api.loggers import PACKAGE
from kafkacompat.cli import brokers_plan as plan
from kafkacompat.cli.brokers_folder import RUNNING, BrokersFolder
from kafkacompat.cli.cluster_files import Layout, Node, write_whole
from kafkacompat.cli.log_format import entry_of
from kafkacompat.cli.machine import machine_name, memory_bytes, processors, refused_listener
from kafkacompat.cli.node_process import NodeProcesses, how_it_ended, import_path
from kafkacompat.cli.service_manager import SOCKET_VARIABLE, notify_ready
from kafkacompat.cli.settings import (
    BROKERS_SETTING,
    METRICS_LINE,
    SERVES_LINE,
    load_settings,
    written_settings,
)
from kafkacompat.config import ConfigError, ServerConfig
from kafkacompat.failure import CommandFailed
from kafkacompat.security.authorizer import AUDIT
from kafkacompat.server.metrics_pages import pages_of
from kafkacompat.server.process_wide import StopSignals

if TYPE_CHECKING:
    from kafkacompat.metrics.endpoint import Page

LOOK_INTERVAL_S = 0.5
STEADY_S = 60.0
"""A broker that has run for so long starts again at once when it ends."""
LONGEST_PAUSE_S = 30.0
STOP_TIMEOUT_S = 25.0
"""For the brokers without the controller role, and again for the others."""
EARLIER_TIMEOUT_S = 30.0
OUTPUT_TIMEOUT_S = 1.0
"""For what a broker that has ended has written."""
LINE_BYTES_MAX = 4 << 20
"""A longer line of a broker's output is taken in pieces. An entry of its log in pieces is none, and its level is lost: brokers do
not bound their entries. The log of this process does, if it is a file."""

logger = logging.getLogger(__name__)


def restart_pause_s(ended_soon: int) -> float:
    """Return the time until a broker starts again that has ended so often in a row within STEADY_S of its start."""
    return 0.0 if ended_soon <= 1 else min(LONGEST_PAUSE_S, math.ldexp(1.0, min(ended_soon - 2, 16)))


def run_brokers(
    path: str | None,
    overrides: list[str],
    signals: StopSignals,
    tell_ready: Callable[[str], None],
    serve_one: Callable[[ServerConfig], int],
    *,
    format_if_empty: bool,
) -> int:
    """Run the brokers of this machine until a signal stops them, and return the exit status.

    `tell_ready` gets the line when all of them serve. `serve_one` runs a single node, where the settings ask for one and the
    folder was not made for more. Raises CommandFailed.
    """
    config = load_settings(path, overrides, plan.defaults)
    folder = BrokersFolder(written_settings(path, overrides, plan.defaults), config, machine_name())
    try:
        number = plan.number_of(config.get_string(BROKERS_SETTING) or "", processors(), memory_bytes())
        if number == 1 and not folder.files.exists():
            return serve_one(load_settings(path, overrides))
        plan.check(config)
        with folder.files.locked(RUNNING, f"the brokers in {folder.files.root} run already"):
            layout = prepared(folder, number, format_if_empty=format_if_empty)
            if note := plan.memory_note(len(layout.nodes), memory_bytes()):
                logger.warning(note)
            return Supervisor(folder, layout, signals, tell_ready).run()
    except ConfigError as problem:
        raise CommandFailed(str(problem)) from problem


def prepared(folder: BrokersFolder, number: int, *, format_if_empty: bool) -> Layout:
    """Return the brokers of the folder, which it keeps. A folder of a single node, or a new one, gets `number` of them."""
    if not folder.files.exists():
        if not folder.is_single_node() and not format_if_empty:
            raise CommandFailed(
                f"log directory {folder.directories[0]} of log.dirs is not formatted; format it first"
            )
        check_ports(folder, number)
        return folder.take_over(number) if folder.is_single_node() else folder.format(number)
    layout = folder.load()
    kept = len(layout.nodes)
    wait_for_earlier(folder, layout)
    asked = folder.config.originals.get(BROKERS_SETTING, plan.AUTO)
    if kept != number and asked != plan.AUTO:
        root = folder.files.root
        change = f"kafkacompat cluster resize --brokers {number} --data {root}"
        logger.warning(
            "%s=%d is for a new folder; %s has %d, and `%s` changes that",
            BROKERS_SETTING,
            number,
            root,
            kept,
            change,
        )
    check_ports(folder, kept)
    return folder.finish_moves(folder.save(kept, layout.cluster_id, layout.to_move))


def check_ports(folder: BrokersFolder, number: int, first: int = 0) -> None:
    """Raise CommandFailed if a broker from the place `first` on cannot listen, before anything is started or changed."""
    for place in range(first, number):
        node_id = folder.config.node_id + place
        refused = refused_listener(folder.config_of(node_id, number).listeners())
        if refused is not None:
            endpoint, reason = refused
            raise CommandFailed(
                f"listeners: broker {node_id} cannot listen on {endpoint.listener_name}://"
                f"{host_and_port(endpoint.host, endpoint.port)}: {reason}"
            )


def wait_for_earlier(folder: BrokersFolder, layout: Layout) -> None:
    """Wait until the brokers have stopped that a killed process has left. Raises CommandFailed if they do not."""
    processes = NodeProcesses(folder.files)
    deadline = time.monotonic() + EARLIER_TIMEOUT_S
    for node in layout.nodes:
        while (pid := processes.pid(node)) is not None:
            if time.monotonic() > deadline:
                raise CommandFailed(f"broker {node.node_id} of an earlier start still runs with pid {pid}")
            time.sleep(LOOK_INTERVAL_S)


def resized(folder: BrokersFolder, layout: Layout) -> Layout:
    """Return the layout with the brokers that `kafkacompat cluster resize` asks for, or with the reason why not."""
    number, had = layout.wanted, len(layout.nodes)
    if number in (0, had):
        return layout
    try:
        check_ports(folder, number, had)
        made = folder.save(number, layout.cluster_id)
    except (CommandFailed, ConfigError) as problem:
        made = replace(layout, wanted=0, refusal=str(problem))
        folder.files.save(made)
        logger.error("the number of brokers stays %d: %s", had, problem)
    return made


class Broker:
    """One broker, whose process may be another one after each end."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.scope = trio.CancelScope()
        """Cancelled when it is no longer wanted, which ends a pause."""
        self.process: trio.Process | None = None
        self.serves = False
        self.last_words = ""
        self.metrics_port: int | None = None

    @property
    def node_id(self) -> int:
        return self.node.node_id

    def stop(self) -> None:
        """A second call tells it not to wait for a controller."""
        self.scope.cancel()
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.terminate()


class Supervisor:
    def __init__(
        self, folder: BrokersFolder, layout: Layout, signals: StopSignals, tell_ready: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._signals = signals
        self._tell_ready = tell_ready
        self._brokers: dict[int, Broker] = {}
        self._stopping = trio.Event()
        self._has_served = False
        self._is_clean = True
        self._refused: str | None = None
        """Why the brokers cannot start."""
        self._changed = trio.Event()
        self._leaving: list[Broker] = []
        """Not in cluster.json any more, and not ended yet."""

    @property
    def _all(self) -> list[Broker]:
        return [*self._brokers.values(), *self._leaving]

    def run(self) -> int:
        """Return the exit status. Raises CommandFailed if not every broker can start."""
        trio.run(self._run)
        if self._refused is not None:
            raise CommandFailed(self._refused)
        return 0 if self._is_clean else 1

    async def _run(self) -> None:
        with self._signalled():
            async with trio.open_nursery() as nursery:
                try:
                    await self._show_metrics(nursery)
                except CommandFailed as failure:
                    self._refused = str(failure)
                    return
                for node in self._layout.nodes:
                    self._begin(node, nursery)
                nursery.start_soon(self._follow_layout, nursery)
                nursery.start_soon(self._tell_when_all_serve)
                try:
                    await self._stopping.wait()
                    await self._stop(self._all)
                finally:
                    # Also after a mistake in the program: a process that was started is waited for.
                    for each in self._all:
                        each.stop()
                nursery.cancel_scope.cancel()

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        token = trio.lowlevel.current_trio_token()

        def on_signal() -> None:
            if self._stopping.is_set():
                for each in self._all:
                    each.stop()
            self._stopping.set()

        self._signals.tell(lambda: token.run_sync_soon(on_signal))
        try:
            yield
        finally:
            self._signals.tell(None)

    async def _show_metrics(self, nursery: trio.Nursery) -> None:
        config = self._folder.config
        if config.get_int(plan.METRICS_PORT) < 0:
            return
        try:
            from kafkacompat.cli.brokers_metrics import AllBrokers
            from kafkacompat.metrics.endpoint import MetricsEndpoint
        except ImportError as missing:
            raise CommandFailed(
                f"{plan.METRICS_PORT}: {missing.name} is not installed; install kafkacompat[metrics]"
            ) from missing

        def ports() -> Mapping[int, int | None]:
            return {each.node_id: each.metrics_port for each in self._brokers.values()}

        def watch(_token: str) -> Page:
            from kafkacompat.cli.brokers_watch import BrokersWatchPage

            return BrokersWatchPage(ports)

        try:
            endpoint = MetricsEndpoint(AllBrokers(ports), pages_of(config, watch))
        except ConfigError as problem:
            raise CommandFailed(str(problem)) from problem
        host = config.get_string(plan.METRICS_HOST) or ""
        try:
            port = await endpoint.bind(host, config.get_int(plan.METRICS_PORT))
        except OSError as refused:
            raise CommandFailed(refused.strerror or str(refused)) from refused
        logger.info("metrics are served on http://%s/metrics", host_and_port(host, port))
        nursery.start_soon(endpoint.run)

    # Which brokers there are.

    def _begin(self, node: Node, nursery: trio.Nursery) -> None:
        self._brokers[node.node_id] = broker = Broker(node)
        nursery.start_soon(self._keep, broker)

    async def _follow_layout(self, nursery: trio.Nursery) -> None:
        """Start the brokers that are new in cluster.json, and stop those that are no longer there."""
        path = self._folder.files.layout_path
        seen, told = _version(path), ""
        while not self._stopping.is_set():
            await trio.sleep(LOOK_INTERVAL_S)
            if (found := _version(path)) == seen:
                continue
            try:
                self._layout = resized(self._folder, self._folder.load())
            except CommandFailed as failure:
                # It is read again, because a lack of descriptors or memory passes.
                if str(failure) != told:
                    told = str(failure)
                    logger.error("%s; the brokers go on", failure)
                continue
            seen, told = found, ""
            wanted = {each.node_id: each for each in self._layout.nodes}
            for node_id, broker in list(self._brokers.items()):
                if node_id not in wanted:
                    del self._brokers[node_id]
                    logger.info("broker %d is not one of this machine any more", node_id)
                    # At once: with the settings of now it has no place, so it must not start again.
                    broker.scope.cancel()
                    self._leaving.append(broker)
                    # Perhaps all others serve.
                    self._changed.set()
                    nursery.start_soon(self._leave, broker)
            for node_id, node in wanted.items():
                if node_id not in self._brokers:
                    self._begin(node, nursery)

    async def _leave(self, broker: Broker) -> None:
        await self._stop([broker])
        while broker.process is not None:
            await trio.sleep(LOOK_INTERVAL_S)
        self._leaving.remove(broker)

    # One broker.

    async def _keep(self, broker: Broker) -> None:
        """Run the broker, again and again until it is no longer wanted."""
        ended_soon = 0
        with broker.scope:
            while not (self._stopping.is_set() or broker.scope.cancel_called):
                started_s = trio.current_time()
                status = await self._run_once(broker)
                if broker.scope.cancel_called or self._stopping.is_set():
                    break
                if not self._has_served and not broker.serves:
                    self._refused = f"broker {broker.node_id}: {broker.last_words or how_it_ended(status)}"
                    self._stopping.set()
                    break
                broker.serves = False
                ended_soon = ended_soon + 1 if trio.current_time() - started_s < STEADY_S else 1
                pause_s = restart_pause_s(ended_soon)
                logger.error(
                    "broker %d %s, and starts again %s",
                    broker.node_id,
                    how_it_ended(status),
                    f"in {pause_s:g} s" if pause_s else "now",
                )
                await trio.sleep(pause_s)

    async def _run_once(self, broker: Broker) -> int | None:
        """Return the exit status, or None if the process could not be started. A process that was started is waited for."""
        broker.last_words, broker.metrics_port = "", None
        try:
            settings = self._folder.make(broker.node_id, self._layout)
            process = await trio.lowlevel.open_process(
                [
                    sys.executable,
                    "-m",
                    "kafkacompat.cli.broker_process",
                    str(settings),
                    logging.getLevelName(logging.getLogger().level),
                    *(f"{name}={level}" for name, level in levels_of_loggers().items()),
                ],
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=_environment(),
                start_new_session=True,
            )
        except (CommandFailed, ConfigError, OSError, RuntimeError) as problem:
            # The last one: no thread can start now.
            broker.last_words = str(problem)
            logger.error("broker %d cannot be started: %s", broker.node_id, problem)
            return None
        with trio.CancelScope(shield=True):
            broker.process = process
            if broker.scope.cancel_called or self._stopping.is_set():
                broker.stop()
            try:
                write_whole(self._folder.files.pid_path(broker.node_id), f"{process.pid}\n")
            except CommandFailed as failure:
                logger.warning("%s", failure)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process.stdout, lambda line: self._on_output(broker, line))
                nursery.start_soon(self._read, process.stderr, lambda line: self._on_entry(broker, line))
                status = await process.wait()
                # A process of the broker may still hold its output.
                nursery.cancel_scope.deadline = trio.current_time() + OUTPUT_TIMEOUT_S
            broker.process = None
        assert process.stdin is not None
        await trio.aclose_forcefully(process.stdin)
        self._is_clean &= status in (0, -signal.SIGTERM) or not self._stopping.is_set()
        return status

    @staticmethod
    async def _read(stream: trio.abc.ReceiveStream | None, take: Callable[[str], None]) -> None:
        assert stream is not None
        held = b""
        async with stream:
            async for data in stream:
                *lines, held = (held + data).split(b"\n")
                if len(held) > LINE_BYTES_MAX:
                    lines, held = [*lines, held], b""
                for line in filter(None, lines):
                    take(line.decode(errors="backslashreplace"))
        if held:
            take(held.decode(errors="backslashreplace"))

    def _on_output(self, broker: Broker, line: str) -> None:
        """Lines of cli/broker_process. Any other line is of a library, and shown as it is."""
        if line.startswith(METRICS_LINE):
            broker.metrics_port = int(line.removeprefix(METRICS_LINE))
            return
        if not line.startswith(SERVES_LINE):
            logger.info("broker %d prints: %s", broker.node_id, line)
            return
        broker.serves = True
        if self._has_served:
            logger.info("broker %d serves again", broker.node_id)
        self._changed.set()

    def _on_entry(self, broker: Broker, line: str) -> None:
        entry = entry_of(line, broker.node_id)
        if entry.levelno >= logging.CRITICAL:
            broker.last_words = entry.getMessage().removeprefix("the node does not start: ")
            if not self._has_served:
                return  # the start tells it
        logging.getLogger().handle(entry)

    # All of them.

    async def _tell_when_all_serve(self) -> None:
        while not all(each.serves for each in self._brokers.values()):
            await self._changed.wait()
            self._changed = trio.Event()
        self._has_served = True
        line = self._ready_line()
        self._tell_ready(line)
        notify_ready(line)

    def _ready_line(self) -> str:
        config, root = self._folder.config, self._folder.files.root
        addresses = ",".join(each.address for each in self._layout.nodes)
        first, *others = (str(each.node_id) for each in self._layout.nodes)
        named = f"node {first}" if not others else f"nodes {first} to {others[-1]}"
        text = f"kafkacompat {__version__} {named} serving {addresses} data in {root}"
        if others and plan.is_whole_cluster(config):
            text += "; replicas on this machine alone do not outlive it"
        return text

    @staticmethod
    async def _stop(brokers: Sequence[Broker]) -> None:
        """Stop those without a controller first, because they need one to hand over their partitions."""
        for controllers in (False, True):
            chosen = [each for each in brokers if each.node.is_controller is controllers]
            for each in chosen:
                each.stop()
            with trio.move_on_after(STOP_TIMEOUT_S):
                for each in chosen:
                    while each.process is not None:
                        await trio.sleep(0.02)
        for each in brokers:
            if each.process is not None:
                logger.error("broker %d did not stop in %g s and is killed", each.node_id, STOP_TIMEOUT_S)
                each.process.kill()


def levels_of_loggers() -> Mapping[str, str]:
    """Return the levels of the loggers that have one of their own."""
    return {
        name: logging.getLevelName(each.level)
        for name, each in sorted(logging.root.manager.loggerDict.items())
        if isinstance(each, logging.Logger)
        and each.level != logging.NOTSET
        and (name in (PACKAGE, AUDIT.name) or name.startswith(f"{PACKAGE}."))
    }


def _environment() -> dict[str, str]:
    """The service manager listens to this process alone."""
    own = {name: value for name, value in os.environ.items() if name != SOCKET_VARIABLE}
    return {**own, "PYTHONPATH": os.pathsep.join(import_path())}


def _version(path: os.PathLike[str]) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
