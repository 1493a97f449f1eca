"""Finds a job by its name: one of kafkacompat's, an installed one, MODULE:NAME, or FILE.sql. Imports it only when asked."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed

if TYPE_CHECKING:
    from kafkacompat.pipeline.job import Job

OWN: Final = {
    "logs": "kafkacompat.pipeline.queries:LOGS",
    "activity": "kafkacompat.pipeline.queries:ACTIVITY",
    "metrics": "kafkacompat.pipeline.queries:METRICS",
}
"""The jobs that come with kafkacompat."""

SQL: Final = ".sql"
"""How the name of a file with a job ends."""

ENTRY_POINTS: Final = "kafkacompat.pipelines"
"""The group of entry points by which a package installs jobs."""


def installed() -> dict[str, EntryPoint]:
    """Return the jobs of installed packages by name. A name of OWN is kafkacompat's."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS) if entry.name not in OWN}


def is_known(name: str) -> bool:
    """Return whether the text can name a job, without importing it."""
    if name.endswith(SQL):
        return True
    module, mark, attribute = name.partition(":")
    if mark:
        return all(word.isidentifier() for word in module.split(".")) and attribute.isidentifier()
    return name in OWN or name in installed()


def load(name: str) -> Job:
    """Return the job. PipelineFailed says which one cannot be loaded, from where, and why. It needs pyspark."""
    from kafkacompat.pipeline.job import Job, JobProblem

    if name.endswith(SQL):
        from kafkacompat.pipeline.sql_job import load_sql

        return load_sql(Path(name))
    place = OWN.get(name) or (name if ":" in name else installed()[name].value)
    module_name, _, attribute = place.partition(":")
    if "" not in sys.path and name not in OWN:
        # The command is a script in another folder, but a job that is tried is in this one.
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except JobProblem as problem:
        raise PipelineFailed(f"{place}: {problem}") from None
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise PipelineFailed(
                f"job {name} cannot be loaded: there is no module {error.name} in this folder or on Python's path"
            ) from None
        raise PipelineFailed(f"job {name} cannot be loaded: module {module_name}: {error}") from None
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise PipelineFailed(f"job {name} cannot be loaded: module {module_name}: {why}") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Job):
        what = "nothing" if found is None else f"a {type(found).__name__}, not a Job,"
        jobs = sorted(key for key, value in vars(module).items() if isinstance(value, Job))
        known = f"; its jobs are {', '.join(jobs)}" if jobs else ""
        raise PipelineFailed(
            f"job {name} cannot be loaded: module {module_name} has {what} under the name {attribute}{known}"
        )
    return found
