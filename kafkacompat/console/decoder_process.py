"""The process that decodes values by the schemas of a registry: a line in, a line out. It ends with its input.

The first line has the registry, each other one a value in base64. decoder.py starts it.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from kafkacompat.console.core.decoding import JSON_TEXT, MAX_JSON_BYTES, decoded
from kafkacompat.console.core.words import encodable
from kafkacompat.console.decoder import REST_S
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.schemas.client import RegistrySettings, SchemaText, registry_at
from kafkacompat.pipeline.schemas.reading import Registry, Schemas
from kafkacompat.pipeline.schemas.wire_format import HEAD_BYTES, Malformed, NotRead, schema_id

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
TEXT_CHARACTERS_MAX: Final = 2 * 1024 * 1024
"""Of a longer text the beginning is told."""
SLOW_S: Final = 1.0
"""A registry that has failed after so long is not asked for REST_S: a page has hundreds of values, and each would wait."""


class RestingRegistry:
    """A registry that is left alone for a while after it has kept somebody waiting without an answer."""

    def __init__(self, registry: Registry, now: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._now = now
        self._until_s: float | None = None
        self._why = ""

    @property
    def place(self) -> str:
        """For messages."""
        return self._registry.place

    def schema(self, number: int) -> SchemaText:
        """As in Registry."""
        begun_s = self._now()
        if self._until_s is not None and begun_s < self._until_s:
            raise PipelineFailed(self._why)
        try:
            return self._registry.schema(number)
        except PipelineFailed as failure:
            ended_s = self._now()
            if ended_s - begun_s >= SLOW_S:
                self._until_s, self._why = ended_s + REST_S, str(failure)
            raise


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    settings = RegistrySettings.decoded(sys.stdin.buffer.readline())
    # The console asks again by itself.
    registry = RestingRegistry(registry_at(settings, patience_s=0.0))
    schemas = Schemas(registry)
    for line in sys.stdin.buffer:
        value = base64.b64decode(line)
        try:
            answer = _decoded(schemas, value)
        except Malformed as problem:
            answer = _json(value) or {"problem": str(problem)}
        except NotRead as problem:
            answer = {"problem": str(problem)}
        except PipelineFailed as failure:
            answer = {"problem": str(failure)}
            if schemas.is_full:
                schemas = Schemas(registry)
        except (MemoryError, RecursionError):
            answer = {"problem": "it needs too much memory"}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _decoded(schemas: Schemas, value: bytes) -> dict[str, Any]:
    form = schemas.format_of(value)
    record = schemas.read(form, value)
    text = json.dumps(record.shown(), indent=2, ensure_ascii=False)
    return {
        "text": encodable(text[:TEXT_CHARACTERS_MAX]),
        "writer": f"{form.value}, {record.schema.name}, schema {record.schema_id}",
    }


def _json(value: bytes) -> dict[str, Any] | None:
    """Return what a serializer of JSON Schema has written. Its schema is not needed to read it."""
    shown = decoded(value[HEAD_BYTES:], MAX_JSON_BYTES)
    if shown["kind"] != JSON_TEXT:
        return None
    return {"text": shown["text"], "writer": f"json, schema {schema_id(value)}"}


if __name__ == "__main__":
    main()
