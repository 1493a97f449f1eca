"""What `kafkacompat doctor` concludes from what it has found: one finding for each check.

This module decides and asks nobody. `kafkacompat.cli.examination` gathers the facts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from kafkacompat.cli.facts import BrokerFacts, ClusterFacts, LocalFacts, LogDir, PartitionFacts, QuorumFacts
from kafkacompat.dataclass import dataclass

LEAST_USABLE_SHARE, LEAST_USABLE_BYTES = 0.05, 1 << 30
"""A disk with less is reported. With a tenth of the bytes it fails."""
CLOCK_SKEW_MS = 1_000
CAUGHT_UP_WITHIN_MS = 10_000
"""A node of the quorum that was not at its leader's end for longer is behind. It fetches at least every 500 ms."""
DESCRIPTORS_APART = 1_000
"""File descriptors for connections and everything else but logs."""
LEAST_USABLE_FILES = 10_000
"""A file system that takes fewer is reported. With a tenth of them it fails. Each segment has three files."""
NAMES_AT_MOST = 5
QUORUM, PARTITIONS, DISKS = "metadata quorum", "partitions", "disks"
REFUSED = "give --command-config the credentials of a user who may describe the cluster, its settings and its topics"


class Level(Enum):
    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    text: str
    action: str = ""
    """What to do. Empty for OK."""


def diagnose(cluster: ClusterFacts | None, local: LocalFacts | None) -> list[Finding]:
    """Every check in a fixed order, also those without a complaint."""
    found: list[Finding] = []
    if cluster is not None:
        found += _brokers(cluster)
        found += _listeners(cluster)
        found += _refused(cluster.refused)
        if QUORUM not in cluster.refused:
            found += _quorum(cluster.quorum)
        if PARTITIONS not in cluster.refused:
            found += _partitions(cluster.partitions)
        for broker in cluster.brokers:
            found += _disks(broker.log_dirs, f"broker {broker.node_id}: ", is_local=False)
            found += _untold_disks(broker)
        found += _versions(cluster.brokers)
    if local is not None:
        found += _disks(local.log_dirs, "", is_local=True)
        found += _formatted(local)
        found += _descriptors(local)
    return found


def _refused(refused: Mapping[str, str]) -> Iterator[Finding]:
    for check, reason in refused.items():
        yield Finding(check, Level.FAIL, f"no answer: {reason}", REFUSED)


def _untold_disks(broker: BrokerFacts) -> Iterator[Finding]:
    if broker.log_dirs_untold:
        yield Finding(
            DISKS,
            Level.WARN,
            f"broker {broker.node_id} does not tell its log directories: {broker.log_dirs_untold}",
            REFUSED,
        )


def _brokers(cluster: ClusterFacts) -> Iterator[Finding]:
    fenced = [each.node_id for each in cluster.brokers if each.is_fenced]
    alive = len(cluster.brokers) - len(fenced)
    for node_id in fenced:
        yield Finding(
            "brokers",
            Level.FAIL,
            f"broker {node_id} is registered and fenced",
            f"start it; if it is gone for good: kafkacompat quorum unregister {node_id}",
        )
    if not fenced:
        yield Finding("brokers", Level.OK, f"{alive} are registered, and none is fenced")


def _listeners(cluster: ClusterFacts) -> Iterator[Finding]:
    check = "advertised listeners"
    complaints = False
    is_remote = not all(map(is_loopback, cluster.bootstrap_hosts))
    for broker in cluster.brokers:
        if broker.is_fenced:
            continue
        who = f"broker {broker.node_id} advertises {broker.address}"
        host = broker.address.rpartition(":")[0].strip("[]")
        if is_remote and is_loopback(host):
            complaints = True
            yield Finding(
                check,
                Level.FAIL,
                f"{who}, which other machines cannot reach",
                "set advertised.listeners to an address of that machine and restart the broker",
            )
        elif broker.hangs:
            complaints = True
            yield Finding(
                check,
                Level.FAIL,
                f"{who}, takes connections there and does not answer: {broker.problem}",
                f"see in the log of broker {broker.node_id} what it does; if nothing, restart it",
            )
        elif broker.problem:
            complaints = True
            yield Finding(
                check,
                Level.FAIL,
                f"{who}: {broker.problem}",
                "start the broker if it is down; otherwise set advertised.listeners to an address that is reached from "
                "here, or open the way to it",
            )
        elif broker.answers_as is not None and broker.answers_as != (cluster.cluster_id, broker.node_id):
            complaints = True
            cluster_id, node_id = broker.answers_as
            yield Finding(
                check,
                Level.FAIL,
                f"{who}, but node {node_id} of cluster {cluster_id} answers there",
                "give each broker an address of its own in advertised.listeners",
            )
    if not complaints:
        yield Finding(check, Level.OK, "every broker answers at the address that it advertises")


def _quorum(quorum: QuorumFacts | None) -> Iterator[Finding]:
    check = QUORUM
    if quorum is None or quorum.leader < 0:
        yield Finding(
            check,
            Level.FAIL,
            "there is no active controller",
            "start controllers until more than half of the voters run, and read their logs",
        )
        return
    now_ms = quorum.voters.get(quorum.leader, -1)
    behind = [
        (node_id, role, now_ms - at)
        for role, found in (("voter", quorum.voters), ("observer", quorum.observers))
        for node_id, at in sorted(found.items())
        if now_ms >= 0 and node_id != quorum.leader and now_ms - at > CAUGHT_UP_WITHIN_MS
    ]
    for node_id, role, late_ms in behind:
        # A new leader does not know what its predecessor knew.
        unknown = f"has not been at the end of the metadata log since node {quorum.leader} leads"
        known = f"was {late_ms / 1000:.0f} s ago at the end of the metadata log"
        yield Finding(
            check,
            Level.FAIL if role == "voter" else Level.WARN,
            f"{role} {node_id} {unknown if late_ms > now_ms else known}",
            f"start node {node_id}, or see in its log why it does not follow",
        )
    if not behind:
        yield Finding(
            check, Level.OK, f"node {quorum.leader} leads {len(quorum.voters)} voters, all are caught up"
        )
    if len(quorum.voters) % 2 == 0:
        yield Finding(
            check,
            Level.WARN,
            f"{len(quorum.voters)} voters survive no more failures than {len(quorum.voters) - 1}",
            "add or remove one: kafkacompat quorum add, kafkacompat quorum remove",
        )
    if now_ms >= 0:
        yield _clock(quorum.leader, now_ms, quorum.asked_ms)


def _clock(leader: int, now_ms: int, asked_ms: tuple[int, int]) -> Finding:
    before, after = asked_ms
    skew = now_ms - after if now_ms > after else now_ms - before if now_ms < before else 0
    if abs(skew) <= CLOCK_SKEW_MS:
        return Finding("clock", Level.OK, f"node {leader} and this machine agree")
    return Finding(
        "clock",
        Level.WARN,
        f"the clock of node {leader} is {abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
        "synchronize the clocks of all machines (NTP): retention and timestamps depend on them",
    )


def _partitions(facts: PartitionFacts) -> Iterator[Finding]:
    check = PARTITIONS
    complaints = (
        (
            facts.without_leader,
            Level.FAIL,
            "have no leader",
            "start a broker that was in sync: kafkacompat topics describe --unavailable",
        ),
        (
            facts.under_min_isr,
            Level.FAIL,
            "have fewer replicas in sync than min.insync.replicas and refuse acks=all",
            "start the missing brokers: kafkacompat topics describe --under-min-isr",
        ),
        (
            facts.under_replicated,
            Level.WARN,
            "have replicas that are not in sync",
            "see which brokers are down or slow: kafkacompat topics describe --under-replicated",
        ),
    )
    for names, level, text, action in complaints:
        if names:
            yield Finding(check, level, f"{len(names)} of {facts.count} {text}: {listed(names)}", action)
    if not any(names for names, *_ in complaints):
        yield Finding(check, Level.OK, f"{facts.count}, and every replica is in sync")


def _disks(log_dirs: Iterable[LogDir], who: str, *, is_local: bool) -> Iterator[Finding]:
    for each in log_dirs:
        if each.error:
            yield Finding(
                DISKS,
                Level.FAIL,
                f"{who}{each.path} is offline: {each.error}",
                "repair or replace the disk, then restart the broker",
            )
        elif not each.is_writable:
            yield Finding(
                DISKS,
                Level.FAIL,
                f"{who}{each.path} cannot be written",
                "let the user of the broker own it, and mount its file system for writing",
            )
        elif each.usable_bytes >= 0:
            yield _room(each, who)
            if 0 <= each.usable_files < LEAST_USABLE_FILES:
                yield Finding(
                    DISKS,
                    Level.FAIL if each.usable_files < LEAST_USABLE_FILES // 10 else Level.WARN,
                    f"{who}{each.path} has room for {each.usable_files} more files",
                    "delete files, or give it a file system with more inodes: df -i",
                )
        elif is_local:
            yield Finding(
                DISKS, Level.WARN, f"{who}{each.path} does not exist", "mount its disk, or kafkacompat format"
            )


def _room(each: LogDir, who: str) -> Finding:
    share = each.usable_bytes / max(each.total_bytes, 1)
    text = f"{who}{each.path} has {each.usable_bytes / 1e9:,.1f} GB free ({share:.0%})"
    action = "delete topics, shorten retention.ms or retention.bytes, or give it a larger disk"
    least = min(LEAST_USABLE_BYTES, int(LEAST_USABLE_SHARE * each.total_bytes))
    if each.usable_bytes < least // 10:
        return Finding(DISKS, Level.FAIL, text, action)
    if each.usable_bytes < least:
        return Finding(DISKS, Level.WARN, text, action)
    return Finding(DISKS, Level.OK, text)


def _versions(brokers: Sequence[BrokerFacts]) -> Iterator[Finding]:
    check = "versions"
    asked = [each for each in brokers if each.apis]
    if not asked:
        return
    groups: dict[tuple[object, ...], list[int]] = {}
    for each in asked:
        key = (tuple(sorted(each.apis.items())), tuple(sorted(each.supported.items())))
        groups.setdefault(key, []).append(each.node_id)
    if len(groups) > 1:
        told = "; ".join(
            f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}" for ids in groups.values()
        )
        yield Finding(
            check,
            Level.WARN,
            f"the brokers serve different versions: {told}",
            "finish the upgrade: restart the older ones with the new version",
        )
    common = {
        name: min(each.supported.get(name, 0) for each in asked)
        for name in set().union(*(each.supported for each in asked))
    }
    late = [
        f"{name} is {asked[0].finalized.get(name, 0)} of {level}"
        for name, level in sorted(common.items())
        if name == "metadata.version" and asked[0].finalized.get(name, 0) < level
    ]
    if late:
        yield Finding(
            check,
            Level.WARN,
            f"all brokers support more than is in use: {listed(late)}",
            "after an upgrade that stays: kafkacompat features upgrade --release-version",
        )
    if len(groups) == 1 and not late:
        yield Finding(check, Level.OK, "all brokers serve the same versions")


def _formatted(local: LocalFacts) -> Iterator[Finding]:
    for path in local.unformatted:
        yield Finding(
            "format",
            Level.WARN,
            f"{path} is not formatted",
            "before the next start: kafkacompat format, with --ignore-formatted if other directories are formatted",
        )


def _descriptors(local: LocalFacts) -> Iterator[Finding]:
    need = DESCRIPTORS_APART + sum(each.log_files for each in local.log_dirs)
    whose = f"the node (process {local.pid})" if local.pid else "a node that this shell starts"
    text = f"{whose} may open {_number(local.descriptors)} files, about {need} are needed"
    if local.descriptors < 0 or local.descriptors >= need:
        yield Finding("descriptors", Level.OK, text)
        return
    yield Finding(
        "descriptors",
        Level.FAIL,
        text,
        "raise the limit of open files: LimitNOFILE of the service, or ulimit -n",
    )


def _number(limit: int) -> str:
    return "any number of" if limit < 0 else str(limit)


def listed(names: Sequence[str]) -> str:
    more = len(names) - NAMES_AT_MOST
    return ", ".join(names[:NAMES_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
