"""The processes of a cluster's nodes: started apart from us, found again by anybody through a file with the pid, stopped.

It starts, looks and stops. It knows processes and the files of a node; what a node does it does not know.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from kafkacompat.cli.cluster_files import ClusterFiles, Node, write_whole
from kafkacompat.cli.failure import CommandFailed

POLL_INTERVAL_S = 0.05
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 5.0
LOG_TAIL_BYTES = 4096
COMMAND_LINE_TRIES = 5
COMMAND_LINE_PAUSE_S = 0.01


class NodeProcesses:
    """The processes in one DIR. Those that we started ourselves are reaped, and their exit status is known."""

    def __init__(self, files: ClusterFiles) -> None:
        self._files = files
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.statuses: dict[int, int] = {}
        """Exit statuses by pid, of those that have ended; negative: by that signal."""

    def start(self, node: Node) -> int:
        """The new process's id; it outlives us. CommandFailed if the node runs already, or the disk refuses its log or its pid."""
        running = self.pid(node)
        if running is not None:
            raise CommandFailed(f"node {node.node_id} runs already with pid {running}")
        child = self._launch(node)
        try:
            write_whole(self._files.pid_path(node.node_id), f"{child.pid}\n")
        except CommandFailed:
            # Nobody would find it, and whoever starts the node again would meet its locks.
            child.kill()
            child.wait()
            raise
        self._children[child.pid] = child
        self.statuses.pop(child.pid, None)
        return child.pid

    def _launch(self, node: Node) -> subprocess.Popen[bytes]:
        path = self._files.log_path(node.node_id)
        try:
            with open(path, "ab") as log:
                return subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "kafkacompat",
                        "start",
                        str(self._files.settings_path(node.node_id)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._files.folder(node.node_id),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
                    start_new_session=True,
                )
        except OSError as error:
            raise CommandFailed(
                f"node {node.node_id} cannot be started: {error.filename or path}: {error.strerror}"
            ) from error

    def pid(self, node: Node) -> int | None:
        """The process that runs this node; None when there is none."""
        self._reap()
        written = self.last_pid(node)
        if written is None or written in self.statuses:
            return None
        if written in self._children:
            return written
        return written if _runs(written, str(self._files.settings_path(node.node_id))) else None

    def last_pid(self, node: Node) -> int | None:
        """The process that was started last for this node, whether it runs or not."""
        try:
            return int(self._files.pid_path(node.node_id).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def started_at_s(self, node: Node) -> float:
        """When it was started, as time.time() counts."""
        try:
            return self._files.pid_path(node.node_id).stat().st_mtime
        except FileNotFoundError:
            return time.time()

    def stop(
        self, nodes: Iterable[Node], timeout_s: float = STOP_TIMEOUT_S, *, is_whole_cluster: bool = False
    ) -> list[Node]:
        """SIGTERM to all at once, then wait; those that had to be killed after timeout_s are returned.

        is_whole_cluster: when too few controllers are left for a quorum, the rest is told not to wait for one.
        """
        nodes = list(nodes)
        waited = {node.node_id: (node, pid) for node in nodes if (pid := self.pid(node)) is not None}
        controllers = {node.node_id for node in nodes if node.is_controller} if is_whole_cluster else set()
        for _, pid in waited.values():
            _send(pid, signal.SIGTERM)
        self._wait(waited, timeout_s, len(controllers) // 2, controllers)
        if controllers:
            for _, pid in waited.values():
                _send(pid, signal.SIGTERM)
            self._wait(waited, timeout_s, 0, set(waited))
        late = list(waited.values())
        for _, pid in late:
            _send(pid, signal.SIGKILL)
        self._wait(waited, KILL_TIMEOUT_S, 0, set(waited))
        if waited:
            raise CommandFailed(f"nodes {', '.join(map(str, waited))} do not even end when killed")
        return [node for node, _ in late]

    def last_words(self, node: Node) -> str:
        """The last line of the node's log."""
        try:
            with open(self._files.log_path(node.node_id), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _wait(
        self, waited: dict[int, tuple[Node, int]], timeout_s: float, enough: int, counted: Collection[int]
    ) -> None:
        """Takes out of `waited` who has ended, until no more than `enough` of those counted are left."""
        deadline = time.monotonic() + timeout_s
        while waited:
            for node_id, (node, pid) in list(waited.items()):
                if self.pid(node) != pid:
                    del waited[node_id]
            left = [node_id for node_id in waited if node_id in counted]
            if len(left) <= enough and counted:
                return
            if not waited or time.monotonic() > deadline:
                return
            time.sleep(POLL_INTERVAL_S)

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            status = child.poll()
            if status is not None:
                self.statuses[pid] = status
                del self._children[pid]


def is_stop(status: int) -> bool:
    """Whether a node that was told to stop ends so: SIGTERM may come before it listens for it."""
    return status in (0, -signal.SIGTERM)


def how_it_ended(status: int | None) -> str:
    """For a person; None: somebody else's child."""
    if status is None:
        return "has ended"
    if is_stop(status):
        return "was stopped"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"has ended with status {status}"


def _import_path() -> list[str]:
    """So that a node runs the kafkacompat that we are, wherever it is started."""
    here = str(Path(__file__).resolve().parents[2])
    return [here, *filter(None, [os.environ.get("PYTHONPATH")])]


def _runs(pid: int, settings_path: str) -> bool:
    """Whether the process is there and is the node: a pid may have been given to a stranger since."""
    for _ in range(COMMAND_LINE_TRIES):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        line = _command_line(pid)
        if line:
            return settings_path in line
        # It waits for its parent to hear of its end, or has just begun and is about to get its command line.
        time.sleep(COMMAND_LINE_PAUSE_S)
    return False


def _command_line(pid: int) -> str:
    """Empty for one that has ended, or has hardly begun."""
    if Path("/proc/self/cmdline").exists():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return line.replace(b"\0", b" ").decode(errors="surrogateescape")
    asked = ["ps", "-o", "command=", "-p", str(pid)]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return "" if "<defunct>" in shown else shown


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
