"""The settings of a simulated node: `server.properties` with short times, by the options of the cluster."""

from __future__ import annotations

from kafkacompat.config.keys import broker_keys
from kafkacompat.config.server import CONTROLLER_BOOTSTRAP_SERVERS, TIERING
from kafkacompat.sim.cluster_options import (
    LOG_DIRECTORIES,
    METADATA_DIRECTORY,
    MIN_ISR,
    MOVE_RATE,
    REPLICATION_FACTOR,
    ClusterOptions,
    rack_of,
)
from kafkacompat.sim.group_clients import GROUP_SESSION_MS, HEARTBEAT_MS
from kafkacompat.sim.links import BROKER_PORT, CONTROLLER_PORT, EXTERNAL_PORT, host_name
from kafkacompat.sim.security import listener_of, protocols, secured_properties

AS_LONG_AS_IT_TAKES_MS = 2**31 - 1
SHARE_SWEEPS = tuple(
    name for name in broker_keys() if name.startswith("share.coordinator.") and name.endswith(".interval.ms")
)
"""The times of whatever the share coordinator does once in a while."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def node_properties(options: ClusterOptions, node_id: int) -> dict[str, str]:
    roles, listeners = [], []
    if node_id in options.brokers:
        roles.append("broker")
        # A listener for clients of another network, which is not simulated. Connections to it are refused.
        listeners.append(f"EXTERNAL://{host_name(node_id)}:{EXTERNAL_PORT}")
        listeners.append(f"PLAINTEXT://{host_name(node_id)}:{BROKER_PORT}")
        listeners += listener_of(options, node_id)
    if node_id in options.controllers:
        roles.append("controller")
        listeners.append(f"CONTROLLER://{host_name(node_id)}:{CONTROLLER_PORT}")
    addresses = {each: f"{host_name(each)}:{CONTROLLER_PORT}" for each in options.controllers}
    if options.changes_voters:
        quorum = {CONTROLLER_BOOTSTRAP_SERVERS: ",".join(addresses.values())}
    else:
        voters = ",".join(f"{node}@{address}" for node, address in addresses.items())
        quorum = {"controller.quorum.voters": voters}
    numbers = {
        "controller.quorum.election.timeout.ms": options.election_ms,
        "controller.quorum.fetch.timeout.ms": options.quorum_fetch_ms,
        "controller.quorum.election.backoff.max.ms": options.election_ms,
        "controller.quorum.request.timeout.ms": options.quorum_fetch_ms,
        "broker.heartbeat.interval.ms": options.heartbeat_ms,
        "broker.session.timeout.ms": options.session_ms,
        "controller.socket.timeout.ms": 2 * options.session_ms,
        "replica.lag.time.max.ms": options.lag_ms,
        "replica.fetch.wait.max.ms": options.fetch_wait_ms,
        "replica.fetch.backoff.ms": options.fetch_backoff_ms,
        "replica.fetch.max.bytes": options.fetch_bytes,
        "replica.fetch.response.max.bytes": 4 * options.fetch_bytes,
        "replica.socket.timeout.ms": 4 * options.fetch_wait_ms,
        "replica.high.watermark.checkpoint.interval.ms": 700,
        "log.flush.offset.checkpoint.interval.ms": 1500,
        "log.flush.start.offset.checkpoint.interval.ms": 1500,
        "log.initial.task.delay.ms": 500,
        "log.segment.delete.delay.ms": 500,
        "min.insync.replicas": MIN_ISR,
        "producer.id.expiration.check.interval.ms": 1_300,
        "leader.imbalance.check.interval.seconds": 2,
        "offsets.topic.num.partitions": 1,
        # What expires stays for days, so that clients need not expect it.
        "offsets.retention.check.interval.ms": 800,
        "group.min.session.timeout.ms": 100,
        "group.initial.rebalance.delay.ms": 50,
        "transaction.state.log.num.partitions": 2,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 900,
        "request.timeout.ms": 2_000,
        "initial.broker.registration.timeout.ms": AS_LONG_AS_IT_TAKES_MS,
        "metadata.log.max.record.bytes.between.snapshots": options.snapshot_bytes,
        "metadata.max.idle.interval.ms": options.no_op_ms,
        "internal.metadata.log.segment.bytes": 20_000,
        "leader.imbalance.per.broker.percentage": 0,
    }
    if options.segment_bytes:
        numbers |= {
            "log.cleaner.backoff.ms": 1_000,
            "log.cleaner.dedupe.buffer.size": 2 << 20,
            "log.retention.check.interval.ms": 900,
        }
    if options.consumer_members:
        numbers |= consumer_group_numbers(options)
    if options.share_workers:
        numbers |= share_group_numbers(options)
    if options.streams_members:
        numbers |= streams_group_numbers(options)
    texts = {}
    if options.tier_segment_bytes:
        numbers |= tier_numbers(options)
        texts[TIERING] = "true"
        texts["follower.fetch.last.tiered.offset.enable"] = str(options.tier_last_offset).lower()
    if options.share_letters_made:
        texts["errors.deadletterqueue.auto.create.topics.enable"] = "true"
    if options.move_bytes:
        numbers[MOVE_RATE] = options.move_bytes
    return {
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": protocols(options),
        "log.dirs": ",".join(LOG_DIRECTORIES[: options.directories]),
        "metadata.log.dir": METADATA_DIRECTORY,
        "broker.rack": rack_of(node_id),
        "auto.leader.rebalance.enable": str(options.rebalances).lower(),
        "auto.create.topics.enable": "false",
        **quorum,
        **secured_properties(options),
        **texts,
        **({"replica.selector.class": RACK_AWARE} if options.reads_nearby else {}),
        **{name: str(value) for name, value in numbers.items()},
    }


def tier_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, and few threads."""
    return {
        "log.retention.check.interval.ms": 400,
        "remote.log.manager.task.interval.ms": 250,
        "remote.log.manager.task.retry.backoff.ms": 100,
        "remote.log.manager.copier.thread.pool.size": 2,
        "remote.log.manager.expiration.thread.pool.size": 2,
        "remote.log.reader.threads": 3,
        "remote.fetch.max.wait.ms": 500,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 2,
        "rlmm.config.remote.log.metadata.topic.replication.factor": REPLICATION_FACTOR,
        "rlmm.config.remote.log.metadata.topic.min.isr": MIN_ISR,
        "rlmm.config.remote.log.metadata.consume.wait.ms": 5_000,
    }


def consumer_group_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, which must be allowed as well."""
    times = {"session.timeout.ms": GROUP_SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    return {
        **{f"group.consumer.{name}": time_ms for name, time_ms in times.items()},
        **{f"group.consumer.min.{name}": time_ms for name, time_ms in times.items()},
        "group.consumer.assignment.interval.ms": options.assignment_ms,
    }


def streams_group_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, which must be allowed as well."""
    times = {"session.timeout.ms": GROUP_SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    return {
        **{f"group.streams.{name}": time_ms for name, time_ms in times.items()},
        **{f"group.streams.min.{name}": time_ms for name, time_ms in times.items()},
        "group.streams.assignment.interval.ms": options.assignment_ms,
        "group.streams.initial.rebalance.delay.ms": options.streams_delay_ms,
        "group.streams.num.standby.replicas": options.streams_standbys,
        "default.replication.factor": REPLICATION_FACTOR,
    }


def share_group_numbers(options: ClusterOptions) -> dict[str, int]:
    """Short times, which must be allowed as well."""
    times = {
        "session.timeout.ms": GROUP_SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "record.lock.duration.ms": options.share_lock_ms,
        "delivery.count.limit": options.share_deliveries,
        "partition.max.record.locks": options.share_record_locks,
    }
    least = {"record.lock.duration.ms": 1_000, "delivery.count.limit": 2, "partition.max.record.locks": 100}
    return {
        **{f"group.share.{name}": value for name, value in times.items()},
        **{f"group.share.min.{name}": least.get(name, value) for name, value in times.items()},
        "group.share.assignment.interval.ms": 0,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.snapshot.update.records.per.snapshot": options.share_updates_per_snapshot,
        **dict.fromkeys(SHARE_SWEEPS, options.share_sweep_ms),
        "default.replication.factor": REPLICATION_FACTOR,
    }
