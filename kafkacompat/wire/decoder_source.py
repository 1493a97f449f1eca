"""Generates the function that decodes one message at one version.

The source is flat: nested structs and arrays are inlined. A run of fixed-size fields, with the length or tag count
that follows, is one struct call. The function raises only WireError, for any bytes. A length is compared with the
bytes that are left before anything is allocated.

In steps, the function is a generator, for requests so large that the loop needs turns in between. It yields after each
STEP_UNITS of work, and limits the elements of all arrays. A unit is about a microsecond: one decoded element, 16
numbers, two bytes of unknown tags, or 256 bytes of text.
"""

import struct

from kafkacompat.tasks import TURN_COST
from kafkacompat.wire import one_by_one
from kafkacompat.wire.definition import FIXED_TYPES, FieldSpec, MessageSpec, StructSpec
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.primitives import MAX_STRING_BYTES, TAGS_MAX, read_uvarint, skip_tagged_fields
from kafkacompat.wire.source import TABLE_SIZE, FieldsSource, layout, size_of, unpackers

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
        if self.in_steps:
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

    def length(self, compact: bool, legacy_letter: str) -> tuple[str, str, str]:
        """Read a length. Return its variable, the condition that it is not null, and the condition that it is null."""
        n = self.fresh("n")
        self.run.append((n, "B" if compact else legacy_letter))
        self.flush()
        if compact:
            self.emit(f"if {n} > 127: {n}, position = uvarint(buffer, position - 1)")
            self.emit(f"{n} -= 1")
        return n, f"{n} >= 0", f"{n} == -1"

    def otherwise_null(self, target: str, n: str, what: str, nullable: bool) -> None:
        if nullable:
            self.emit(f"elif {n} == -1: {target} = None")
        self.emit(f"else: raise WireError(f'{what} of length {{{n}}}')")

    def variable(self, target: str, kind: str, compact: bool, nullable: bool) -> None:
        """Read a string, bytes or records."""
        n, present, _ = self.length(compact, "h" if kind == "string" else "i")
        e = self.fresh("e")
        self.emit(f"if {present}:")
        self.depth += 1
        self.emit(f"{e} = position + {n}")
        self.emit(f"if {e} > end: raise WireError(f'{kind} of length {{{n}}} runs past the end')")
        if kind == "string":
            if compact:
                self.emit(f"if {n} > {MAX_STRING_BYTES}: raise WireError(f'string of length {{{n}}}')")
            self.charge(f"{n} >> 8")
            self.emit(f"{target} = str(buffer[position:{e}], 'utf-8'); position = {e}")
        elif kind == "bytes":
            self.emit(f"{target} = bytes(buffer[position:{e}]); position = {e}")
        else:
            self.emit(f"{target} = buffer[position:{e}]; position = {e}")
        self.depth -= 1
        self.otherwise_null(target, n, kind, nullable)

    def array(self, target: str, field: FieldSpec, compact: bool, nullable: bool) -> None:
        n, present, _ = self.length(compact, "i")
        self.emit(f"if {present}:")
        self.depth += 1
        letter = FIXED_TYPES.get(field.kind, "")
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
            add = self.fresh("add")
            self.emit(
                f"if {n} > end - position: raise WireError(f'array of length {{{n}}} runs past the end')"
            )
            self.count_elements(n)
            packed = (
                field.struct is not None and self.flexible and one_by_one.may_be(field.struct, self.version)
            )
            if packed:
                self.one_by_one(items, field, n)
            self.emit(f"{items} = []; {add} = {items}.append")
            self.emit(f"for _ in range({n}):")
            self.depth += 1
            if field.struct is not None:
                item = self.struct(field.struct)
            else:
                item = self.fresh("v")
                self.variable(item, field.kind, compact, False)
            self.flush()
            self.emit(f"{add}({item})")
            if self.in_steps:
                self.emit("units -= 1")
                self.emit(f"if units < 0: units = {STEP_UNITS}; yield {TURN_COST}")
            self.depth -= 2 if packed else 1
            self.emit(f"{target} = {items}")
        self.depth -= 1
        self.otherwise_null(target, n, "array", nullable)

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
        self.emit(f"if {count} > 127: {count}, position = uvarint(buffer, position - 1)")
        self.emit(f"if {count} > {TAGS_MAX}: raise WireError(f'{{{count}}} tagged fields')")
        self.charge(count)
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, position = uvarint(buffer, position)")
        self.emit(f"{stop}, position = uvarint(buffer, position)")
        self.emit(f"{stop} += position")
        self.emit(f"if {stop} > end: raise WireError('a tagged field runs past the end')")
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
