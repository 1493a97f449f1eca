"""Share groups at one leader: real logs on a memory disk, a persister in memory, and requests as messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import LogConfig, ServerConfig, defaults_without_file
from kafkacompat.controller.image import TopicImage
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import LISTENER, NODE_ID, LedPartitions, topic_image
from kafkacompat.partition.service import FetchedRemotely, RemoteFetch
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.share.dead_letter_queue import DeadLetterQueue
from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    TopicIdPartition,
    WriteState,
)
from kafkacompat.share.settings import ShareSettingsCache
from kafkacompat.share.share_partition_cache import ShareServices
from kafkacompat.share.share_partition_manager import SharePartitionManager
from kafkacompat.tasks import Task, Tasks
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_acknowledge_request as acknowledge
from kafkacompat.wire.messages import share_fetch_request as fetch
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from kafkacompat.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP = "g"


class MemoryPersister:
    """Keeps states. With `held`, answers wait until `answer_all`."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, ReadState] = {}
        self.writes: list[tuple[SharePartitionKey, WriteState]] = []
        self.reads: list[SharePartitionKey] = []
        self.read_error = ShareError()
        self.write_error = ShareError()
        self.is_held = False
        self._held: list[Callable[[], None]] = []

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[ReadState]:
        self.reads.append(key)
        return self._answer(
            lambda: (
                ReadState(self.read_error)
                if self.read_error.code
                else self.states.get(key, ReadState(start_offset=-1))
            )
        )

    def write(self, key: SharePartitionKey, state: WriteState) -> Deferred[ShareError]:
        self.writes.append((key, state))
        return self._answer(lambda: self._kept(key, state))

    def _kept(self, key: SharePartitionKey, state: WriteState) -> ShareError:
        if not self.write_error.code:
            known = {
                offset: (batch.delivery_state, batch.delivery_count)
                for batches in (self.states.get(key, ReadState()).batches, state.batches)
                for batch in batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
                if offset >= state.start_offset
            }
            batches = [StateBatch(offset, offset, *known[offset]) for offset in sorted(known)]
            self.states[key] = ReadState(
                state_epoch=state.state_epoch, start_offset=state.start_offset, batches=batches
            )
        return self.write_error

    def _answer(self, value: Callable[[], Any]) -> Deferred[Any]:
        if not self.is_held:
            return Deferred.of(value())
        later: Deferred[Any] = Deferred()
        self._held.append(lambda: later.resolve(value()))
        return later

    def answer_all(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each()

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]:
        raise NotImplementedError

    def delete(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]:
        raise NotImplementedError

    def read_summary(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, StateSummary]]:
        raise NotImplementedError


class Remote:
    """Reads of the remote storage, which end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, bool]] = []
        self.answers: list[Deferred[list[FetchedRemotely | ErrorCode | None]]] = []
        self.held = 0

    async def read(
        self, wanted: Sequence[RemoteFetch], max_bytes: int, max_wait_ms: int, *, read_committed: bool
    ) -> list[FetchedRemotely | ErrorCode | None]:
        self.asked += [(each.offset, each.max_bytes, each.minimum_one_batch) for each in wanted]
        answer: Deferred[list[FetchedRemotely | ErrorCode | None]] = Deferred()
        self.answers.append(answer)
        return await answer

    def hold(self, records: memoryview) -> memoryview:
        self.held += len(records)
        return records


class ShareLeader(LedPartitions):
    def __init__(self, *topics: TopicImage, sessions_max: int = 1000, **overrides: str) -> None:
        super().__init__(*(topics or (topic_image("t", 3),)))
        self.static = ServerConfig.from_properties(defaults_without_file(), {})
        self.persister = MemoryPersister()
        self.share_version = 2
        settings = ShareSettingsCache(
            lambda: self.static,
            lambda group: self.image.config(ConfigResourceType.GROUP, group),
            lambda: self.share_version,
        )
        self.share_tasks = tasks = Tasks(self.time)
        dead_letters = DeadLetterQueue(
            NODE_ID,
            lambda: self.image,
            settings.dead_letters_of,
            lambda topic: LogConfig(),
            self.manager,
            lambda node: None,
            lambda request: Deferred(),
            self.time,
            tasks,
            None,
        )
        self.shares = SharePartitionManager(
            ShareServices(
                self.manager,
                self.persister,
                settings,
                dead_letters,
                self.time,
                tasks,
                CountingRandom(),
                self.workers,
                sessions_max,
                lambda: self.engine.max_bytes,
            )
        )
        self.configure(**{"share_auto_offset_reset": "earliest", **overrides})

    def configure(self, group: str = GROUP, **overrides: str) -> None:
        key = (int(ConfigResourceType.GROUP), group)
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        configs = {**self.image.configs, key: {**self.image.configs.get(key, {}), **named}}
        self.publish(replace(self.image, configs=configs))

    def publish(self, image: Any) -> None:
        old = self.image
        super().publish(image)
        if hasattr(self, "shares"):
            self.shares.on_image(old, image)

    def topic_id(self, name: str = "t") -> bytes:
        return self.image.topics[name].id

    def core(self, partition: int = 0, topic: str = "t", group: str = GROUP) -> Any:
        led = self.shares.cache.get(group, TopicIdPartition(self.topic_id(topic), partition))
        assert led is not None
        return led.core

    def request_fetch(
        self,
        member: str = "m",
        epoch: int = 0,
        *,
        partitions: Mapping[Any, Sequence[Any]] | Sequence[int] = (),
        topic: str = "t",
        forget: Sequence[int] = (),
        connection: int | None = None,
        may_read: Callable[[str], bool] | None = None,
        version: int = 2,
        throttling: Any = None,
        group: str = GROUP,
        **fields: Any,
    ) -> Any:
        """`partitions`: indexes, or indexes with acknowledgements (first, last, *types)."""
        values = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        request = fetch.ShareFetchRequest(
            group_id=group, member_id=member, share_session_epoch=epoch, **{**values, **fields}
        )
        if partitions:
            named = dict(partitions) if isinstance(partitions, Mapping) else dict.fromkeys(partitions, ())
            request.topics = [
                fetch.FetchTopic(
                    topic_id=self.topic_id(topic),
                    partitions=[
                        fetch.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, *types in batches
                            ],
                        )
                        for index, batches in named.items()
                    ],
                )
            ]
        if forget:
            request.forgotten_topics_data = [
                fetch.ForgottenTopic(topic_id=self.topic_id(topic), partitions=list(forget))
            ]
        context = self.context(78, version, member if connection is None else connection)
        context.throttling = throttling
        return self.result(self.shares.share_fetch(request, context, may_read))

    def request_acknowledge(
        self,
        member: str,
        epoch: int,
        partitions: Mapping[int, Sequence[Any]] | None = None,
        *,
        topic: str = "t",
        topic_id: bytes | None = None,
        may_read: Callable[[str], bool] | None = None,
        is_renew: bool = False,
        version: int = 2,
    ) -> Any:
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=GROUP, member_id=member, share_session_epoch=epoch, is_renew_ack=is_renew
        )
        if partitions:
            request.topics = [
                acknowledge.AcknowledgeTopic(
                    topic_id=topic_id or self.topic_id(topic),
                    partitions=[
                        acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, *types in batches
                            ],
                        )
                        for index, batches in partitions.items()
                    ],
                )
            ]
        context = self.context(79, version, member)
        return self.result(self.shares.share_acknowledge(request, context, may_read))

    def context(self, key: int, version: int, connection: object) -> RequestContext:
        connection_id = connection if isinstance(connection, int) else hash(connection)
        return RequestContext(key, version, 0, "c", connection_id, LISTENER, "127.0.0.1")

    def disconnect(self, member: str) -> None:
        self.shares.on_connection_closed(hash(member))

    def result(self, answer: Any) -> Any:
        """The response, or a Deferred that is not done. What only pauses goes on."""
        task: Task[Any] = self.share_tasks.run("a request", answer)

        def abandoned() -> None:
            """As api/long_requests: what cannot be abandoned goes on."""
            if task.waits_for is not None and task.waits_for.when_abandoned is not None:
                task.cancel()

        task.when_abandoned = abandoned
        while not task.done and task.waits_for is None:
            self.time.advance(0)
        return task.result() if task.done else task

    def fetched(self, *arguments: Any, **fields: Any) -> ShareFetchResponse:
        answer = self.request_fetch(*arguments, **fields)
        assert isinstance(answer, ShareFetchResponse), "the share fetch waits"
        return answer

    def parked(self, *arguments: Any, **fields: Any) -> Deferred[ShareFetchResponse]:
        answer = self.request_fetch(*arguments, **fields)
        assert isinstance(answer, Deferred), f"the share fetch was answered at once: {answer}"
        return answer

    def acknowledged(self, *arguments: Any, **fields: Any) -> ShareAcknowledgeResponse:
        answer = self.request_acknowledge(*arguments, **fields)
        assert isinstance(answer, ShareAcknowledgeResponse), "the acknowledgement waits"
        return answer


def rows(response: Any) -> dict[int, PartitionData]:
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


def acquired(row: PartitionData) -> list[tuple[int, int, int]]:
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records]


def taken(response: ShareFetchResponse) -> dict[int, list[tuple[int, int, int]]]:
    """What each partition has given."""
    assert response.error_code == ErrorCode.NONE
    return {index: acquired(row) for index, row in rows(response).items() if row.acquired_records}


def offsets_sent(row: PartitionData) -> list[int]:
    data = row.records.read() if isinstance(row.records, FileSlice) else bytes(row.records)
    return [
        offset
        for header in iterate_batches(data)
        for offset, _ in records_of(data[header.position : header.position + header.size], header)
    ]


def codes(response: Any) -> dict[int, int]:
    return {index: row.error_code for index, row in rows(response).items()}
