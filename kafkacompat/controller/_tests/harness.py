"""A complete controller in memory: machine, commands and quorum driver over a log, a disk and workers controlled by
the test."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkacompat._tests.doubles import CountingRandom, HandWorkers
from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.config import ServerConfig, defaults_without_file
from kafkacompat.controller.core import ControllerCore, bootstrap_values
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.metadata_machine import MetadataMachine
from kafkacompat.controller.quorum_controller import ControllerServices, QuorumController
from kafkacompat.controller.reach import Probed, Reach
from kafkacompat.controller.records import RecordClasses, unframe
from kafkacompat.controller.settings import ControllerSettings
from kafkacompat.deferred import Deferred
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.ports import FileSlice
from kafkacompat.quota.client_quotas import QuotaManagers
from kafkacompat.raft._tests.driver_support import QuorumTime
from kafkacompat.raft.metadata_log import metadata_log_config, open_metadata_log
from kafkacompat.raft.quorum_driver import QuorumDriver
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.snapshot import batch_records
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.tasks import Tasks
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener

DIRECTORY = "/data/__cluster_metadata-0"
BROKER_ADDRESS = ("127.0.0.1", 9092)
OWN_LISTENERS = (("CONTROLLER", "127.0.0.1", 9093),)
DIRECTORY_ID = bytes(14) + b"\x7f\x01"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAbQ"


NO_OP_INTERVAL = "metadata.max.idle.interval.ms"
"""Off, so that the log has only what a test does."""
HEARD_ON = 7
"""The default connection of brokers."""


class NoTransport:
    """There is no other node."""

    on_refused: Callable[[int], None]

    def request(self, *asked: Any, **options: Any) -> Deferred[Any]:
        return Deferred()


def context(
    api_version: int = 0, connection_id: int = HEARD_ON, client_host: str = "127.0.0.1"
) -> RequestContext:
    return RequestContext(0, api_version, 1, "test", connection_id, "CONTROLLER", client_host)


class Harness:
    def __init__(
        self,
        disk: MemoryDisk | None = None,
        properties: Mapping[str, str] | None = None,
        directory_id: bytes = DIRECTORY_ID,
        listeners: tuple[tuple[str, str, int], ...] = OWN_LISTENERS,
        max_bytes_between_snapshots: int = 20_971_520,
        node_id: int = 1,
        directory: str = DIRECTORY,
        reachable: Sequence[tuple[str, int]] = (BROKER_ADDRESS,),
    ) -> None:
        """`reachable`: addresses where the first connection attempt succeeds."""
        self.disk: Any = disk or MemoryDisk()
        self.disk.make_directory(directory)
        self.workers = HandWorkers()
        self.world = QuorumTime()
        config = metadata_log_config(1 << 20, 1 << 40)
        parent = posixpath.dirname(directory)
        self.log = open_metadata_log(self.disk, parent, config, self.world, clean=False)
        self.random = CountingRandom()
        self.failures: list[BaseException] = []
        self.images: list[MetadataImage] = []
        self.probes: list[tuple[str, int, Deferred[Probed]]] = []
        """Connection attempts that the test answers: all except the first to each of `reachable`."""
        self.reachable = set(reachable)
        self.properties = properties
        settings = ServerConfig.from_properties(
            {**defaults_without_file(), NO_OP_INTERVAL: "0", **(properties or {})}
        )
        controller_settings = ControllerSettings(settings, node_id, CLUSTER_ID)
        self.tasks = Tasks(self.world)
        self.machine = MetadataMachine(
            ControllerCore(controller_settings),
            self.tasks,
            max_bytes_between_snapshots=max_bytes_between_snapshots,
            max_ms_between_snapshots=settings.get_int("metadata.log.max.snapshot.interval.ms"),
        )
        self.driver = QuorumDriver(
            member=Member(node_id, directory_id, listeners, True, CLUSTER_ID),
            settings=QuorumSettings(),
            listener_name="CONTROLLER",
            directory=directory,
            log=self.log,
            disk=self.disk,
            workers=self.workers,
            clock=self.world,
            timers=self.world,
            random=self.random,
            static_voters=(VoterNode(node_id, bytes(16), listeners),),
            transport=NoTransport(),
            fail=self.failures.append,
        )
        self.machine.attach(self.driver)
        self.reach = Reach(node_id, settings.inter_broker_listener_name, self._probe, self.world)
        self.machine.subscribe(self.reach.on_image)
        self.quotas = QuotaManagers()
        self.controller = QuorumController(
            ControllerServices(
                self.machine,
                controller_settings,
                self.driver,
                self.reach,
                self.quotas,
                bootstrap_values(),
                self.world,
                self.world,
                self.tasks,
                self.random,
                lambda host: Deferred.of("127.0.0.1" if host == "localhost" else None),
            )
        )
        self.liveness = self.controller.liveness
        self.machine.subscribe(lambda old, new: self.images.append(new))

    def _probe(self, host: str, port: int) -> Deferred[Probed]:
        if (host, port) in self.reachable:
            self.reachable.remove((host, port))
            return Deferred.of(Probed.REACHED)
        found: Deferred[Probed] = Deferred()
        self.probes.append((host, port, found))
        return found

    def start(self) -> Harness:
        self.driver.start(self.machine)
        self.workers.run_all()
        assert self.controller.is_active
        return self

    def serve(self, previous_broker_epoch: int = -1, incarnation: int = 1, broker_id: int = 1) -> int:
        """Register and unfence a broker. Returns its epoch."""
        directories = [DIRECTORY_ID] if broker_id == 1 else [bytes([0x30 + broker_id]) * 16]
        request = registration(previous_broker_epoch, incarnation, broker_id, directories)
        answer = self.call(self.controller.broker_registration, request)
        assert answer.error_code == 0
        epoch = int(answer.broker_epoch)
        beat = self.beat(epoch, broker_id=broker_id)
        assert (beat.error_code, beat.is_fenced) == (0, False)
        return epoch

    def beat(self, epoch: int, broker_id: int = 1, **wants: bool) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=self.image.offset,
            cordoned_log_dirs=[],
            **wants,  # type: ignore[arg-type]
        )
        return self.call(self.controller.broker_heartbeat, request)

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    def data(self) -> bytes:
        """All bytes of the log."""
        read = self.log.read(self.log.log_start_offset, 1 << 30, self.log.log_end_offset, True).records
        return read.read() if isinstance(read, FileSlice) else bytes(read)

    def batches(self) -> list[BatchHeader]:
        return list(iterate_batches(self.data()))

    def after_kill(self, **options: Any) -> Harness:
        """A new controller on the same disk, as after a kill. Not started."""
        return Harness(self.disk.copy(), self.properties, **options)

    def messages(self, start_offset: int = 0) -> list[Any]:
        """Every data record of the log from start_offset on."""
        classes, found = RecordClasses(), []
        view = memoryview(self.data())
        for header in iterate_batches(view):
            if header.is_control:
                continue
            for record in batch_records(view, header):
                if header.base_offset + record.offset_delta >= start_offset:
                    found.append(unframe(record.value or b"", classes)[1])
        return found

    def call(self, command: Any, request: Any) -> Any:
        # The node's own broker, 1, sends requests from the same process.
        is_own = getattr(request, "broker_id", None) == 1
        answer = command(request, context(connection_id=NO_CONNECTION if is_own else HEARD_ON))
        self.workers.run_all()
        turns = 0
        while not answer.done and turns < 1_000:
            turns += 1
            self.world.advance(0)  # the steps of a large command
            self.workers.run_all()
        return answer.result()


def registration(
    previous_broker_epoch: int = -1,
    incarnation: int = 1,
    broker_id: int = 1,
    directories: Sequence[bytes] = (DIRECTORY_ID,),
    rack: str | None = None,
    listeners: Sequence[tuple[str, str, int]] = (("PLAINTEXT", *BROKER_ADDRESS),),
) -> BrokerRegistrationRequest:
    from kafkacompat.controller.features import SUPPORTED_FEATURES

    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation.to_bytes(16, "big"),
        listeners=[
            Listener(name=name, host=host, port=port, security_protocol=0) for name, host, port in listeners
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=rack,
        log_dirs=list(directories),
        previous_broker_epoch=previous_broker_epoch,
    )
