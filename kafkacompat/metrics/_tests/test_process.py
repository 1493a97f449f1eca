"""The series of the process, which prometheus-client's collector is the model of."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from prometheus_client.process_collector import ProcessCollector

from kafkacompat.metrics import process
from kafkacompat.metrics._tests.exposition import Shown, parsed
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.metrics.process import DESCRIPTORS, PROCESS, NodeReading, process_families

READING = NodeReading(0, None, (), None, None)


def shown() -> Shown:
    found = parsed(b"".join(rendered(process_families(READING))).decode())
    own = {name for metric in PROCESS.metrics for name in (metric.name, f"{metric.name}_total")}
    return Shown(
        {name: kind for name, kind in found.types.items() if name in own},
        {name: value for name, value in found.values.items() if name in own},
    )


def test_the_process_has_the_series_of_prometheus_client() -> None:
    """In a process of its own: threads that other tests have left open and close files meanwhile."""
    code = f"from {__name__} import compare; compare()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def compare() -> None:
    model = [each for metric in ProcessCollector(registry=None).collect() for each in metric.samples]
    if not model:
        return  # the system does not tell
    found = shown().values
    assert found.keys() == {each.name for each in model}
    wanted = {each.name: each.value for each in model}
    assert found["process_start_time_seconds"] == wanted["process_start_time_seconds"]
    assert found["process_max_fds"] == wanted["process_max_fds"]
    assert 0 <= found["process_cpu_seconds_total"] - wanted["process_cpu_seconds_total"] < 60
    assert abs(found["process_open_fds"] - wanted["process_open_fds"]) <= 1  # the walk has one of its own
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes"):
        assert found[name] == pytest.approx(wanted[name], rel=0.5)


def test_open_descriptors_are_counted_without_a_walk_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them would hold up the loop for 7 ms at each scrape."""
    if not os.path.isdir(DESCRIPTORS) or not os.stat(DESCRIPTORS).st_size:
        pytest.skip("this system has no other way")
    walked: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr("os.listdir", lambda path: walked.append(path) or [])
        found = shown().values["process_open_fds"]
    assert walked == []
    assert abs(found - len(os.listdir(DESCRIPTORS))) <= 1


def test_open_descriptors_are_walked_where_the_system_does_not_count_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = SimpleNamespace(
        stat=lambda path: SimpleNamespace(st_size=0), listdir=lambda path: ["0", "1", "2"]
    )
    monkeypatch.setattr(process, "os", known)
    assert process._open_descriptors() == 3


def test_a_system_that_does_not_tell_of_processes_has_no_such_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STAT", "/nowhere")
    assert shown() == Shown({}, {})
