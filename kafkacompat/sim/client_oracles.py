"""Checks everything that clients are told, against the committed records that the partition oracles know.

Every acknowledged record is committed. A consumer gets only committed records, and all of them. At the end, every
replica has the last acknowledged value of each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkacompat.records.batch import BatchHeader, iterate_batches, parse_header
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.compaction_oracle import contents_of
from kafkacompat.sim.ledgers import opened, written
from kafkacompat.sim.processes import Environment
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.messages.produce_request import ProduceRequest

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_oracles import PartitionOracles
    from kafkacompat.sim.views import NodeView

ALL_REPLICAS = -1


class ClientOracles:
    def __init__(
        self, env: Environment, machines: Mapping[int, MachineView], partitions: PartitionOracles
    ) -> None:
        self._env = env
        self._machines = machines
        self._partitions = partitions

    def answered(self, life: NodeView, request: Any, response: Any) -> None:
        """A node sends an answer. The records that it acknowledges must be committed."""
        if not isinstance(request, ProduceRequest) or request.acks != ALL_REPLICAS:
            return
        self._partitions.look(life)
        for asked, topic in zip(request.topic_data, response.responses, strict=True):
            for data, answer in zip(asked.partition_data, topic.partition_responses, strict=True):
                if answer.error_code == 0:
                    header = parse_header(data.records)
                    self._acknowledged((asked.topic_id, data.index), header, answer.base_offset, life.id)

    def _acknowledged(self, key: Key, header: BatchHeader, base_offset: int, node_id: int) -> None:
        ledger = self._partitions.ledgers[key]
        batch = ledger.batches.get(base_offset)
        if any(each.crc == header.crc for each in ledger.history.lost.get(base_offset, ())):
            return
        if (
            batch is None
            or (header.producer_id < 0 and batch.crc != header.crc)
            or batch.producer_id != header.producer_id
            or batch.base_sequence != header.base_sequence
        ):
            raise Breach(
                "acknowledged is committed",
                f"node {node_id} acknowledges {ledger.name} at {base_offset}, "
                f"committed is all below {ledger.end}, and there {batch}",
            )
        ledger.acknowledged += 1

    def consumed(self, key: Key, records: bytes) -> None:
        """Check that all records shown to a consumer are committed."""
        ledger = self._partitions.ledgers[key]
        for header in iterate_batches(records):
            if not ledger.was_committed(header.base_offset, written(header)):
                raise Breach(
                    "consumers see what is committed",
                    f"{ledger.name} at {header.base_offset} is shown as "
                    f"{written(header)}, committed is {ledger.batches.get(header.base_offset)}",
                )

    def passed(self, key: Key, start: int, end: int) -> None:
        """A consumer continues at a later offset without having been shown the records in between."""
        ledger = self._partitions.ledgers[key]
        now_us = None if self._env.counters.clock_jumps else self._env.scheduler.now_us
        for offset in range(start, end):
            if ledger.keys is None or not ledger.keys.may_be_gone(offset, now_us):
                raise Breach("consumers miss nothing", f"{ledger.name} went from {start} to {end}")

    def asked_to_delete(self, key: Key, offset: int) -> None:
        """A client is about to request a deletion of records. In a compacted topic the request is refused."""
        ledger = self._partitions.ledgers[key]
        if ledger.keys is None:
            ledger.starts.asked = max(ledger.starts.asked, offset)

    def check_latest(self, key: Key, latest: Mapping[bytes, bytes | None]) -> None:
        """At the end, check that the last acknowledged value of each key is the last value on every replica."""
        for machine in self._machines.values():
            partitions = None if machine.life is None else machine.life.partitions
            core = None if partitions is None else partitions.by_id.get(key)
            if core is None:
                continue
            shown: dict[bytes | None, bytes | None] = {}
            with machine.watched():
                for header, view in opened(core.log, 0, core.log.high_watermark):
                    shown.update(contents_of(header, view).values())
            for name, value in latest.items():
                # A tombstone may be gone after delete.retention.ms.
                if shown.get(name) != value:
                    raise Breach(
                        "each key's last acknowledged value stays",
                        f"{core.topic_partition} on node {machine.id} shows {shown.get(name)!r} for {name!r} instead of {value!r}",
                    )
