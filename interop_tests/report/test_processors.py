"""How many workers the suites get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interop_tests.harness.processors import workers
from kafkacompat.cli.machine import memory_bytes, processors

ALLOWED = len(os.sched_getaffinity(0))
GIB = 1 << 30


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", ALLOWED), ("100000 100000", 1), ("20000 100000", 1), ("99900000 100000", ALLOWED)],
)
def test_a_quota_of_the_cgroup_bounds_the_processors(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert processors(tmp_path) == expected


@pytest.mark.parametrize("group", ["", "a", "a/b"])
def test_a_limit_of_any_group_of_this_process_holds(tmp_path: Path, group: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/a/b\n")
    (tmp_path / group / "cpu.max").write_text("100000 100000\n")
    (tmp_path / group / "memory.max").write_text(f"{GIB}\n")
    assert processors(tmp_path, tmp_path / "own") == 1
    assert memory_bytes(tmp_path, tmp_path / "meminfo", tmp_path / "own") == GIB


@pytest.mark.parametrize("group", ["", "a"])
def test_the_first_version_of_cgroups_has_a_tree_for_each_controller(tmp_path: Path, group: str) -> None:
    (tmp_path / "own").write_text("5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n")
    unlimited = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
    limits = {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "150000", "memory.limit_in_bytes": f"{GIB}"}
    for controller in ("cpu", "memory"):
        (tmp_path / controller / group).mkdir(parents=True)
        for name, value in unlimited.items():
            (tmp_path / controller / name).write_text(value + "\n")
        for name, value in limits.items():
            (tmp_path / controller / group / name).write_text(value + "\n")
    assert processors(tmp_path, tmp_path / "own") == 1
    assert memory_bytes(tmp_path, tmp_path / "meminfo", tmp_path / "own") == GIB


def test_affinity_bounds_the_processors(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert processors(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("limit", "machine", "expected"),
    [
        ("max", "MemTotal: 8388608 kB\nMemFree: 1 kB\n", 8 * GIB),
        (f"{2 * GIB}", "MemTotal: 8388608 kB\n", 2 * GIB),
        (f"{2 * GIB}", "", 2 * GIB),
        ("max", "", None),
    ],
)
def test_the_smaller_of_cgroup_and_machine_is_the_memory(
    tmp_path: Path, limit: str, machine: str, expected: int | None
) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "meminfo").write_text(machine)
    assert memory_bytes(tmp_path, tmp_path / "meminfo") == expected


@pytest.mark.parametrize(
    ("allowed", "available", "expected"), [(8, 64 * GIB, 8), (8, 9 * GIB, 2), (8, 1, 1), (3, None, 3)]
)
def test_memory_bounds_the_workers(allowed: int, available: int | None, expected: int) -> None:
    assert workers(allowed, available, 4 * GIB) == expected
