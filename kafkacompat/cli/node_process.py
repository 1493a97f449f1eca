"""The processes of a cluster's nodes: started independently of this process, found again by a pid file, stopped.

This module knows processes and the files of a node, not what a node does.
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
from kafkacompat.cli.log_options import LogOptions
from kafkacompat.failure import CommandFailed

POLL_INTERVAL_S = 0.05
STOP_TIMEOUT_S = 30.0
KILL_TIMEOUT_S = 5.0
LOG_TAIL_BYTES = 4096
COMMAND_LINE_TRIES = 5
COMMAND_LINE_PAUSE_S = 0.01


class NodeProcesses:
    """The processes of one DIR. Children of this process are reaped, so their exit status is known."""

    def __init__(self, files: ClusterFiles, log: LogOptions | None = None) -> None:
        """log: how the nodes that are started here log. Its path is not used: each node has its own."""
        self.files = files
        self._log = log or LogOptions()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.statuses: dict[int, int] = {}
        """Exit status by pid of the processes that have ended. A negative status is the number of the signal."""

    def start(self, node: Node) -> int:
        """Start a process that outlives this one, and return its pid.

        Raises CommandFailed if the node already runs, or if its log or pid file cannot be written.
        """
        running = self.pid(node)
        if running is not None:
            raise CommandFailed(f"node {node.node_id} is already running with pid {running}")
        child = self._launch(node)
        try:
            write_whole(self.files.pid_path(node.node_id), f"{child.pid}\n")
        except CommandFailed:
            # Without a pid file nobody would find the process, and the next start of the node would fail on its locks.
            child.kill()
            child.wait()
            raise
        self._children[child.pid] = child
        self.statuses.pop(child.pid, None)
        return child.pid

    def _launch(self, node: Node) -> subprocess.Popen[bytes]:
        path = self.files.output_path(node.node_id)
        try:
            # The node writes its log itself, so that it can rotate it. This file has what it prints, and its last traceback.
            with open(path, "wb") as output:
                return subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "kafkacompat",
                        "start",
                        str(self.files.settings_path(node.node_id)),
                        *self._log.words(str(self.files.log_path(node.node_id))),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.files.folder(node.node_id),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path())},
                    start_new_session=True,
                )
        except OSError as error:
            raise CommandFailed(
                f"node {node.node_id} cannot be started: {error.filename or path}: {error.strerror}"
            ) from error

    def pid(self, node: Node) -> int | None:
        """Return the pid of the process that runs this node, or None."""
        self._reap()
        written = self.last_pid(node)
        if written is None or written in self.statuses:
            return None
        if written in self._children:
            return written
        return written if _runs(written, str(self.files.settings_path(node.node_id))) else None

    def last_pid(self, node: Node) -> int | None:
        """Return the pid of the process that was started last for this node, whether it runs or not."""
        try:
            return int(self.files.pid_path(node.node_id).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def started_at_s(self, node: Node) -> float:
        """Return when it was started, in the seconds of time.time()."""
        try:
            return self.files.pid_path(node.node_id).stat().st_mtime
        except FileNotFoundError:
            return time.time()

    def stop(
        self, nodes: Iterable[Node], timeout_s: float = STOP_TIMEOUT_S, *, is_whole_cluster: bool = False
    ) -> list[Node]:
        """Send SIGTERM to all nodes and wait. Return the nodes that had to be killed after timeout_s.

        is_whole_cluster: when the remaining controllers are too few for a quorum, a second signal tells the other
        nodes not to wait for one.
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
            raise CommandFailed(f"nodes {', '.join(map(str, waited))} are still running after kill -9")
        return [node for node, _ in late]

    def last_words(self, node: Node) -> str:
        """Return the last line of the node's output or of its log, whichever was written last."""
        paths = self.files.output_path(node.node_id), self.files.log_path(node.node_id)
        return max(map(_last_line, paths), key=lambda found: found[0])[1]

    def _wait(
        self, waited: dict[int, tuple[Node, int]], timeout_s: float, enough: int, counted: Collection[int]
    ) -> None:
        """Remove ended nodes from `waited` until at most `enough` of the counted ones are left."""
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
    """Whether this is the status of a stopped node. SIGTERM may arrive before the node handles it."""
    return status in (0, -signal.SIGTERM)


def how_it_ended(status: int | None) -> str:
    """Describe the status for a person. None: the process was not a child of this one."""
    if status is None:
        return "has ended"
    if is_stop(status):
        return "was stopped"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"has ended with status {status}"


def _last_line(path: Path) -> tuple[int, str]:
    """Return when the file was written, in nanoseconds, and its last line that is not empty. (0, "") without one."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return 0, ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return (status.st_mtime_ns, last) if last else (0, "")


def import_path() -> list[str]:
    """Return the path that makes a node import this kafkacompat, whatever its working directory is."""
    here = str(Path(__file__).resolve().parents[2])
    return [here, *filter(None, [os.environ.get("PYTHONPATH")])]


def _runs(pid: int, settings_path: str) -> bool:
    """Whether the process exists and is the node. The pid may have been reused by another process."""
    for _ in range(COMMAND_LINE_TRIES):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        line = _command_line(pid)
        if line:
            return settings_path in line
        # Without a command line, the process is a zombie, or it is just starting and will have one soon.
        time.sleep(COMMAND_LINE_PAUSE_S)
    return False


def _command_line(pid: int) -> str:
    """Return the command line. Empty for a process that has ended or is just starting."""
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
