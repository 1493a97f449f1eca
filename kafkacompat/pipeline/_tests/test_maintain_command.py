"""The command that maintains tables, its folders and locks, and the list of a table's files for other readers."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkacompat.pipeline import maintain_command
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.maintenance.local_folder import LocalFolder, locked
from kafkacompat.pipeline.maintenance.parquet import ROUNDS, Outcome
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.maintenance.table import maintain_table
from kafkacompat.pipeline.maintenance.table import said as said_of
from kafkacompat.pipeline.sink_log import LOG, LogUnreadable, decode, files

LINE = {
    "path": "file:///else/where/shop/orders/date=2026-11-20/part-0.parquet",
    "size": 5,
    "isDir": False,
    "modificationTime": 1,
    "blockReplication": 1,
    "blockSize": 1,
    "action": "add",
}


def log_of(*names: str) -> str:
    lines = [{**LINE, "path": f"file:///x/shop/orders/date=2026-11-20/{name}"} for name in names]
    return "\n".join(["v1", *map(json.dumps, lines)])


def parquet_table(output: Path, name: str = "shop/orders") -> Path:
    table = output / name
    (table / LOG).mkdir(parents=True)
    return table


def arguments_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    maintain_command.add_arguments(parser)
    return parser.parse_args(list(words))


def no_spark() -> object:
    raise AssertionError("nothing is merged here")


def folder_of(table: Path) -> LocalFolder:
    return LocalFolder(table, table.parent.parent / ".shop.lock", no_spark)  # type: ignore[arg-type]


def test_the_files_of_a_table_are_those_of_its_log_wherever_it_lies(tmp_path: Path) -> None:
    table = parquet_table(tmp_path)
    (table / LOG / "0").write_text(log_of("lost"))
    (table / LOG / "9.compact").write_text(log_of("a", "b%20c"))
    (table / LOG / ".9.compact.crc").write_bytes(b"\0")
    (table / LOG / "11").write_text(log_of())
    (table / LOG / "10").write_text(log_of("d"))
    folder = table / "date=2026-11-20"
    assert files(table) == [str(folder / name) for name in ("a", "b c", "d")]


def test_a_folder_without_a_log_is_no_table_of_parquet(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(PipelineFailed, match="is no table of format parquet"):
            files(place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v2\n", "its version is 'v2'"),
        ("v1\nno", "no entry"),
        ("v1\n[]", "no entry"),
        ("v1\n" + json.dumps({**LINE, "action": "delete"}), "action delete"),
        ("v1\n" + json.dumps({**LINE, "path": "file:///x/.."}), "has the path"),
    ],
)
def test_a_log_that_spark_does_not_write_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LogUnreadable, match=said):
        decode(text)
    table = parquet_table(tmp_path)
    (table / LOG / "0").write_text(text)
    with pytest.raises(PipelineFailed, match=said):
        files(table)


def test_tables_are_found_by_job_and_name(tmp_path: Path) -> None:
    parquet_table(tmp_path, "logs/events")
    parquet_table(tmp_path, "shop/orders")
    (tmp_path / "shop/totals/_delta_log").mkdir(parents=True)
    (tmp_path / "shop/other").mkdir()
    (tmp_path / "shop/file").write_text("")
    everything = {"logs/events": "parquet", "shop/orders": "parquet", "shop/totals": "delta"}
    assert maintain_command.tables_in(tmp_path, []) == everything
    assert maintain_command.tables_in(tmp_path, ["shop"]) == {
        "shop/orders": "parquet",
        "shop/totals": "delta",
    }
    assert maintain_command.tables_in(tmp_path, ["logs", "shop/totals"]) == {
        "logs/events": "parquet",
        "shop/totals": "delta",
    }
    with pytest.raises(
        PipelineFailed, match=r"no table shops in .*, but logs/events, shop/orders, shop/totals"
    ):
        maintain_command.tables_in(tmp_path, ["shops"])


def test_the_command_needs_no_spark_if_nothing_is_to_merge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = parquet_table(tmp_path)
    folder = table / "date=2026-11-20"
    folder.mkdir()
    for name in ("a", ".a.crc"):
        (folder / name).write_text("rows")
    (table / LOG / "9.compact").write_text(log_of("a"))
    (table / LOG / ".9.compact.crc").write_bytes(b"\0")
    # What a maintenance leaves that is killed while it writes.
    (table / ROUNDS / ".merged-r-0.snappy.parquet").mkdir(parents=True)
    (table / ROUNDS / ".r.json.maintenance").write_text("{")
    (table / LOG / ".9.compact.maintenance").write_text("v1")
    words = ("--output", str(tmp_path), "--keep-replaced", "0")
    assert maintain_command.run(arguments_of(*words)) == 0
    assert capsys.readouterr().out == "shop/orders: nothing to do\n"
    assert maintain_command.run(arguments_of(*words, "--keep-days", "1")) == 0
    said = "shop/orders: 1 files of old dates removed; 1 old files deleted\n"
    assert capsys.readouterr().out == said
    assert files(table) == []
    assert os.listdir(folder) == []
    # The checksums were those of the old list.
    assert os.listdir(table / LOG) == ["9.compact"]
    assert os.listdir(table / ROUNDS) == ["lock"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--output", "hdfs://x/y"), "not on this machine"),
        (("--small", "9", "--target", "9"), "is not above"),
        (("--keep-days", "999999999999"), "before the first date"),
    ],
)
def test_what_cannot_be_maintained_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(PipelineFailed, match=said):
        maintain_command.run(arguments_of("--output", str(tmp_path), *words))


def test_a_lock_of_another_process_is_seen(tmp_path: Path) -> None:
    name = tmp_path / "lock"
    with locked(name) as is_free:
        assert is_free
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with locked(name) as is_free:
            assert not is_free
        other.stdin.close()
    with locked(name) as is_free:
        assert is_free


def test_a_table_in_maintenance_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet_table(tmp_path)

    def refuse(descriptor: int, operation: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr(fcntl, "lockf", refuse)
    limits = Limits(1, 2, None)
    for form, said in (("parquet", "a backfill or another maintenance"), ("delta", "stop the run first")):
        told = maintain_table(
            tmp_path,
            "shop/orders",
            form,
            limits,
            0,
            no_spark,  # type: ignore[arg-type]
        )
        assert said in told


class JavaError(Exception):
    """As py4j raises an error of the JVM."""


JavaError.__module__ = "py4j.protocol"


def test_a_table_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark has no room to merge one of them."""
    for name in ("shop/a", "shop/b", "shop/c", "shop/d"):
        parquet_table(tmp_path, name)
    called = "An error occurred while calling o7.sql.\n"
    lost = f"{called}: org.x.SparkException: Job aborted\n\tat x\nCaused by: java.io.IOException: Full"
    failures = {"shop/a": JavaError(lost), "shop/b": OSError(28, "No space"), "shop/c": PipelineFailed("why")}

    def maintain(output: Path, table: str, *more: object) -> str:
        if table in failures:
            raise failures[table]
        return "done"

    monkeypatch.setattr(maintain_command, "maintain_table", maintain)
    assert maintain_command.run(arguments_of("--output", str(tmp_path))) == 1
    told = capsys.readouterr()
    assert told.out == "shop/d: done\n"
    assert told.err.splitlines() == [
        "kafkacompat: shop/a was not maintained: java.io.IOException: Full",
        "kafkacompat: shop/b was not maintained: [Errno 28] No space",
        "kafkacompat: shop/c was not maintained: why",
    ]
    failures["shop/b"] = ConnectionRefusedError()
    with pytest.raises(PipelineFailed, match="JVM has ended"):
        maintain_command.run(arguments_of("--output", str(tmp_path)))
    failures["shop/a"] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        maintain_command.run(arguments_of("--output", str(tmp_path)))


def test_a_spark_that_does_not_start_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop/a/_delta_log", "shop/b/_delta_log"):
        (tmp_path / name).mkdir(parents=True)
    started: list[object] = []

    def start(*arguments: object) -> None:
        started.append(arguments)
        raise PipelineFailed("no Java")

    monkeypatch.setattr(maintain_command, "start_session", start)
    assert maintain_command.run(arguments_of("--output", str(tmp_path))) == 1
    assert len(started) == 1


def test_a_folder_is_read_and_written(tmp_path: Path) -> None:
    table = parquet_table(tmp_path)
    folder = folder_of(table)
    assert folder.names(ROUNDS) == []
    assert folder.read(f"{LOG}/9.compact") is None
    (table / LOG / "9.compact").write_text("old")
    (table / LOG / "9.compact").chmod(0o640)
    folder.write(f"{LOG}/9.compact", "new")
    assert folder.read(f"{LOG}/9.compact") == "new"
    assert folder.names(LOG) == ["9.compact"]
    assert (table / LOG / "9.compact").stat().st_mode & 0o777 == 0o640
    folder.write(f"{ROUNDS}/r.json", "{}")
    assert folder.names(ROUNDS) == ["r.json"]
    folder.remove(f"{ROUNDS}/r.json")
    folder.remove(f"{ROUNDS}/r.json")
    assert folder.names(ROUNDS) == []
    for outside in ("../else", "/etc/else"):
        with pytest.raises(PipelineFailed, match="is not below"):
            folder.remove(outside)


def test_what_was_done_is_said_in_a_line() -> None:
    assert said_of(Outcome()) == "nothing to do"
    told = said_of(Outcome(8, 2, 3, 4, 5, is_open=True))
    assert told == (
        "8 files merged into 2; 3 files of old dates removed; 4 old files deleted; 5 old files wait for their readers; "
        "the run that writes it decides with its next compact file which files are old"
    )
    assert "something else" in said_of(Outcome(is_disturbed=True))
