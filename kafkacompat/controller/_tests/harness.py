"""A whole local controller in memory: core, service and raft driver over a log, a disk and workers that a test drives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.bootstrap import bootstrap_values
from kafkacompat.controller.core import ControllerCore
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.records import RecordClasses, unframe
from kafkacompat.controller.service import LocalController
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.raft._tests.support import (
    CountingRandom,
    FixedClock,
    ManualWorkers,
    MemoryDisk,
    MemoryLog,
)
from kafkacompat.raft.driver import RaftDriver
from kafkacompat.raft.snapshot import batch_records
from kafkacompat.raft.voters import Voter
from kafkacompat.records.batch import iterate_batches
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener

DIRECTORY = "/data/__cluster_metadata-0"
OWN_LISTENERS = (("CONTROLLER", "127.0.0.1", 9093),)
DIRECTORY_ID = bytes(14) + b"\x7f\x01"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAbQ"


class Harness:
    def __init__(
        self,
        log: MemoryLog | None = None,
        disk: MemoryDisk | None = None,
        properties: Mapping[str, str] | None = None,
        directory_id: bytes = DIRECTORY_ID,
        listeners: tuple[tuple[str, str, int], ...] = OWN_LISTENERS,
        max_bytes_between_snapshots: int = 20_971_520,
    ) -> None:
        self.log = log or MemoryLog()
        self.disk = disk or MemoryDisk()
        self.workers = ManualWorkers()
        self.clock = FixedClock()
        self.random = CountingRandom()
        self.failures: list[BaseException] = []
        self.images: list[MetadataImage] = []
        settings = ServerConfig.from_properties({**defaults_without_file(), **(properties or {})})
        self.core = ControllerCore(ControllerSettings(settings, 1, CLUSTER_ID))
        self.driver = RaftDriver(
            node_id=1,
            directory_id=directory_id,
            directory=DIRECTORY,
            log=self.log,
            disk=self.disk,  # type: ignore[arg-type]
            workers=self.workers,
            clock=self.clock,
            static_voters=(Voter(1, bytes(16), listeners),),
            own_listeners=listeners,
            fail=self.failures.append,
        )
        self.controller = LocalController(
            self.core,
            self.driver,
            self.random,
            max_bytes_between_snapshots=max_bytes_between_snapshots,
        )
        self.controller.subscribe(lambda old, new: self.images.append(new))

    def start(self) -> Harness:
        ready = self.controller.start(
            bootstrap_values(), bytes(15) + b"\x77", [("CONTROLLER", "127.0.0.1", 9093, 0)]
        )
        self.workers.run_all()
        assert ready.done
        return self

    def serve(self, previous_broker_epoch: int = -1, incarnation: int = 1) -> int:
        """Register and unfence broker 1; its epoch."""
        registered = self.controller.register_broker(registration(previous_broker_epoch, incarnation))
        self.workers.run_all()
        epoch = registered.result()
        self.controller.unfence_broker(1, epoch)
        self.workers.run_all()
        return epoch

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def messages(self, start_offset: int = 0) -> list[Any]:
        """Every data record of the log from start_offset on."""
        classes, found = RecordClasses(), []
        view = memoryview(self.log.data())
        for header in iterate_batches(view):
            if header.is_control:
                continue
            for record in batch_records(view, header):
                if header.base_offset + record.offset_delta >= start_offset:
                    found.append(unframe(record.value or b"", classes)[1])
        return found

    def call(self, command: Any, request: Any) -> Any:
        answer = command(request, None)
        self.workers.run_all()
        return answer.result()


def registration(
    previous_broker_epoch: int = -1,
    incarnation: int = 1,
    broker_id: int = 1,
    directories: Sequence[bytes] = (DIRECTORY_ID,),
    rack: str | None = None,
) -> BrokerRegistrationRequest:
    from kafkacompat.controller.features import SUPPORTED_FEATURES

    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation.to_bytes(16, "big"),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=rack,
        log_dirs=list(directories),
        previous_broker_epoch=previous_broker_epoch,
    )
