"""Protobuf: a schema's file, what its messages have for the fields of a job, and the messages of that type.

The registry has a schema as the text of its file. protoc makes descriptors of it, in a process of its own, whose time is bounded.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.fields import Kind
from kafkacompat.pipeline.formats.named_fields import Place
from kafkacompat.pipeline.schemas.avro import SHOWN_CHARACTERS_MAX, TOO_LARGE, Unusable
from kafkacompat.pipeline.schemas.client import SchemaText
from kafkacompat.pipeline.schemas.wire_format import Malformed, Unshown, message_indexes

MALFORMED_PROTOBUF: Final = "malformed Protobuf"
COMPILE_TIMEOUT_S: Final = 60.0
SAID_CHARACTERS_MAX: Final = 300
DEFAULTS_CHARACTERS_MAX: Final = 1024 * 1024
"""Maximum number of characters of the names of fields that are shown with their default."""
NAME_MARKS: Final = 4
"""Quotes, colon and comma."""
_FILE: Final = "schema.proto"
_SET: Final = ".descriptors"
"""No file that is imported has a name like that."""
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_SAID: Final = re.compile(r"^\S+\.proto:.*", re.MULTILINE)
"""What protoc says of a file, without its warnings."""

_OF_NAMES: Final = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""The errors of names that do not go together."""
_STOPPED: Final = (-signal.SIGKILL, -signal.SIGTERM)
"""The status of a protoc that somebody has stopped, or the system because of its memory. It says nothing of the schema."""

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPER: Final = re.compile(r"google\.protobuf\.(?:String|U?Int32|U?Int64|Float|Double|Bool|Bytes)Value")


class ProtobufFile:
    """The messages in a schema's file. Unusable, and PipelineFailed if protoc cannot be run."""

    def __init__(self, schema: SchemaText) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool

        files = FileDescriptorSet.FromString(_compiled(schema))
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.Add(file)
        self._file = next(file for file in files.file if file.name == _FILE)
        self._messages: dict[tuple[int, ...], ProtobufMessage] = {}

    def record(self, value: bytes) -> tuple[ProtobufMessage, Any]:
        """Return the message in a value, and its type. Malformed, and Unusable if the file has no such type."""
        indexes, start = message_indexes(value)
        message = self.message(indexes)
        return message, message.read(value, start)

    def message(self, indexes: tuple[int, ...]) -> ProtobufMessage:
        """Return the type with these indexes. Unusable if the file has none."""
        if indexes not in self._messages:
            self._messages[indexes] = self._found(indexes)
        return self._messages[indexes]

    def _found(self, indexes: tuple[int, ...]) -> ProtobufMessage:
        names = [self._file.package] if self._file.package else []
        types = self._file.message_type
        for index in indexes:
            if not 0 <= index < len(types):
                raise Unusable(f"it has no message with the indexes {', '.join(map(str, indexes))}")
            names.append(types[index].name)
            types = types[index].nested_type
        return ProtobufMessage(self._pool.FindMessageTypeByName(".".join(names)))


class ProtobufMessage:
    """A writer's type of message."""

    def __init__(self, descriptor: Any) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._descriptor = descriptor
        self._class: Any = GetMessageClass(descriptor)

    @property
    def name(self) -> str:
        """The full name."""
        return str(self._descriptor.full_name)

    def kinds(self, place: Place) -> tuple[frozenset[Kind], str] | None:
        """As AvroSchema.kinds."""
        message: Any = self._descriptor
        field: Any = None
        is_item = False
        for step in place.steps:
            if isinstance(step, int):
                if field is None or is_item or not _is_list(field):
                    return None
                is_item = True
                message = field.message_type
                continue
            if field is not None and _is_map(field) and not is_item:
                entry = field.message_type.fields_by_name
                if entry["key"].type != field.TYPE_STRING:
                    return None
                field, is_item = entry["value"], True
            elif message is None or (field is not None and _is_list(field) and not is_item):
                return None
            else:
                field, is_item = message.fields_by_name.get(step), False
                if field is None:
                    return None
            message = field.message_type
        if _is_map(field) and not is_item:
            return frozenset(), "map"
        if _is_list(field) and not is_item:
            return frozenset(), "repeated"
        return frozenset(_kinds(field)), _text(field)

    def read(self, value: bytes, start: int) -> Any:
        """Return the message in a value, from `start` on. Malformed."""
        from google.protobuf.message import DecodeError

        message = self._class()
        try:
            message.ParseFromString(value[start:])
        except (DecodeError, UnicodeDecodeError):
            raise Malformed(
                f"{MALFORMED_PROTOBUF}: the bytes are not those of a message {self.name}"
            ) from None
        return message

    @staticmethod
    def value(record: Any, place: Place, kind: Kind) -> object:
        """As AvroSchema.value. A field that tracks its presence and is not set is None, any other one has its default."""
        found: Any = record
        field: Any = None
        for step in place.steps:
            if found is None:
                return None
            if isinstance(step, int):
                found = found[step] if step < len(found) else None
            elif field is not None and _is_map(field):
                field, found = field.message_type.fields_by_name["value"], found.get(step)
            else:
                field = found.DESCRIPTOR.fields_by_name[step]
                is_set = not field.has_presence or found.HasField(step)
                found = getattr(found, step) if is_set else None
        return None if found is None else _plain(found, field)

    @staticmethod
    def shown(record: Any) -> dict[str, object]:
        """As AvroSchema.shown, with the fields that have their default, unless they are too many: each item without bytes has
        all fields of its type."""
        from google.protobuf.json_format import Error, MessageToJson

        kinds: dict[str, int] = {}
        given, defaults = _names(record, kinds)
        if given > SHOWN_CHARACTERS_MAX:
            raise Unshown(TOO_LARGE)
        has_defaults = defaults <= DEFAULTS_CHARACTERS_MAX
        try:
            text = MessageToJson(
                record, preserving_proto_field_name=True, always_print_fields_with_no_presence=has_defaults
            )
        except (Error, TypeError, ValueError) as error:
            # Such as a time after the year 9999.
            raise Unshown(f"JSON has no form for it: {error}") from None
        found: dict[str, object] = json.loads(text)
        return found


def _compiled(schema: SchemaText) -> bytes:
    if find_spec("grpc_tools") is None:
        raise PipelineFailed(
            "grpcio-tools is not installed; install with: pip install 'kafkacompat[registry]'"
        )
    try:
        made = tempfile.TemporaryDirectory(prefix="kafkacompat-schema-", ignore_cleanup_errors=True)
    except OSError as error:
        raise PipelineFailed(f"protoc cannot be run: {error.strerror}") from None
    with made as folder:
        root = Path(folder)
        for name, text in (*schema.references, (_FILE, schema.text)):
            if _NAME.fullmatch(name) is None or (name == _FILE and text is not schema.text):
                raise Unusable(f"it imports {name!r}, which is no name of a file")
            try:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            except UnicodeEncodeError:
                raise Unusable(f"{name} is no text: it has half of a surrogate pair") from None
            except OSError as error:
                if error.errno in _OF_NAMES:
                    raise Unusable(
                        f"what it imports cannot be files of one folder: {error.strerror}"
                    ) from None
                raise PipelineFailed(f"protoc cannot be run: {error.strerror}") from None
        arguments = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={root / _SET}", _FILE]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMPILE_TIMEOUT_S,
                cwd=folder,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise Unusable(f"protoc has not read it within {COMPILE_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise PipelineFailed(f"protoc cannot be run: {error.strerror}") from None
        # Text of the schema may stand in what protoc says. It does not know the folder's name.
        is_full = f"{root / _SET}:" in done.stderr and os.strerror(errno.ENOSPC) in done.stderr
        stderr = done.stderr.replace(f"{folder}/", "")
        if done.returncode in _STOPPED or is_full:
            why = " ".join(stderr.split()) or f"it has ended with status {done.returncode}"
            raise PipelineFailed(f"protoc cannot be run: {why[:SAID_CHARACTERS_MAX]}")
        if done.returncode != 0 or not (root / _SET).exists():
            said = " ".join(_SAID.findall(stderr) or stderr.split())
            raise Unusable(f"it is no valid Protobuf schema: {said[:SAID_CHARACTERS_MAX]}")
        return (root / _SET).read_bytes()


def _names(message: Any, kinds: dict[str, int]) -> tuple[int, int]:
    """Return how many characters the names in a message's JSON have: those of the fields in it, and those of all fields that
    may have their default. kinds: the latter of each type that was seen."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name not in kinds:
        bare = [field for field in descriptor.fields if not field.has_presence]
        kinds[descriptor.full_name] = sum(len(field.name) + NAME_MARKS for field in bare)
    given, defaults = 0, kinds[descriptor.full_name]
    for field, found in message.ListFields():
        given += len(field.name) + NAME_MARKS
        if field.message_type is None:
            continue
        inner: Any = (found,)
        if _is_map(field):
            inner = found.values() if field.message_type.fields_by_name["value"].message_type else ()
        elif _is_list(field):
            inner = found
        for each in inner:
            more = _names(each, kinds)
            given, defaults = given + more[0], defaults + more[1]
    return given, defaults


def _is_list(field: Any) -> bool:
    return bool(field.is_repeated) and not _is_map(field)


def _is_map(field: Any) -> bool:
    message = field.message_type
    return bool(field.is_repeated) and message is not None and message.GetOptions().map_entry


def _kinds(field: Any) -> tuple[Kind, ...]:
    message = field.message_type
    if message is not None:
        if message.full_name == _TIMESTAMP:
            return (Kind.INTEGER,)
        return _kinds(message.fields_by_name["value"]) if _WRAPPER.fullmatch(message.full_name) else ()
    return {
        field.CPPTYPE_STRING: () if field.type == field.TYPE_BYTES else (Kind.TEXT,),
        field.CPPTYPE_ENUM: (Kind.TEXT,),
        field.CPPTYPE_BOOL: (Kind.BOOLEAN,),
        field.CPPTYPE_FLOAT: (Kind.NUMBER,),
        field.CPPTYPE_DOUBLE: (Kind.NUMBER,),
    }.get(field.cpp_type, (Kind.INTEGER, Kind.NUMBER))


def _text(field: Any) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name)
    names = {number: name for name, number in vars(type(field)).items() if name.startswith("TYPE_")}
    return str(names.get(field.type, "TYPE_UNKNOWN")).removeprefix("TYPE_").lower()


def _plain(value: Any, field: Any) -> object:
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value if named is None else named.name)
    if field.message_type is not None and not _is_map(field):
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return value.seconds * 1000 + value.nanos // 1_000_000
        if _WRAPPER.fullmatch(name):
            return value.value
    return value
