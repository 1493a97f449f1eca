"""A remote store in a bucket of S3, or of another server that speaks its protocol.

The optional library obstore (kafkacompat[s3]) makes the requests: beside boto3 it needs a fifth of the memory and a quarter of
the processor's time for small reads. Objects have the names of the files of LocalTieredStorage, below the cluster's id:
`prefix/clusterId/topic-partition-topicId/startOffset-segmentId.suffix`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import S3Store

from kafkacompat.config import ConfigError
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import parse_int, uuid_to_text
from kafkacompat.remote.local_tiered_storage import SEGMENT, SUFFIXES
from kafkacompat.remote.ports import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)

if TYPE_CHECKING:
    from obstore.store import S3Config

    from kafkacompat.ports import Disk
    from kafkacompat.remote.metadata import RemoteLogSegmentMetadata

PART_BYTES = 5 << 20
"""A larger file is sent in parts of this size, the smallest that S3 takes."""
PARTS_AT_ONCE = 2
"""Of one file. They are in memory."""
PIECE = 1 << 20
ATTEMPTS = 3
CONNECT_TIMEOUT = timedelta(seconds=5)
TEXT_MAX = 300
"""Characters of the store's words in a message."""
_REFUSED = re.compile(r"status code: 4(?!08|29)\d\d")
"""Answers that say that the request is wrong. 408 and 429 pass."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """rsm.config.s3.*, each without this prefix. Without an access key the client looks where clients of AWS do: in the
    environment, and in what the machine offers."""

    bucket: str
    endpoint: str | None = None
    """The URL of a server that is not AWS."""
    region: str = "us-east-1"
    prefix: str = ""
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    """Of type PASSWORD: never shown."""
    timeout_ms: int = 30_000
    """How long the store may be silent. A whole request, with its body, may take ten times as long."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], prefix: str) -> S3Settings:
        """`prefix`: of the names, rsm.config.s3. with Kafka's default. Raises ConfigError, which shows no secret."""

        def text(name: str) -> str | None:
            return (properties.get(prefix + name) or "").strip() or None

        bucket, key, secret = text("bucket"), text("access.key.id"), text("secret.access.key")
        if bucket is None:
            raise ConfigError(f"{prefix}bucket", None, "Must name a bucket")
        if (key is None) != (secret is None):
            raise ConfigError(
                f"{prefix}access.key.id", key, f"Is set together with {prefix}secret.access.key or not at all"
            )
        endpoint = text("endpoint")
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"{prefix}endpoint", endpoint, "Must be a URL of http or https")
        timeout = text("timeout.ms") or str(cls.__dataclass_fields__["timeout_ms"].default)
        try:
            timeout_ms = parse_int(timeout)
        except ValueError as error:
            raise ConfigError(f"{prefix}timeout.ms", timeout, "Not a number") from error
        if timeout_ms < 1:
            raise ConfigError(f"{prefix}timeout.ms", timeout, "Value must be at least 1")
        return cls(
            bucket, endpoint, text("region") or "us-east-1", text("prefix") or "", key, secret, timeout_ms
        )


class S3Storage:
    """A RemoteStorageManager. `disk`: where the files lie that are copied."""

    def __init__(self, disk: Disk, settings: S3Settings, cluster_id: str) -> None:
        self._disk = disk
        self._below = "/".join(filter(None, (settings.prefix.strip("/"), cluster_id)))
        silence = timedelta(milliseconds=settings.timeout_ms)
        options: S3Config = {"region": settings.region, "virtual_hosted_style_request": False}
        if settings.endpoint is not None:
            options["endpoint"] = settings.endpoint
        if settings.access_key_id is not None and settings.secret_access_key is not None:
            options["access_key_id"] = settings.access_key_id
            options["secret_access_key"] = settings.secret_access_key
        self._store = S3Store(
            settings.bucket,
            config=options,
            client_options={
                "allow_http": settings.endpoint is not None and settings.endpoint.startswith("http://"),
                "connect_timeout": min(CONNECT_TIMEOUT, silence),
                "read_timeout": silence,
                "timeout": 10 * silence,
            },
            retry_config={
                "max_retries": ATTEMPTS - 1,
                "retry_timeout": silence,
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=1),
                    "base": 2,
                },
            },
        )

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        sources: list[tuple[str, str | bytes]] = [
            (SUFFIXES[IndexType.LEADER_EPOCH], data.leader_epoch_index),
            (SUFFIXES[IndexType.OFFSET], data.offset_index),
            (SUFFIXES[IndexType.TIMESTAMP], data.time_index),
            (SUFFIXES[IndexType.PRODUCER_SNAPSHOT], data.producer_snapshot_index),
        ]
        if data.transaction_index is not None:
            sources.append((SUFFIXES[IndexType.TRANSACTION], data.transaction_index))
        for suffix, path in (*sources, (SEGMENT, data.log_segment)):
            if isinstance(path, bytes):
                self._put(metadata, suffix, path)
                continue
            try:
                size = self._disk.file_size(path)
                whole = self._disk.read_bytes(path) if size <= PART_BYTES else None
            except OSError as error:
                raise RemoteStorageException(f"{path} cannot be read: {error}") from error
            self._put(metadata, suffix, self._pieces(path, size) if whole is None else whole)
        return None

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> _ObjectStream:
        size = metadata.segment_size_in_bytes
        end = size if end_position is None else min(size, end_position + 1)
        if start_position >= end:
            return _ObjectStream(iter(()), 0, "")
        name = self._name(metadata, SEGMENT)
        with _told(f"{name} cannot be read"):
            found = obstore.get(self._store, name, options={"range": (start_position, end)})
            if found.meta["size"] < size:
                raise RemoteStorageException(f"{name} has {found.meta['size']} bytes of {size}")
            if found.range != (start_position, end):
                raise RemoteStorageException(f"{name} was asked for another range than {found.range}")
            return _ObjectStream(iter(found.stream(min_chunk_size=PIECE)), end - start_position, name)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> _ObjectStream:
        name = self._name(metadata, SUFFIXES[index_type])
        with _told(f"{name} cannot be read"):
            found = obstore.get(self._store, name)
            return _ObjectStream(iter(found.stream(min_chunk_size=PIECE)), found.meta["size"], name)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        names = [self._name(metadata, suffix) for suffix in (*SUFFIXES.values(), SEGMENT)]
        # S3 deletes all of them by one request, and what is missing is no error.
        with _told(f"{names[-1]} and what belongs to it cannot be deleted"):
            obstore.delete(self._store, names)

    def close(self) -> None:
        """Connections close when nothing uses them."""

    def _name(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        topic_id, topic, partition = metadata.topic_id_partition
        folder = f"{self._below}/{topic}-{partition}-{uuid_to_text(topic_id)}"
        return (
            f"{folder}/{metadata.start_offset:020}-{uuid_to_text(metadata.remote_log_segment_id.id)}{suffix}"
        )

    def _put(self, metadata: RemoteLogSegmentMetadata, suffix: str, body: bytes | Iterator[bytes]) -> None:
        """Nobody sees a part of an object."""
        name = self._name(metadata, suffix)
        with _told(f"{name} cannot be stored"):
            obstore.put(
                self._store,
                name,
                body,
                use_multipart=not isinstance(body, bytes),
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    def _pieces(self, path: str, size: int) -> Iterator[bytes]:
        try:
            file, position = self._disk.open(path), 0
            while position < size:
                piece = file.read_cold(position, min(PIECE, size - position))
                if not piece:
                    raise RemoteStorageException(f"{path} has become shorter")
                position += len(piece)
                yield piece
        except OSError as error:
            raise RemoteStorageException(f"{path} cannot be read: {error}") from error


class _ObjectStream:
    """A RemoteInputStream of an object, or a range of it, that must have `left` bytes."""

    def __init__(self, pieces: Iterator[Any], left: int, name: str) -> None:
        self._pieces: Iterator[Any] | None = pieces
        self._left = left
        """Bytes that are still to come, with those in `_buffer`."""
        self._buffer = memoryview(b"")
        self._name = name

    def read(self, size: int = -1, /) -> bytes:
        view = memoryview(bytearray(self._left if size < 0 else min(size, self._left)))
        return bytes(view[: self.readinto(view)])

    def readinto(self, buffer: memoryview, /) -> int:
        wanted = min(len(buffer), self._left)
        if self._pieces is None or wanted <= 0:
            return 0
        got = 0
        while got < wanted:
            if not self._buffer:
                with _told(f"{self._name} cannot be read"):
                    piece = next(self._pieces, None)
                if piece is None:
                    raise RetriableRemoteStorageException(f"{self._name} has ended {self._left} bytes early")
                self._buffer = memoryview(piece)
                continue
            part = self._buffer[: wanted - got]
            buffer[got : got + len(part)] = part
            self._buffer = self._buffer[len(part) :]
            got += len(part)
            self._left -= len(part)
        return wanted

    def close(self) -> None:
        self._pieces, self._buffer = None, memoryview(b"")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of the client as those of a remote store. Its own text goes on for pages, and is cut."""
    try:
        yield
    except RemoteStorageException:
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise RemoteStorageException(f"{what}: there is no such bucket") from None
        raise RemoteResourceNotFoundException(f"{what}: it does not exist") from None
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        said = _said(error)
        lasts = not isinstance(error, obstore.exceptions.GenericError) or _REFUSED.search(said)
        kind = RemoteStorageException if lasts else RetriableRemoteStorageException
        raise kind(f"{what}: {said}") from None


def _said(error: BaseException) -> str:
    text = str(error).split("\n\nDebug source:")[0]
    # What is in front of it repeats the name.
    answer = text.find("Server returned")
    return " ".join(text[max(0, answer) :].split())[:TEXT_MAX]
