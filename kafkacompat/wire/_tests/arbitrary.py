"""Messages with arbitrary contents, from a seeded generator."""

import random
from collections.abc import Iterator
from typing import Any

from kafkacompat.wire.apis import message_class
from kafkacompat.wire.codec import message_classes, specification
from kafkacompat.wire.definition import FieldSpec, StructSpec, definition_paths, load_definition
from kafkacompat.wire.message import Message

RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TEXTS = ["", "a", "orders", "gruppe-ü", "名前", "\U0001f980" * 3, "x" * 126, "y" * 127, "z" * 300]


def every_class() -> list[type[Message]]:
    specs = [spec for path in definition_paths() if (spec := load_definition(path)) is not None]
    return [message_class(spec.name) for spec in specs]


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in every_class():
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            yield cls, version


class Arbitrary:
    """Makes messages that a version can represent. Ignorable fields that it lacks are sometimes set too."""

    def __init__(self, rng: random.Random, cls: type[Message], version: int) -> None:
        self.rng = rng
        self.cls = cls
        self.version = version
        self.classes = message_classes(cls)
        self.budget = 60

    def message(self) -> Any:
        return self.struct(specification(self.cls).root)

    def struct(self, spec: StructSpec) -> Any:
        made = self.classes[spec.name]()
        for field in spec.fields:
            if self.version not in field.versions and not (field.ignorable and self.rng.random() < 0.2):
                continue
            if field.tagged(self.version) and self.rng.random() < 0.5:
                continue
            setattr(made, field.name, self.value(field))
        return made

    def value(self, field: FieldSpec) -> Any:
        if field.nullable(self.version) and self.rng.random() < 0.25:
            return None
        if not field.is_array:
            return self.element(field)
        count = self.rng.choice([0, 0, 1, 1, 2, 3, 5])
        if field.struct is None and self.rng.random() < 0.1:
            count = self.rng.choice([15, 16, 17, 126, 127, 128, 300])
        if field.struct is not None and self.budget <= 0:
            count = 0
        self.budget -= count if field.struct is not None else 0
        return [self.element(field) for _ in range(count)]

    def element(self, field: FieldSpec) -> Any:
        rng = self.rng
        if field.struct is not None:
            return self.struct(field.struct)
        if field.kind in RANGES:
            low, high = RANGES[field.kind]
            return rng.choice([low, high, 0, 1, rng.randint(low, high)])
        if field.kind == "bool":
            return rng.random() < 0.5
        if field.kind == "float64":
            return rng.choice([0.0, 1.5, -2.25, 1e300])
        if field.kind == "uuid":
            return rng.choice([bytes(16), rng.randbytes(16)])
        if field.kind == "string":
            return rng.choice(TEXTS)
        return rng.randbytes(rng.choice([0, 1, 5, 126, 127, 128, 1500]))


class Sample(Arbitrary):
    """Makes the same message each time: every field of the version is set, every array has two elements."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(random.Random(0), cls, version)
        self.count = 0

    def struct(self, spec: StructSpec) -> Any:
        made = self.classes[spec.name]()
        for field in spec.fields:
            if self.version in field.versions:
                setattr(made, field.name, self.value(field))
        return made

    def value(self, field: FieldSpec) -> Any:
        return [self.element(field), self.element(field)] if field.is_array else self.element(field)

    def element(self, field: FieldSpec) -> Any:
        if field.struct is not None:
            return self.struct(field.struct)
        self.count += 1
        if field.kind == "string":
            return f"{field.name}-{self.count}"
        if field.kind == "uuid":
            return self.count.to_bytes(16, "big")
        if field.kind == "bool":
            return True
        if field.kind == "float64":
            return float(self.count)
        return self.count if field.kind in RANGES else b"bytes-%d" % self.count
