"""One run: three nodes, clients of the chosen workloads, faults from a seed, and the judgement of the history."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.network import Network
from interop_tests.faults.mounts import mounted_tmpfs
from interop_tests.harness.broker import KAFKACOMPAT
from interop_tests.histories import appends, ending, offsets, queues
from interop_tests.histories.check import check, staleness_of
from interop_tests.histories.clients import OPERATION_TIMEOUT_S, Client, Surroundings
from interop_tests.histories.findings import Findings
from interop_tests.histories.history import CONSUMED, Recorder, load
from interop_tests.histories.nemesis import KINDS, NETWORK_KINDS, Nemesis, harming, plan

WORKLOADS = {"queue": queues, "append": appends, "commits": offsets}
TO_BE_SEEN = {"queue": ("send", "poll"), "append": (CONSUMED,), "commits": ("commit", "fetch")}
LATE_S = 60.0
NODES = 3
SHORTEST_S = 4.0
"""The maximum length of a fault in seconds. A broker's session expires before that."""
LONGEST_OPERATIONS = 7
"""The operations of an appender's transaction, each with its timeout: an assignment, offsets, commits, an abort, and
seeking to the committed offsets."""
DISK_SIZE = "96m"
SETTINGS = {
    # Shorter than Kafka's defaults, in the same proportions, because only timeouts reveal a disconnected node.
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "group.min.session.timeout.ms": "1000",
    "log.index.size.max.bytes": "4096",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}


@dataclass(frozen=True)
class Options:
    seed: int
    seconds: float
    workloads: Sequence[str] = tuple(WORKLOADS)
    faults: Sequence[str] = KINDS
    kind: str = KAFKACOMPAT
    python_path: str | None = None
    """PYTHONPATH of the nodes, which may plant a bug."""


def run(options: Options, folder: Path) -> Findings:
    """The history is `history.jsonl` in the folder, the findings are `findings.txt`, and the nodes' files are below
    `cluster`."""
    folder.mkdir(parents=True, exist_ok=True)
    findings: list[tuple[str, str]] = []
    recorder = Recorder(folder / "history.jsonl")
    with contextlib.ExitStack() as mounts:
        with contextlib.ExitStack() as stack:
            stack.callback(recorder.close)
            cluster, nemesis = stack.enter_context(_cluster(options, folder, recorder, mounts))
            surroundings = Surroundings(
                cluster.bootstrap, recorder, options.seed, log_path=folder / "clients.log"
            )
            clients: list[Client] = []
            for name in options.workloads:
                clients += WORKLOADS[name].start(surroundings)

            def told(text: str) -> None:
                findings.append(("not whole again", text))

            faults = plan(options.seed, options.faults, max(SHORTEST_S, options.seconds / 3))
            with harming(nemesis, faults, told):
                _work(options, recorder)
            surroundings.ended.set()
            deadline = time.monotonic() + LONGEST_OPERATIONS * OPERATION_TIMEOUT_S
            for client in clients:
                client.join(max(0.0, deadline - time.monotonic()))
            findings += [("client", text) for text in surroundings.faults]
            findings += _end(options, cluster, recorder)
        judged = check(load(folder / "history.jsonl"), staleness_of(options.kind))
        for kind, text in findings:
            judged.add(kind, text)
        (folder / "findings.txt").write_text(f"{judged}\n")
        if not judged.is_well:
            _keep_disks(cluster)
    return judged


def _work(options: Options, recorder: Recorder) -> None:
    """Run for the requested time, and until every workload has done its essential operations: on a busy machine groups
    form late."""
    wanted = {name for workload in options.workloads for name in TO_BE_SEEN[workload]}
    end = time.monotonic() + options.seconds
    while (now := time.monotonic()) < end or (now < end + LATE_S and not all(map(recorder.done.get, wanted))):
        time.sleep(0.1)


def _keep_disks(cluster: Cluster) -> None:
    """Copy the nodes' files from file systems that are about to be unmounted."""
    for node in cluster.nodes.values():
        disk = node.root / "disk"
        if disk.is_mount():
            shutil.copytree(disk / "data", node.root / "data")


@contextlib.contextmanager
def _cluster(
    options: Options, folder: Path, recorder: Recorder, mounts: contextlib.ExitStack
) -> Iterator[tuple[Cluster, Nemesis]]:
    """`mounts` unmounts the nodes' disks later."""
    with contextlib.ExitStack() as stack:
        network, places = None, None
        if NETWORK_KINDS & set(options.faults):
            network = Network(NODES)
            stack.callback(network.close)
            places = [host.place for host in network.hosts.values()]
        cluster = Cluster(options.kind, folder / "cluster", nodes=NODES, settings=SETTINGS, places=places)
        disks: dict[int, Path] = {}
        for node in cluster.nodes.values():
            if options.python_path is not None:
                node.environment["PYTHONPATH"] = options.python_path
            if "disk" in options.faults:
                disks[node.node_id] = mounts.enter_context(mounted_tmpfs(node.root / "disk", DISK_SIZE))
                node.settings["log.dirs"] = str(disks[node.node_id] / "data")
        stack.callback(cluster.close)
        cluster.start()
        for topic, partitions in _topics(options):
            cluster.create_topic(topic, partitions)
        coordinated = [key for name in options.workloads for key in WORKLOADS[name].COORDINATED]
        yield cluster, Nemesis(cluster, recorder, _topics(options), coordinated, network, disks)


def _topics(options: Options) -> list[tuple[str, int]]:
    return [(WORKLOADS[name].TOPIC, WORKLOADS[name].PARTITIONS) for name in options.workloads]


def _end(options: Options, cluster: Cluster, recorder: Recorder) -> list[tuple[str, str]]:
    """Problems that the history does not show. If a step does not end, the other steps run nevertheless."""
    found: list[tuple[str, str]] = []

    def whole() -> None:
        cluster.mend()
        if "append" in options.workloads:
            ending.end_transactions(cluster.bootstrap)

    steps = {
        "not whole again": whole,
        "not readable": lambda: ending.read_everything(recorder, cluster.bootstrap, _topics(options)),
        "replicas differ": lambda: ending.compare_replicas(recorder, cluster, _topics(options)),
    }
    if "commits" in options.workloads:
        steps["commits not readable"] = lambda: ending.fetch_commits(recorder, cluster.bootstrap)
        steps["log of commits not readable"] = lambda: ending.read_commits(recorder, cluster.bootstrap)
    for kind, step in steps.items():
        try:
            step()
        except Exception as error:
            found.append((kind, str(error)))
    if options.kind == KAFKACOMPAT:
        for node in cluster.nodes.values():
            for text in ending.unexpected(node.log_text()):
                found.append(("unexpected in a log", f"node {node.node_id}: {text}"))
    return found


def default_folder(options: Options) -> Path:
    """A new folder below the working directory."""
    return Path(f"histories-{options.kind}-{options.seed}-{os.getpid()}")
