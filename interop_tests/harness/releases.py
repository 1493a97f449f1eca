"""Old releases of clients, each in its own folder in the checkout's cache, and the commands that run them.

Each release is downloaded once. If pip, Java or Maven is missing, or a release cannot be installed, MissingTool is
raised.
"""

from __future__ import annotations

import sys

from interop_tests.harness.kafka_jars import require_program
from interop_tests.harness.kafka_jvm import QUICK_JVM, SHARED
from interop_tests.harness.programs import OTHERS, build_once

JAVA_FLAGS = ["-Xmx256m", *SHARED, *QUICK_JVM]
COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
# The program ignores PYTHONPATH and imports the old release before the packages that are installed for pytest.
RUN_WITH_RELEASE = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv.pop(1), run_name='__main__')"

OLD_PYTHON = {"confluent-kafka": ("2.0.2", "2.6.0"), "kafka-python": ("2.0.2", "2.3.3")}
"""The releases to test, by distribution."""
OLDEST_JAVA = "0.11.0.3"
OLD_JAVA = ("2.1.1", "2.8.2", "3.9.1")
PROGRAMS = {"confluent-kafka": "confluent.py", "kafka-python": "pure.py"}
"""The program in old_python, by the distribution that it uses."""


def python_release(distribution: str, version: str) -> list[str]:
    """The command of the distribution's program with this release. Its other requirements are those of this checkout."""
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
    """The command of old_java/OldClient with this release of kafka-clients. The jars include a compiler."""
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
