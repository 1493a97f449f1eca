"""Old releases of clients, each in a folder of its own in the checkout's cache, and the commands that run them.

The registries are asked once a release. A missing pip, Java or Maven, or a release that does not install, raises
MissingTool.
"""

from __future__ import annotations

import sys

from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.kafka_jvm import QUICK_JVM, SHARED
from interop_tests.harness.programs import OTHERS, build_once

JAVA_FLAGS = ["-Xmx256m", *SHARED, *QUICK_JVM]
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
# It ignores PYTHONPATH and takes the release before what is installed beside pytest.
RUN_WITH_RELEASE = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv.pop(1), run_name='__main__')"

OLD_PYTHON = {"confluent-kafka": ("2.0.2", "2.6.0"), "kafka-python": ("2.0.2", "2.3.3")}
"""By distribution, which of its releases are tried."""
OLDEST_JAVA = "0.11.0.3"
OLD_JAVA = ("2.1.1", "2.8.2", "3.9.1")
PROGRAMS = {"confluent-kafka": "confluent.py", "kafka-python": "pure.py"}
"""In old_python, by the distribution that they use."""


def python_release(distribution: str, version: str) -> list[str]:
    """The command of the distribution's program, with this release of it; its requirements are our own."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    folder = build_once(
        f"{distribution}-{version}",
        [],
        lambda folder: [
            [
                *pip,
                "--no-deps",
                "--only-binary",
                ":all:",
                "--target",
                str(folder / "site"),
                f"{distribution}=={version}",
            ]
        ],
    )
    return [
        sys.executable,
        "-c",
        RUN_WITH_RELEASE,
        str(folder / "site"),
        str(OTHERS / "old_python" / PROGRAMS[distribution]),
    ]


def java_release(version: str) -> list[str]:
    """The command of old_java/OldClient with this release of kafka-clients. The compiler comes with the jars."""
    java, maven = require_program("java"), require_program("mvn")
    source = OTHERS / "old_java"
    folder = build_once(
        f"kafka-clients-{version}",
        [source / name for name in ("OldClient.java", "pom.xml")],
        lambda folder: [
            [
                maven,
                "-q",
                "-B",
                "dependency:copy-dependencies",
                f"-Dclients={version}",
                f"-DoutputDirectory={folder}/lib",
            ],
            [
                java,
                "-cp",
                "lib/*",
                COMPILER,
                "-8",
                "-nowarn",
                "-proc:none",
                "-extdirs",
                "lib",
                "-d",
                "classes",
                "OldClient.java",
            ],
        ],
    )
    return [java, *JAVA_FLAGS, "-cp", f"{folder}/classes:{folder}/lib/*", "OldClient"]
