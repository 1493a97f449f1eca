"""`kafkacompat pipeline try` on small files: what it prints, its status, and its bounds."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from kafkacompat.pipeline import try_command
from kafkacompat.pipeline.topics import LINE_BYTES_MAX, RECORD_BYTES_MAX

DEFAULTS = [f"field_{number}" for number in range(100)]
GOOD = '192.0.2.7 - - [21/Sep/2026:14:13:20 +0000] "GET /a HTTP/1.1" 200 512\n'


def tried(*words: str) -> int:
    parser = argparse.ArgumentParser()
    try_command.add_arguments(parser)
    return try_command.run(parser.parse_args(words))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


def test_events_are_shown_with_their_columns(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD * 7)
    assert tried("common", str(file), "--show", "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        "line 1:",
        "  event_time_ms  1790000000000 (2026-09-21 14:13:20.000 UTC)",
        "  client         192.0.2.7",
        "  method         GET",
        "  path           /a",
        "  protocol       HTTP/1.1",
        "  status         200",
        "  bytes          512",
        "lines 7: events 7, refused 0",
    ]


def test_a_terminal_obeys_no_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"\x1b[2J" + GOOD.encode() + GOOD.replace("/a", r"/\x1b[2J").encode())
    tried("combined", str(file))
    tried("common", str(file))
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\ufffd[2J" in said
    file.write_text('{"time":"2026-09-21T14:13:20Z","status":200,"kept":"\\u009b2J"}\n')
    assert tried("nginx-json", str(file)) == 0
    assert '{"kept": "\ufffd2J"}' in capsys.readouterr().out


def test_deep_values_and_large_numbers_are_shown_in_little_space(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = ("[" * 700 + "]" * 700, '{"a":' * 400 + "1" + "}" * 400, "1e999999999", "-1e-999999999")
    lines = [f'{{"time":"2026-09-21T14:13:20Z","status":200,"kept":{value}}}' for value in values]
    file.write_text("\n".join(lines))
    assert tried("nginx-json", str(file)) == 0
    said = capsys.readouterr().out
    assert "events 4, refused 0" in said
    assert '{"kept": "Infinity"}' in said
    assert len(said) < 10_000


def test_the_fields_of_a_file_are_learned_from_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        "#Fields: date time sc-status\n2026-09-21 14:13:20 200\n"
        "#Fields: sc-status date time\n404 2026-09-21 14:13:21\n"
        "#Fields: date date\n2026-09-21 14:13:22 500\n"
    )
    assert tried("w3c", str(file)) == 1
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines() if line.startswith("  status ")] == ["200", "404"]
    assert said.splitlines()[-2] == "lines 6: events 2, refused 2, about the file 2"


def test_a_refused_line_is_shown_from_its_place_and_counted(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD.replace(" 200 ", " ??? ") * 3 + GOOD)
    assert tried("common", str(file), "--show", "1") == 1
    said = capsys.readouterr().out.splitlines()
    reason = 'malformed line: field 6 (%>s): expected `" ` and then a number of 3 digits'
    assert said[0] == f"line 1 is refused at character 60: {reason}"
    assert said[1][said[2].index("^") :].startswith('" ???')
    assert said[-2:] == ["lines 4: events 1, refused 3", f"       3  {reason}"]


def test_long_lines_and_many_lines_are_bounded(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("a" * (3 * LINE_BYTES_MAX) + "\n" + GOOD * 3)
    assert tried("common", str(file), "--lines", "3") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "line 1 is refused: oversized record"
    assert said[-2] == "lines 3: events 2, refused 1"


def test_lines_about_the_file_are_counted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("#Software: IIS\n#Version: 1.0\n")
    assert tried("iis", str(file)) == 0
    assert capsys.readouterr().out == "lines 2: events 0, refused 0, about the file 2\n"


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert tried("auto", "-") == 0
    assert capsys.readouterr().out.endswith("lines 1: events 1, refused 0\n")


def test_a_record_is_shown_by_the_schema_of_its_writer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("grpc_tools")
    from kafkacompat.pipeline._tests.registry_kit import a_registry, framed
    from kafkacompat.pipeline._tests.test_schema_records import avro, proto_class, record

    lines = record(
        ("sku", "string"), ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    )
    order = record(
        ("event_id", "string"),
        ("lines", {"type": "array", "items": lines | {"name": "Line"}}),
        ("raw", "bytes"),
    )
    proto = (
        'syntax = "proto3"; message Order { string event_id = 1; int64 at = 2; repeated string tags = 3; }'
    )
    content = {"event_id": "o\x1b1", "lines": [{"sku": "x", "price": Decimal("2.50")}], "raw": b"\1"}
    value, told = tmp_path / "value", ["--registry"]
    with a_registry() as registry:
        registry.register(7, order)
        registry.register(8, proto, "PROTOBUF")
        told.append(registry.url)
        # As `kafkacompat consume` writes it.
        value.write_bytes(avro(order, content, 7) + b"\n")
        assert tried("avro", str(value), *told) == 0
        assert capsys.readouterr().out.splitlines() == [
            "record: schema id 7, shop.Order",
            '  event_id       "o\\u001b1"',
            '  lines          [{"sku": "x", "price": "2.50"}]',
            '  raw            "01"',
        ]
        value.write_bytes(framed(8, proto_class(proto, (0,))(event_id="o", at=7).SerializeToString(), b"\0"))
        assert tried("protobuf", str(value), *told) == 0
        assert capsys.readouterr().out.splitlines() == [
            "record: schema id 8, Order",
            '  event_id       "o"',
            '  at             "7"',
            "  tags           []",
        ]
        assert tried("avro", str(value), *told) == 1
        assert capsys.readouterr().out == (
            "the record is refused: incompatible schema: id 8: it is protobuf, and the topic's format is avro\n"
        )
        value.write_bytes(framed(9, b""))
        assert tried("avro", str(value), *told) == 1
        assert capsys.readouterr().out == (
            "the record is refused: unknown schema: the registry has no schema with id 9\n"
        )


@pytest.mark.parametrize(
    ("items", "seconds", "shown"),
    [
        # Each has 100 fields with their default.
        (2, 0, {"lines": [dict.fromkeys(DEFAULTS, 0)] * 2, "empty": 0}),
        (20_000, 0, {"lines": [{}] * 20_000}),
        (0, 1 << 40, "JSON has no form for it"),
    ],
)
def test_defaults_of_protobuf_are_shown_unless_they_are_many(
    items: int, seconds: int, shown: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("grpc_tools")
    from kafkacompat.pipeline._tests.registry_kit import a_registry, framed
    from kafkacompat.pipeline._tests.test_schema_records import proto_class

    fields = " ".join(f"int32 {name} = {number};" for number, name in enumerate(DEFAULTS, 1))
    proto = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
        f"message Order {{ repeated Line lines = 1; int32 empty = 2; google.protobuf.Timestamp at = 3; }} "
        f"message Line {{ {fields} }}"
    )
    order = proto_class(proto, (0,))()
    for _ in range(items):
        order.lines.add()
    if seconds:
        order.at.seconds = seconds
    value = tmp_path / "value"
    value.write_bytes(framed(8, order.SerializeToString(), b"\0"))
    with a_registry() as registry:
        registry.register(8, proto, "PROTOBUF")
        status = tried("protobuf", str(value), "--registry", registry.url)
    said = capsys.readouterr().out
    if isinstance(shown, str):
        assert (status, said.count("\n")) == (1, 2)
        assert f"the record is read, and not shown: {shown}" in said
        return
    assert status == 0
    lines = [line.split(maxsplit=1) for line in said.splitlines()[1:]]
    assert {name: json.loads(text) for name, text in lines} == shown


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_record_whose_names_are_large_is_not_shown(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("grpc_tools")
    from kafkacompat.pipeline._tests.registry_kit import a_registry, framed
    from kafkacompat.pipeline._tests.test_schema_records import avro, proto_class, record

    name, items, value = "n" * 5000, 4000, tmp_path / "value"
    line = record((name, "int")) | {"name": "Line"}
    order = record(("lines", {"type": "array", "items": line}))
    proto = f'syntax = "proto3"; message Order {{ repeated Line lines = 1; }} message Line {{ int32 {name} = 1; }}'
    with a_registry() as registry:
        if form == "avro":
            registry.register(8, order)
            value.write_bytes(avro(order, {"lines": [{name: 1}] * items}, 8))
        else:
            registry.register(8, proto, "PROTOBUF")
            made = proto_class(proto, (0,))()
            for _ in range(items):
                setattr(made.lines.add(), name, 1)
            value.write_bytes(framed(8, made.SerializeToString(), b"\0"))
        assert tried(form, str(value), "--registry", registry.url) == 1
    said = capsys.readouterr().out.splitlines()[1:]
    assert said == ["the record is read, and not shown: its JSON has more than 16,777,216 characters"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("avro", "-"), "the schemas of avro are in a registry: give its address with --registry URL"),
        (("common", "-", "--registry", "http://127.0.0.1:1"), "--registry is for avro and protobuf"),
        (("avro", "-", "--registry", "127.0.0.1:1"), "schema.registry.url: it is not http://HOST:PORT/PATH"),
        (
            ("avro", "-", "--registry", "http://127.0.0.1:1"),
            "the types of schemas of the schema registry http://127.0.0.1:1: no answer of http://127.0.0.1:1: Connection refused",
        ),
        (("combnied", "/dev/null"), "this is no format: 'combnied' is neither one of auto, common"),
        (("common", "/nowhere/access.log"), "/nowhere/access.log cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_tried_is_one_line(words: tuple[str, ...], why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafkacompat", "pipeline", "try", *words], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kafkacompat: {why}")
    assert done.stderr.count("\n") == 1


def test_it_needs_neither_spark_nor_a_client() -> None:
    program = (
        "import sys, kafkacompat.pipeline.try_command; "
        "print([name for name in ('pyspark', 'confluent_kafka', 'trio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("longer", "refused"), [(0, False), (1, True)], ids=["the longest", "longer"])
def test_a_record_that_the_job_finds_too_long_is_refused(
    longer: int, refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastavro")
    from kafkacompat.pipeline._tests.registry_kit import a_registry
    from kafkacompat.pipeline._tests.test_schema_records import avro, record

    order, value = record(("name", "string")), tmp_path / "value"
    empty = len(avro(order, {"name": "n" * 10_000}, 8)) - 10_000
    value.write_bytes(avro(order, {"name": "n" * (RECORD_BYTES_MAX - empty + longer)}, 8) + b"\n")
    assert value.stat().st_size - 1 == RECORD_BYTES_MAX + longer
    with a_registry() as registry:
        registry.register(8, order)
        status = tried("avro", str(value), "--registry", registry.url)
    assert (status, "the record is refused: oversized record" in capsys.readouterr().out) == (
        refused,
        refused,
    )
