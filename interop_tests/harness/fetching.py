"""Downloads and builds the external programs of the suite in the background, so that no test waits for a registry.

`make test` runs it during lint and unit tests. If a download fails here, the test that needs it tries again and
reports the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from interop_tests.consumer_groups import members
from interop_tests.harness.kafka_jars import BEFORE, MissingTool
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.programs import (
    franz_go_program,
    kafkajs_program,
    moto_server,
    registers_program,
    sarama_program,
)
from interop_tests.harness.releases import (
    OLD_JAVA,
    OLD_PYTHON,
    OLDEST_JAVA,
    java_release,
    python_release,
)
from interop_tests.harness.spark_cluster import ivy_dir
from interop_tests.harness.spark_jvm import quick_jvm
from interop_tests.pipeline.declarative_spark import declarative_spark
from interop_tests.pipeline.table_readers import reader_packages
from interop_tests.projects.projects import (
    franz_go_tests,
    kafka_python_sources,
    streams_tests,
    watermill_tests,
)
from interop_tests.streams import class_archive

# In the order in which the suite needs them.
PARTS: list[tuple[Callable[..., object], tuple[str, ...]]] = [
    (ivy_dir, ()),
    (kafka_java, ()),
    (partial(kafka_java, version=BEFORE), ()),
    (quick_jvm, ()),
    (registers_program, ()),
    (class_archive.make, ()),
    (class_archive.make, (BEFORE,)),
    *((python_release, (name, version)) for name, versions in OLD_PYTHON.items() for version in versions),
    *((java_release, (version,)) for version in (*OLD_JAVA, OLDEST_JAVA)),
    (sarama_program, ("old",)),
    (sarama_program, ("new",)),
    (franz_go_program, ()),
    (kafkajs_program, ()),
    (reader_packages, ()),
    (declarative_spark, ()),
    (moto_server, ()),
    (kafka_python_sources, ()),
    (franz_go_tests, ()),
    (watermill_tests, ()),
    (streams_tests, ()),
    *((command, ()) for command in members.COMMANDS.values()),
]


def main() -> None:
    for fetch, words in PARTS:
        try:
            fetch(*words)
        except MissingTool as error:
            # If a registry does not answer, later downloads do not wait for it again.
            print(f"not all is fetched beforehand: {str(error).splitlines()[0]}")
            return


if __name__ == "__main__":
    main()
