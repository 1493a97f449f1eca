"""Follows docs/how-to/read-avro-and-protobuf.md: a writer of Avro, `pipeline try`, and a job, with a small registry on loopback."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from interop_tests.cli.pages import blocks, commands, section, text_of
from interop_tests.conftest import MakeBroker
from interop_tests.harness.kafka_jars import require_program
from interop_tests.pipeline.runs import run_words, typed
from kafkacompat.pipeline._tests.registry_kit import a_registry

PAGE = text_of("docs/how-to/read-avro-and-protobuf.md")
REGISTRY, BROKER = "http://127.0.0.1:8081", "127.0.0.1:9092"

pytestmark = pytest.mark.needs_control


class Folder:
    """A folder with the page's files, in which its commands run with this Python, broker and registry."""

    def __init__(self, root: Path, bootstrap: str, registry: str) -> None:
        self.root = root
        program, job = blocks(PAGE, "python")
        (root / "send_order.py").write_text(program)
        (root / "shop_orders.py").write_text(job)
        self._bootstrap, self._registry = bootstrap, registry

    def type(self, line: str) -> str:
        """Run a line of the page. Returns its output."""
        quick = run_words()
        here = f"{sys.executable} -m kafkacompat"
        asked = line.replace(REGISTRY, self._registry).replace(BROKER, self._bootstrap)
        asked = re.sub(
            r"\bkafkacompat (topics|consume) ", rf"{here} \1 --bootstrap {self._bootstrap} ", asked
        )
        asked = asked.replace("kafkacompat pipeline try", f"{here} pipeline try")
        asked = asked.replace(
            "kafkacompat pipeline run shop_orders:job",
            f"{here} pipeline run shop_orders:job --bootstrap {self._bootstrap} {quick}",
        )
        asked = re.sub(r"^python ", f"{sys.executable} ", asked)
        assert asked != line
        done = typed(asked, self.root)
        assert done.returncode == (1 if "no order" in line else 0), (line, done.stdout, done.stderr)
        return done.stdout


def test_a_job_reads_avro_as_the_page_says(make_broker: MakeBroker, tmp_path: Path) -> None:
    """On a broker of its own: the tutorial's job has the same topics."""
    require_program("java")
    with a_registry() as registry:
        folder = Folder(tmp_path, make_broker().bootstrap, registry.url)
        for line, _ in commands(blocks(section(PAGE, "## Write a record"))[0]):
            folder.type(line)
        for line, shown in commands(blocks(section(PAGE, "## See a record"))[0]):
            said = re.sub(r"^(  at +)\d+$", r"\g<1>1795168800000", folder.type(line), flags=re.MULTILINE)
            assert said.splitlines() == shown, line
        run, *consume = [line for line, _ in commands(blocks(section(PAGE, "## Write the job"))[0])]
        folder.type(run)
        windows, rejects = (
            [json.loads(value) for value in folder.type(line).splitlines()] for line in consume
        )
    assert [(row["shop"], row["channel"], row["orders"], row["amount_cents"]) for row in windows] == [
        ("north", "counter", 1, 250)
    ]
    assert [(row["reason"], row["line"]) for row in rejects] == [
        ("malformed record: expected byte 0 and the 4 bytes of a schema's id", "no order")
    ]
