"""Says in one line why Spark, a table's format or a Python worker has failed."""

from __future__ import annotations

import re
from typing import Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.session import is_jvm_gone

FAILURE_CHARACTERS_MAX: Final = 600
WORKER_FAILED: Final = f"{PipelineFailed.__module__}.{PipelineFailed.__name__}: "
"""Before the reason of a Python worker in its traceback."""
WORKER_LACKS: Final = "ModuleNotFoundError: "

STATE_CHANGED: Final = re.compile(r"\[((?:STATE_STORE|STREAMING_STATEFUL)_[A-Z_.]+)\]")
"""How Spark refuses state of another query plan."""
STATE_HELP: Final = (
    "the state in the checkpoint is that of another version of the job. Run that version with the state_version of this one, or "
    "start again with empty folders for --checkpoint and --output"
)
TABLE_CHANGED: Final = re.compile(
    r"(?:Failed to merge |Cannot change column type: |Not a (?:struct|map|list): )(?:(?! SQLSTATE: ).)*"
)
"""How Delta and Iceberg refuse rows whose columns have other types than those of the table."""
TABLE_HELP: Final = (
    "the table has this column with another type. Give it another name in the job, or start again with empty folders for "
    "--checkpoint and --output"
)
CALLED: Final = "An error occurred while calling "
"""How py4j begins, and says nothing. Its next line has the error."""
CAUSE: Final = "Caused by: "


def reason_of(error: BaseException) -> str:
    """Return in one line why a call to Spark has failed, for a person."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A Python worker has said why it cannot go on.
    for line in lines:
        if line.startswith(WORKER_FAILED):
            return line.removeprefix(WORKER_FAILED)[:FAILURE_CHARACTERS_MAX]
        if line.startswith(WORKER_LACKS):
            lacks = line.removeprefix(WORKER_LACKS)
            return f"an executor's Python: {lacks}: PYSPARK_PYTHON must name one with kafkacompat[registry]"
    for line in lines:
        if (changed := STATE_CHANGED.search(line)) is not None:
            return f"{changed[1]}: {STATE_HELP}"[:FAILURE_CHARACTERS_MAX]
    if lines and lines[0].startswith(CALLED):
        lines = [line.removeprefix(": ") for line in lines[1:]]
    causes = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
    said = causes[-1] if causes else (lines[0] if lines else type(error).__name__)
    if (changed := TABLE_CHANGED.search(said)) is not None:
        said = f"{changed[0]}: {TABLE_HELP}"
    return said[:FAILURE_CHARACTERS_MAX]


def refusal_of(error: Exception) -> str:
    """Return in one line why a table was left as it is, if others may be tried. Raises PipelineFailed if Spark's JVM has ended,
    and what is no failure of Spark or of a file system."""
    if is_jvm_gone(error):
        raise PipelineFailed("Spark's JVM has ended; call again to continue") from None
    is_known = isinstance(error, PipelineFailed | OSError)
    if not is_known and type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        raise error
    return reason_of(error)
