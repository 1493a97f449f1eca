"""Generates the function that encodes one message at one version.

The source is flat: nested structs and arrays are inlined, and runs of fixed-size fields are one struct call. As in
Kafka's writers, an ignorable field that the version lacks is dropped, any other such field must have its default, and
a tagged field is written only if it differs from its default.
"""

import struct

from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.definition import FIXED_TYPES, FieldSpec, MessageSpec, StructSpec
from kafkacompat.wire.errors import EncodeError
from kafkacompat.wire.message import Encoded
from kafkacompat.wire.primitives import MAX_STRING_BYTES, write_uvarint
from kafkacompat.wire.source import TABLE_SIZE, FieldsSource, layout, packers

INLINE_RECORDS_BYTES = 1024
"""Records of at most this size are copied between the fields around them. Larger ones are sent as a separate part."""


STEP_ELEMENTS = 2_000
"""Array elements that one step encodes, at about a microsecond each."""


class EncoderSource(FieldsSource):
    """Source of `encode(message, out)` or, with `parts`, of `encode(message, out, parts) -> out`.

    With `element` it encodes a struct nested in the message. `in_steps` makes it a generator that yields after
    STEP_ELEMENTS array elements.
    """

    def __init__(
        self,
        spec: MessageSpec,
        version: int,
        classes: dict[str, type],
        parts: bool,
        element: StructSpec | None = None,
        in_steps: bool = False,
    ) -> None:
        super().__init__(spec, version, classes)
        self.in_steps = in_steps
        self.parts = parts
        self.out = "out"
        self.takes_encoded = element is None
        self.title = f"{spec.name} version {version}"
        self.namespace |= {
            "uvarint": write_uvarint,
            "pack": struct.pack,
            "StructError": struct.error,
            "EncodeError": EncodeError,
        }
        self.emit("def encode(message, out, parts):" if parts else "def encode(message, out):")
        self.depth += 1
        if in_steps:
            self.emit("units = 0")
        self.emit("try:")
        self.depth += 1
        self.struct("message", spec.root if element is None else element)
        self.flush()
        self.emit("return out" if parts else "return None")
        self.depth -= 1
        self.emit("except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:")
        self.depth += 1
        self.emit(f"raise EncodeError(f'{self.title}: {{error}}') from error")

    def packed(self, extra: str = "", letter: str = "") -> str:
        """Return the pending run, followed by one more value, as an expression of bytes."""
        letters = "".join(part for _, part in self.run) + letter
        values = [value for value, _ in self.run if value] + ([extra] if extra else [])
        pack = self.refer("pack_", layout(letters).pack)
        return f"{pack}({', '.join(values)})"

    def flush(self) -> None:
        """Emit the pending run of fixed-size values as one write."""
        if not self.run:
            return
        if len(self.run) == 1 and self.run[0][1] == "x":
            self.emit(f"{self.out}.append(0)")
        else:
            self.emit(f"{self.out} += {self.packed()}")
        self.run.clear()

    def struct(self, name: str, struct_spec: StructSpec) -> None:
        """Encode the struct in the variable `name`. A run may be pending afterwards."""
        for field in struct_spec.absent(self.version):
            if not field.ignorable:
                message = f"{self.title} has no {field.name}"
                self.emit(f"if {self.not_default(name, field)}: raise EncodeError({message!r})")
        for field in struct_spec.plain(self.version):
            self.value(f"{name}.{field.name}", field)
        if self.flexible:
            self.tag_section(name, struct_spec.tagged(self.version))

    def not_default(self, name: str, field: FieldSpec) -> str:
        """Return a condition: the field differs from its default."""
        target = f"{name}.{field.name}"
        if field.default is None:
            return f"{target} is not None"
        if field.struct is not None and not field.is_array:
            default = self.refer("default_", self.classes[field.struct.name]())
            if field.absent_is_none:
                return f"{target} is not None and {target} != {default}"
            return f"{target} != {default}"
        if field.default in ([], b"") and not field.optional:
            return f"len({target})"
        if field.default in ([], b""):
            return f"{target} is None or len({target})"
        if field.default is False or (field.default == 0 and field.kind in FIXED_TYPES):
            return target
        return f"{target} != {field.default!r}"

    def nested(self, target: str, field: FieldSpec, nullable: bool) -> None:
        assert field.struct is not None
        name = self.fresh("s")
        self.emit(f"{name} = {target}")
        if not nullable:
            self.struct(name, field.struct)
            return
        self.flush()
        self.emit(f"if {name} is None: {self.out}.append(255)")
        self.emit("else:")
        self.depth += 1
        self.emit(f"{self.out}.append(1)")
        self.struct(name, field.struct)
        self.flush()
        self.depth -= 1

    def length(self, n: str, compact: bool, legacy_letter: str) -> None:
        """Write a length together with the pending run. A compact `n` is the length plus one, 0 for null."""
        if not compact:
            self.run.append((n, legacy_letter))
            self.flush()
            return
        if not self.run:
            self.emit(f"if {n} < 128: {self.out}.append({n})")
            self.emit(f"else: uvarint({self.out}, {n})")
            return
        self.emit(f"if {n} < 128: {self.out} += {self.packed(n, 'B')}")
        self.emit("else:")
        self.depth += 1
        self.flush()
        self.emit(f"uvarint({self.out}, {n})")
        self.depth -= 1

    def variable(self, target: str, kind: str, compact: bool, nullable: bool) -> None:
        """Write a string, bytes or records."""
        v, n = self.fresh("v"), self.fresh("n")
        plus_one = " + 1" if compact else ""
        encode = ".encode()" if kind == "string" else ""
        if nullable:
            self.emit(f"{v} = {target}")
            self.emit(f"if {v} is None: {v} = b''; {n} = {0 if compact else -1}")
            self.emit("else:")
            self.depth += 1
        if encode or not nullable:
            self.emit(f"{v} = {v if nullable else target}{encode}")
        self.emit(f"{n} = len({v}){plus_one}")
        if kind == "string":
            limit = MAX_STRING_BYTES + (1 if compact else 0)
            self.emit(f"if {n} > {limit}: raise EncodeError(f'{self.title}: a string of {{len({v})}} bytes')")
        if nullable:
            self.depth -= 1
        self.length(n, compact, "h" if kind == "string" else "i")
        if kind == "records" and self.parts:
            self.records_part(v)
        else:
            self.emit(f"{self.out} += {v}")

    def records_part(self, v: str) -> None:
        assert self.out == "out", "records lie in no tagged field"
        self.namespace |= {"bytes_like": (bytes, bytearray, memoryview)}
        self.emit(f"if len({v}) <= {INLINE_RECORDS_BYTES} and isinstance({v}, bytes_like): out += {v}")
        self.emit(f"elif len({v}): parts.append(out); parts.append({v}); out = bytearray()")

    def array(self, target: str, field: FieldSpec, compact: bool, nullable: bool) -> None:
        v, n = self.fresh("v"), self.fresh("n")
        self.emit(f"{v} = {target}")
        plus_one = " + 1" if compact else ""
        if nullable:
            self.emit(f"if {v} is None: {n} = {0 if compact else -1}; {v} = ()")
            self.emit(f"else: {n} = len({v}){plus_one}")
        else:
            self.emit(f"{n} = len({v}){plus_one}")
        letter = FIXED_TYPES.get(field.kind, "")
        if letter and field.kind != "uuid":
            self.numbers(v, n, compact, letter)
            return
        self.length(n, compact, "i")
        if field.kind == "uuid":
            self.emit(f"{v} = b''.join({v})")
            self.emit(
                f"if len({v}) != 16 * max(0, {n}{' - 1' if compact else ''}): raise EncodeError('bad uuid')"
            )
            self.emit(f"{self.out} += {v}")
            return
        item = self.fresh("s")
        self.emit(f"for {item} in {v}:")
        self.depth += 1
        if field.struct is not None:
            if self.takes_encoded and target.startswith("message."):
                # Only in top-level arrays: the check costs every element 20 ns.
                self.namespace["Encoded"] = Encoded
                self.emit(f"if {item}.__class__ is Encoded:")
                self.emit(f"    {self.out} += {item}")
                self.emit("    continue")
            before = len(self.lines)
            self.struct(item, field.struct)
            self.flush()
            if len(self.lines) == before:
                self.emit("pass")
        else:
            self.variable(item, field.kind, compact, False)
        if self.in_steps:
            self.emit("units += 1")
            self.emit(f"if units >= {STEP_ELEMENTS}:")
            self.emit("    units = 0")
            self.emit(f"    yield {TURN_COST}")
        self.depth -= 1

    def numbers(self, v: str, n: str, compact: bool, letter: str) -> None:
        """Write an array of numbers: one struct call with its length."""
        self.flush()
        table = self.refer("packers_", packers("B" if compact else "i", letter))
        self.emit(f"if len({v}) < {TABLE_SIZE}: {self.out} += {table}[len({v})]({n}, *{v})")
        self.emit("else:")
        self.depth += 1
        self.length(n, compact, "i")
        self.emit(f"{self.out} += pack(f'>{{len({v})}}{letter}', *{v})")
        self.depth -= 1

    def tag_section(self, name: str, fields: list[FieldSpec]) -> None:
        if not fields:
            self.run.append(("", "x"))
            return
        conditions = [self.not_default(name, field) for field in fields]
        self.emit(f"if {' or '.join(f'({condition})' for condition in conditions)}:")
        self.depth += 1
        pending = list(self.run)
        self.flush()
        outer, inner = self.out, self.fresh("o")
        count = self.fresh("c")
        self.emit(f"{count} = " + " + ".join(f"(1 if {condition} else 0)" for condition in conditions))
        self.emit(f"{outer}.append({count})")
        for field, condition in zip(fields, conditions, strict=True):
            self.emit(f"if {condition}:")
            self.depth += 1
            self.emit(f"{inner} = bytearray()")
            self.out = inner
            self.tagged_value(f"{name}.{field.name}", field)
            self.out = outer
            self.emit(f"uvarint({outer}, {field.tag}); uvarint({outer}, len({inner})); {outer} += {inner}")
            self.depth -= 1
        self.depth -= 1
        self.run = [*pending, ("", "x")]
        self.emit("else:")
        self.depth += 1
        self.flush()
        self.depth -= 1

    def tagged_value(self, target: str, field: FieldSpec) -> None:
        if field.struct is not None and not field.is_array and field.nullable(self.version):
            item = self.fresh("s")
            self.emit(f"{item} = {target}")
            self.emit(f"if {item} is None: {self.out}.append(0)")
            self.emit("else:")
            self.depth += 1
            self.emit(f"{self.out}.append(1)")
            self.struct(item, field.struct)
            self.flush()
            self.depth -= 1
            return
        self.value(target, field)
        self.flush()
