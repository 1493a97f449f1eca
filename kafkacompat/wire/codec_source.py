"""The source of the generated codecs: functions that decode and encode one message at one version.

The source is flat: nested structs and arrays are inlined. A run of fixed-size fields, with the length or tag count
that follows, is one struct call.

A decoder raises only WireError, for any bytes. A length is compared with the bytes that are left before anything is
allocated. A slice has no more bytes than are there, so a string that is cut off is found by the next read, or at the end of
the message. In steps, the function is a generator, for requests so large that the loop needs turns in between. It yields after
each STEP_UNITS of work, and limits the elements of all arrays. A unit is about a microsecond: one decoded element, 16
numbers, two bytes of unknown tags, or 256 bytes of text.

As in Kafka's writers, an encoder drops an ignorable field that the version lacks, any other such field must have its
default, and a tagged field is written only if it differs from its default.
"""

import struct
from abc import ABC, abstractmethod
from functools import cache
from struct import Struct as Layout
from struct import calcsize
from typing import Any

from kafkacompat.tasks import TURN_COST
from kafkacompat.wire import one_by_one
from kafkacompat.wire.definition import FIXED_TYPES, FieldSpec, MessageSpec, StructSpec
from kafkacompat.wire.errors import EncodeError, WireError
from kafkacompat.wire.message import Encoded
from kafkacompat.wire.primitives import (
    ARRAY_MAX,
    MAX_STRING_BYTES,
    TAGS_MAX,
    read_uvarint,
    skip_tagged_fields,
    write_uvarint,
)

TABLE_SIZE = 17
"""Arrays with fewer numbers than this use a struct that is made once for each length."""


class Source:
    """Source under construction. `namespace` has the objects that the source refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.depth = 0
        self._names = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """Return an unused local name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def refer(self, prefix: str, value: object) -> str:
        """Return the name under which the source sees `value`."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def define(self, name: str, title: str) -> Any:
        """Run the source and return the object that it defined under `name`. Tracebacks call it `title`."""
        code = compile(self.text(), f"<{title}>", "exec")
        exec(code, self.namespace)  # noqa: S102 - the source is ours, made from our own definitions
        return self.namespace[name]


class FieldsSource(Source, ABC):
    """Source that iterates over the fields of one message at one version."""

    def __init__(self, spec: MessageSpec, version: int, classes: dict[str, type]) -> None:
        super().__init__()
        self.version = version
        self.flexible = version in spec.flexible_versions
        self.classes = classes
        self.run: list[tuple[str, str]] = []
        """Fixed-size values that wait for the struct call: variable or expression, and format letter."""

    def value(self, target: str, field: FieldSpec) -> None:
        """Read a field that is present into `target`, or write it from there."""
        compact = self.flexible
        if field.flexible_versions is not None:
            compact = compact and self.version in field.flexible_versions
        nullable = field.nullable(self.version)
        if field.is_array:
            self.array(target, field, compact, nullable)
        elif field.struct is not None:
            self.nested(target, field, nullable)
        elif field.kind in FIXED_TYPES:
            self.run.append((target, FIXED_TYPES[field.kind]))
        else:
            self.variable(target, field.kind, compact, nullable)

    @abstractmethod
    def array(self, target: str, field: FieldSpec, compact: bool, nullable: bool) -> None: ...

    @abstractmethod
    def nested(self, target: str, field: FieldSpec, nullable: bool) -> None: ...

    @abstractmethod
    def variable(self, target: str, kind: str, compact: bool, nullable: bool) -> None: ...


@cache
def layout(letters: str) -> Layout:
    """Return the big-endian struct of some format letters. The letters come from definitions, so there are few combinations."""
    return Layout(f">{letters}")


@cache
def unpackers(letter: str) -> tuple[Any, ...]:
    """Return `unpack_from` for 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{n}{letter}").unpack_from for n in range(TABLE_SIZE))


@cache
def packers(prefix: str, letter: str) -> tuple[Any, ...]:
    """Return `pack` for a length of format `prefix` followed by 0, 1, 2 ... values of one format letter."""
    return tuple(Layout(f">{prefix}{n}{letter}").pack for n in range(TABLE_SIZE))


def size_of(letters: str) -> int:
    """Return the size of a big-endian struct in bytes."""
    return calcsize(f">{letters}")


STEP_UNITS = 2048


class DecoderSource(FieldsSource):
    """Source of `decode(buffer, position) -> (message, position)`, or in steps of `decode(buffer, position, most)`."""

    def __init__(
        self, spec: MessageSpec, version: int, classes: dict[str, type], *, in_steps: bool = False
    ) -> None:
        super().__init__(spec, version, classes)
        self.in_steps = in_steps
        self.namespace |= {
            "new": object.__new__,
            "uvarint": read_uvarint,
            "skip": skip_tagged_fields,
            "unpack_from": struct.unpack_from,
            "StructError": struct.error,
            "WireError": WireError,
        }
        self.emit("def decode(buffer, position, most):" if in_steps else "def decode(buffer, position=0):")
        self.depth += 1
        if in_steps:
            self.emit(f"elements = 0; units = {STEP_UNITS}")
        if any(f.kind == "records" for s in spec.structs for f in s.fields):
            self.emit("if type(buffer) is not memoryview: buffer = memoryview(buffer)")
        self.emit("end = len(buffer)")
        self.emit("try:")
        self.depth += 1
        root = self.struct(spec.root)
        self.flush()
        self.emit("if position > end: raise WireError('a length runs past the end')")
        self.emit(f"return {root}, position")
        self.depth -= 1
        self.emit("except (StructError, IndexError, UnicodeDecodeError) as error:")
        self.depth += 1
        self.emit(f"raise WireError(f'{spec.name} version {version}: {{error}}') from error")

    def flush(self) -> None:
        """Emit the pending run of fixed-size values as one read."""
        if not self.run:
            return
        letters = "".join(letter for _, letter in self.run)
        targets = ", ".join(target for target, _ in self.run)
        self.run.clear()
        if letters == "B":
            self.emit(f"{targets} = buffer[position]; position += 1")
            return
        unpack = self.refer("unpack_", layout(letters).unpack_from)
        comma = "," if len(letters) == 1 or letters == "16s" else ""
        self.emit(f"{targets}{comma} = {unpack}(buffer, position); position += {size_of(letters)}")

    def charge(self, units: str) -> None:
        if self.in_steps:
            self.emit(f"units -= {units}")

    def count_elements(self, n: str) -> None:
        """A request that is not decoded in steps is too small for an array above ARRAY_MAX."""
        if self.in_steps:
            self.emit(f"if {n} > {ARRAY_MAX}: raise WireError(f'array of length {{{n}}}')")
            self.emit(f"elements += {n}")
            self.emit("if elements > most: raise WireError(f'more than {most} elements')")

    def struct(self, struct_spec: StructSpec) -> str:
        """Decode a struct. Return the name of the variable that holds it. A run may be pending afterwards."""
        name = self.fresh("s")
        cls = self.refer("class_", self.classes[struct_spec.name])
        self.emit(f"{name} = new({cls})")
        for field in struct_spec.absent(self.version):
            self.emit(f"{name}.{field.name} = {self.default(field)}")
        for field in struct_spec.plain(self.version):
            self.value(f"{name}.{field.name}", field)
        if self.flexible:
            self.tag_section(name, struct_spec.tagged(self.version))
        return name

    def default(self, field: FieldSpec) -> str:
        """Return an expression for a new default value of a field that is not on the wire."""
        if field.is_array and field.default is not None:
            return "[]"
        if field.struct is not None and not field.is_array and field.default is not None:
            if field.absent_is_none:
                return "None"
            return f"{self.refer('class_', self.classes[field.struct.name])}()"
        return repr(field.default)

    def nested(self, target: str, field: FieldSpec, nullable: bool) -> None:
        assert field.struct is not None
        if not nullable:
            self.emit(f"{target} = {self.struct(field.struct)}")
            return
        present = self.fresh("p")
        self.run.append((present, "b"))
        self.flush()
        self.emit(f"if {present} < 0: {target} = None")
        self.emit("else:")
        self.depth += 1
        inner = self.struct(field.struct)
        self.flush()
        self.emit(f"{target} = {inner}")
        self.depth -= 1

    def length(self, compact: bool, legacy_letter: str, most: str) -> str:
        """Read a length, and return its variable. A compact one is the length plus one, 0 for null. One that takes more than a byte
        is compared with `most`, an expression."""
        n = self.fresh("n")
        self.run.append((n, "B" if compact else legacy_letter))
        self.flush()
        if compact:
            self.emit(f"if {n} > 127:")
            self.emit(f"    {n}, position = uvarint(buffer, position - 1)")
            if most:
                self.emit(f"    if {n} > {most} + 1: raise WireError(f'a length of {{{n} - 1}}')")
        return n

    def variable(self, target: str, kind: str, compact: bool, nullable: bool) -> None:
        """Read a string, bytes or records."""
        n = self.length(
            compact, "h" if kind == "string" else "i", f"{MAX_STRING_BYTES}" if kind == "string" else ""
        )
        e = self.fresh("e")
        self.emit(f"if {n}:" if compact else f"if {n} >= 0:")
        self.depth += 1
        self.emit(f"{e} = position + {n} - 1" if compact else f"{e} = position + {n}")
        if kind == "string":
            self.charge(f"{n} >> 8")
            self.emit(f"{target} = str(buffer[position:{e}], 'utf-8'); position = {e}")
        elif kind == "bytes":
            self.emit(f"{target} = bytes(buffer[position:{e}]); position = {e}")
        else:
            self.emit(f"{target} = buffer[position:{e}]; position = {e}")
        self.depth -= 1
        if nullable:
            self.emit(f"else: {target} = None" if compact else f"elif {n} == -1: {target} = None")
        if not (nullable and compact):
            self.emit(f"else: raise WireError(f'{kind} of length {{{n}}}')")

    def array(self, target: str, field: FieldSpec, compact: bool, nullable: bool) -> None:
        letter = FIXED_TYPES.get(field.kind, "")
        n = self.length(compact, "i", "" if letter else "end - position")
        if compact:
            self.emit(f"{n} -= 1")
        self.emit(f"if {n} >= 0:")
        self.depth += 1
        if letter:
            e = self.fresh("e")
            self.emit(f"{e} = position + {n} * {size_of(letter)}")
            self.emit(f"if {e} > end: raise WireError(f'array of length {{{n}}} runs past the end')")
            self.count_elements(n)
            self.charge(n if field.kind == "uuid" else f"{n} >> 4")
            if field.kind == "uuid":
                self.emit(f"{target} = [bytes(buffer[i:i + 16]) for i in range(position, {e}, 16)]")
            else:
                table = self.refer("unpackers_", unpackers(letter))
                self.emit(f"if {n} < {TABLE_SIZE}: {target} = list({table}[{n}](buffer, position))")
                self.emit(f"else: {target} = list(unpack_from(f'>{{{n}}}{letter}', buffer, position))")
            self.emit(f"position = {e}")
        else:
            items = self.fresh("a")
            if not compact:  # elements of a compact one have at least a byte
                self.emit(
                    f"if {n} > end - position: raise WireError(f'array of length {{{n}}} runs past the end')"
                )
            self.count_elements(n)
            packed = (
                field.struct is not None and self.flexible and one_by_one.may_be(field.struct, self.version)
            )
            if packed:
                self.one_by_one(items, field, n)
            self.emit(f"{items} = []")
            self.emit(f"for _ in range({n}):")
            self.depth += 1
            if field.struct is not None:
                item = self.struct(field.struct)
            else:
                item = self.fresh("v")
                self.variable(item, field.kind, compact, False)
            self.flush()
            self.emit(f"{items}.append({item})")
            if self.in_steps:
                self.emit("units -= 1")
                self.emit(f"if units < 0: units = {STEP_UNITS}; yield {TURN_COST}")
            self.depth -= 2 if packed else 1
            self.emit(f"{target} = {items}")
        self.depth -= 1
        if nullable:
            self.emit(f"elif {n} == -1: {target} = None")
        self.emit(f"else: raise WireError(f'array of length {{{n}}}')")

    def one_by_one(self, items: str, field: FieldSpec, n: str) -> None:
        """Read acknowledgement batches of one offset each. What is emitted next reads them one after the other."""
        assert field.struct is not None
        cls, read = (
            self.refer("class_", self.classes[field.struct.name]),
            self.refer("read_", one_by_one.read),
        )
        self.emit(f"{items} = {read}({cls}, buffer, position, {n})")
        self.emit(f"if {items} is not None:")
        self.depth += 1
        self.emit(f"position += {n} * {one_by_one.SIZE}")
        self.count_elements(n)
        self.charge(f"{n} >> 3")
        self.depth -= 1
        self.emit("else:")
        self.depth += 1

    def tag_section(self, name: str, fields: list[FieldSpec]) -> None:
        count = self.fresh("t")
        self.run.append((count, "B"))
        self.flush()
        for field in fields:
            self.emit(f"{name}.{field.name} = {self.default(field)}")
        if not fields:
            if self.in_steps:
                self.emit(f"if {count}:")
                self.depth += 1
                before = self.fresh("b")
                self.emit(f"{before} = position; position = skip(buffer, position - 1)")
                self.charge(f"position - {before} >> 1")
                self.depth -= 1
            else:
                self.emit(f"if {count}: position = skip(buffer, position - 1)")
            return
        tag, stop = self.fresh("g"), self.fresh("e")
        self.emit(f"if {count}:")
        self.depth += 1
        self.emit(f"if {count} > 127:")
        self.emit(f"    {count}, position = uvarint(buffer, position - 1)")
        self.emit(f"    if {count} > {TAGS_MAX}: raise WireError(f'{{{count}}} tagged fields')")
        self.charge(count)
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        for number in (tag, stop):
            self.emit(f"{number} = buffer[position]; position += 1")
            self.emit(f"if {number} > 127: {number}, position = uvarint(buffer, position - 1)")
        self.emit(f"{stop} += position")
        word = "if"
        for field in fields:
            self.emit(f"{word} {tag} == {field.tag}:")
            word = "elif"
            self.depth += 1
            self.tagged_value(f"{name}.{field.name}", field)
            self.depth -= 1
        self.emit(f"else: position = {stop}")
        self.emit(f"if position != {stop}: raise WireError('a tagged field does not fill its size')")
        self.depth -= 2

    def tagged_value(self, target: str, field: FieldSpec) -> None:
        if field.struct is None or field.is_array or not field.nullable(self.version):
            self.value(target, field)
            self.flush()
            return
        present = self.fresh("p")
        self.emit(f"{present}, position = uvarint(buffer, position)")
        self.emit(f"if not {present}: {target} = None")
        self.emit("else:")
        self.depth += 1
        inner = self.struct(field.struct)
        self.flush()
        self.emit(f"{target} = {inner}")
        self.depth -= 1


INLINE_RECORDS_BYTES = 1024
"""Records of at most this size are copied between the fields around them. Larger ones are sent as a separate part."""


STEP_ELEMENTS = 2_000
"""Array elements that one step encodes, at about a microsecond each."""
ENCODED_BYTES_A_UNIT = 2_048
"""Bytes of elements that are encoded already, which take as long to copy as an element takes to encode."""


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
            differs = self.not_default_struct(target, field.struct)
            return f"{target} is not None and {differs}" if field.absent_is_none else differs
        if field.default in ([], b"") and not field.optional:
            return f"len({target})"
        if field.default in ([], b""):
            return f"{target} is None or len({target})"
        if field.default is False or (field.default == 0 and field.kind in FIXED_TYPES):
            return target
        return f"{target} != {field.default!r}"

    def not_default_struct(self, target: str, struct_spec: StructSpec) -> str:
        """Return a condition: the struct differs from a new one. To compare numbers takes a tenth of the time of the struct's own
        comparison."""
        numbers = [each for each in struct_spec.fields if each.kind in FIXED_TYPES and not each.is_array]
        if len(numbers) < len(struct_spec.fields):
            return f"{target} != {self.refer('default_', self.classes[struct_spec.name]())}"
        return "(" + " or ".join(f"{target}.{each.name} != {each.default!r}" for each in numbers) + ")"

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
            self.records_part(v, n, 1 if compact else 0)
        else:
            self.emit(f"{self.out} += {v}")

    def records_part(self, v: str, n: str, empty: int) -> None:
        """`n` has the length that is written, which is `empty` without records: len() of a slice of a file is a function."""
        assert self.out == "out", "records lie in no tagged field"
        self.namespace |= {"bytes_like": (bytes, bytearray, memoryview)}
        most = INLINE_RECORDS_BYTES + empty
        self.emit(f"if {n} <= {most} and isinstance({v}, bytes_like): out += {v}")
        self.emit(f"elif {n} > {empty}: parts.append(out); parts.append({v}); out = bytearray()")

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
                if self.in_steps:
                    self.depth += 1
                    self.emit(f"units += len({item}) // {ENCODED_BYTES_A_UNIT}")
                    self.count_element()
                    self.depth -= 1
                self.emit("    continue")
            before = len(self.lines)
            self.struct(item, field.struct)
            self.flush()
            if len(self.lines) == before:
                self.emit("pass")
        else:
            self.variable(item, field.kind, compact, False)
        if self.in_steps:
            self.count_element()
        self.depth -= 1

    def count_element(self) -> None:
        self.emit("units += 1")
        self.emit(f"if units >= {STEP_ELEMENTS}:")
        self.emit("    units = 0")
        self.emit(f"    yield {TURN_COST}")

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
        present = [self.fresh("c") for _ in fields]
        for one, condition in zip(present, conditions, strict=True):
            self.emit(f"{one} = 1 if {condition} else 0")
        self.emit(f"{outer}.append({' + '.join(present)})")
        for field, one in zip(fields, present, strict=True):
            self.emit(f"if {one}:")
            self.depth += 1
            if self.is_fixed(field):
                self.run = [(str(field.tag), "B"), ("", "B")]
                self.value(f"{name}.{field.name}", field)
                size = size_of("".join(letter for _, letter in self.run[2:]))
                self.run[1] = str(size), "B"
                self.flush()
                self.depth -= 1
                continue
            self.emit(f"{inner} = bytearray()")
            self.out = inner
            self.tagged_value(f"{name}.{field.name}", field)
            self.out = outer
            self.emit(f"{outer}.append({field.tag})" if field.tag < 128 else f"uvarint({outer}, {field.tag})")
            self.emit(f"if len({inner}) < 128: {outer}.append(len({inner}))")
            self.emit(f"else: uvarint({outer}, len({inner}))")
            self.emit(f"{outer} += {inner}")
            self.depth -= 1
        self.depth -= 1
        self.run = [*pending, ("", "x")]
        self.emit("else:")
        self.depth += 1
        self.flush()
        self.depth -= 1

    def is_fixed(self, field: FieldSpec) -> bool:
        """Whether a tagged field always has the same size, so that tag, size and value are one struct call."""
        if field.is_array or field.nullable(self.version):
            return False
        if field.struct is None:
            return field.kind in FIXED_TYPES
        plain = field.struct.plain(self.version)
        return not field.struct.tagged(self.version) and all(map(self.is_fixed, plain))

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
