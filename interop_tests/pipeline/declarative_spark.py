"""The PySpark of docs/how-to/use-declarative-pipelines.md, in a folder of the checkout's cache, with its Kafka connector."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from interop_tests.cli.pages import text_of
from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.programs import build_once

PAGE = text_of("docs/how-to/use-declarative-pipelines.md")


def declarative_spark() -> Path:
    """The folder of the packages, beside `ivy`, Spark's cache. The environment of the suite has another Spark."""
    require_program("java")
    ((install, release),) = re.findall(r"'(pyspark\[pipelines\]==([\d.]+))'", PAGE)
    (connector,) = re.findall(r"^spark\.jars\.packages (\S+)$", PAGE, re.MULTILINE)

    def commands(folder: Path) -> list[list[str]]:
        site, program = folder / "site", folder / "nothing.py"
        program.write_text("")
        home = site / "pyspark"
        submit = [
            "env",
            f"SPARK_HOME={home}",
            f"PYSPARK_PYTHON={sys.executable}",
            str(home / "bin" / "spark-submit"),
        ]
        return [
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "--target",
                str(site),
                install,
            ],
            [
                *submit,
                "--packages",
                connector,
                "--conf",
                f"spark.jars.ivy={folder / 'ivy'}",
                "--master",
                "local[1]",
                str(program),
            ],
        ]

    return build_once(f"declarative-spark-{release}", [], commands) / "site"
