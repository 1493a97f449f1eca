"""The one error of the pipeline's commands, and the check for what a plain install does not bring. Knows nothing else."""

from __future__ import annotations

import importlib.util


class PipelineFailed(Exception):
    """What a command could not do, said for a person in one line. Commands end with exit status 1."""


def require_extra(extra: str, *modules: str) -> None:
    """PipelineFailed naming the pip command, when one of these modules of an extra (`spark`, `console`) is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineFailed(
            f"{', '.join(missing)} is not installed; install with: pip install 'kafkacompat[{extra}]'"
        )
