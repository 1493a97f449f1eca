"""Gathers the facts of `kafkacompat doctor`: what a client of the cluster is told, and what this machine shows.

Each question waits for a bounded time. A question that a broker does not answer leaves its facts out.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.diagnosis import PARTITIONS, QUORUM
from kafkacompat.cli.facts import (
    BrokerFacts,
    ClusterFacts,
    LocalFacts,
    LogDir,
    PartitionFacts,
    QuorumFacts,
)
from kafkacompat.cli.settings import is_laid_out
from kafkacompat.cli.view import QUORUM_TOPIC, Broker, Partition, brokers_of, min_isr_of, partitions_of
from kafkacompat.client.blocking import Cluster, Connection, Remote
from kafkacompat.client.brokers import bootstrap_address, check, error_name
from kafkacompat.client.exchange import BrokerAway, NoAnswer
from kafkacompat.config import ServerConfig
from kafkacompat.failure import CommandFailed
from kafkacompat.raft.storage import LOCK_FILE, META_PROPERTIES
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkacompat.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkacompat.wire.messages.describe_quorum_response import DescribeQuorumResponse

ANSWER_TIMEOUT_S = 10.0
BROKERS_TOGETHER = 32
FLOCK = "hhqqi0q"
"""struct flock: kind, whence, start, length, process."""
SOFTWARE = ("kafkacompat-doctor", "1")
"""Client name and version, which ApiVersions needs since version 3."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def examine_cluster(address: ClusterAddress) -> ClusterFacts:
    """Ask the cluster, and all brokers together at their advertised addresses. Raises CommandFailed if no bootstrap server
    answers."""
    with Cluster(address, ANSWER_TIMEOUT_S) as cluster:
        remote = cluster.any()
        cluster_id, brokers = brokers_of(remote)
        refused: dict[str, str] = {}
        with ThreadPoolExecutor(BROKERS_TOGETHER) as threads:
            asked = [threads.submit(_broker, brokers[node_id], address) for node_id in sorted(brokers)]
            quorum = _unless_refused(QUORUM, refused, lambda: _quorum(remote))
            partitions = _unless_refused(PARTITIONS, refused, lambda: _partitions(remote))
            found = [each.result() for each in asked]
        return ClusterFacts(
            cluster_id,
            [bootstrap_address(server)[0].strip("[]") for server in address.servers.split(",")],
            found,
            quorum,
            partitions or PartitionFacts(),
            refused,
        )


def _unless_refused(check: str, refused: dict[str, str], ask: Callable[[], T]) -> T | None:
    """The answer. Without one, the reason is noted and the other checks go on."""
    try:
        return ask()
    except CommandFailed as failure:
        refused[check] = str(failure)
        return None


def _broker(known: Broker, address: ClusterAddress) -> BrokerFacts:
    where = host_and_port(known.host, known.port)
    if known.is_fenced:
        return BrokerFacts(known.node_id, where, is_fenced=True)
    try:
        connection = Connection(known.host, known.port, ANSWER_TIMEOUT_S, address.security())
    except CommandFailed as failure:
        hangs = isinstance(failure, NoAnswer)
        return BrokerFacts(known.node_id, where, problem=str(failure), hangs=hangs)
    try:
        versions = _answer(
            connection,
            ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]),
            ApiVersionsResponse,
        )
        log_dirs, untold = _log_dirs(connection)
        return BrokerFacts(
            known.node_id,
            where,
            answers_as=_identity(connection, known.node_id),
            log_dirs=log_dirs,
            log_dirs_untold=untold,
            apis={each.api_key: (each.min_version, each.max_version) for each in versions.api_keys},
            supported={each.name: each.max_version for each in versions.supported_features},
            finalized={each.name: each.max_version_level for each in versions.finalized_features},
        )
    except CommandFailed as failure:
        hangs = isinstance(failure, NoAnswer)
        return BrokerFacts(known.node_id, where, problem=str(failure), hangs=hangs)
    finally:
        connection.close()


def _answer(connection: Connection, request: Message, response_type: type[M]) -> M:
    return connection.call(request, response_type)


def _identity(connection: Connection, node_id: int) -> tuple[str, int] | None:
    """The cluster and the node at the other end. Only a broker itself describes its own settings."""
    cluster_id = connection.call(DescribeClusterRequest(), DescribeClusterResponse).cluster_id
    asked = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(node_id), configuration_keys=["node.id"]
    )
    (result,) = connection.call(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse).results
    if result.error_code == ErrorCode.NONE:
        return cluster_id, node_id
    if result.error_code == ErrorCode.INVALID_REQUEST:
        return cluster_id, -1
    return None


def _log_dirs(connection: Connection) -> tuple[list[LogDir], str]:
    """The directories, or the name of the error."""
    answer = connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    if answer.error_code != ErrorCode.NONE:
        return [], error_name(answer.error_code)
    return [
        LogDir(
            each.log_dir,
            each.total_bytes,
            each.usable_bytes,
            "" if each.error_code == ErrorCode.NONE else error_name(each.error_code),
        )
        for each in answer.results
    ], ""


def _quorum(remote: Remote) -> QuorumFacts | None:
    if not remote.serves(ApiKey.DESCRIBE_QUORUM, 1):
        return None
    asked = TopicData(topic_name=QUORUM_TOPIC, partitions=[PartitionData(partition_index=0)])
    before_ms = _now_ms()
    try:
        answer = remote.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    except BrokerAway:
        # A broker waits for an active controller to answer this. It has answered other questions.
        return None
    after_ms = _now_ms()
    check(answer.error_code, "the metadata quorum", answer.error_message)
    found = answer.topics[0].partitions[0]
    if found.error_code != ErrorCode.NONE:
        return None
    return QuorumFacts(
        found.leader_id,
        {each.replica_id: each.last_caught_up_timestamp for each in found.current_voters},
        {each.replica_id: each.last_caught_up_timestamp for each in found.observers},
        (before_ms, after_ms),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _partitions(remote: Remote) -> PartitionFacts:
    found = partitions_of(remote)
    least = min_isr_of(remote, sorted({each.topic for each in found}))
    return PartitionFacts(
        len(found),
        [_name(each) for each in found if each.leader < 0],
        [
            _name(each)
            for each in found
            if each.leader >= 0 and len(each.isr) < min(least[each.topic], len(each.replicas))
        ],
        [_name(each) for each in found if each.is_under_replicated],
    )


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"


def examine_machine(config: ServerConfig) -> LocalFacts:
    """Look at the directories that a node's settings name, and at the node's process if it runs. Nothing is written."""
    paths = dict.fromkeys((*config.log_dirs, config.metadata_log_dir))
    if is_laid_out(config):
        # Without what is left of a broker that was removed.
        below = [sorted(Path(path).glob("node-*[0-9]/data")) for path in paths]
        paths = dict.fromkeys(str(each) for found in below for each in found)
    pid = next(filter(None, map(_lock_holder, paths)), 0)
    limit = _descriptor_limit_of(pid) if pid else None
    return LocalFacts(
        [_directory(path) for path in paths],
        [path for path in paths if not os.path.exists(f"{path}/{META_PROPERTIES}")],
        _descriptor_limit() if limit is None else limit,
        0 if limit is None else pid,
    )


def _lock_holder(path: str) -> int:
    """The process that has locked a directory. 0 if none has, or if this machine does not tell."""
    try:
        with open(f"{path}/{LOCK_FILE}", "rb") as file:
            asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return 0
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def _directory(path: str) -> LogDir:
    try:
        status = os.statvfs(path)
    except FileNotFoundError:
        return LogDir(path)
    except OSError as error:
        return LogDir(path, error=str(error.strerror))
    return LogDir(
        path,
        status.f_blocks * status.f_frsize,
        status.f_bavail * status.f_frsize,
        usable_files=status.f_favail if status.f_files else -1,
        is_writable=not status.f_flag & os.ST_RDONLY and os.access(path, os.W_OK | os.X_OK),
        log_files=sum(1 for _ in _segments(path)),
    )


def _segments(path: str) -> Iterator[Path]:
    return Path(path).glob("*/*.log")


def _descriptor_limit() -> int:
    """The hard limit of this process, to which a node raises its own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return -1 if hard == resource.RLIM_INFINITY else hard


def _descriptor_limit_of(pid: int) -> int | None:
    """The hard limit of a process of any user, or None if the machine does not tell."""
    try:
        limits = Path(f"/proc/{pid}/limits").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"(?m)^Max open files +\S+ +(\S+)", limits)
    if found is None:
        return None
    return -1 if found[1] == "unlimited" else int(found[1])
