"""The one error of the pipeline's commands, and a check for packages that a plain install lacks. Nothing else."""

from __future__ import annotations

import importlib.util


class PipelineFailed(Exception):
    """A command failed. The text is one line for a person. The exit status is 1."""


def require_extra(extra: str, *modules: str) -> None:
    """Raise PipelineFailed with the pip command if one of these modules of an extra (`spark`, `console`) is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineFailed(
            f"{', '.join(missing)} is not installed; install with: pip install 'kafkacompat[{extra}]'"
        )
