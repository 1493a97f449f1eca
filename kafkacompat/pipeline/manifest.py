"""What a checkpoint was begun with, by job, and whether a run may go on with it.

Spark takes a checkpoint back under other settings than it was begun with: windows of two lengths then overlap in one table, and the
offsets of one topic are read from another. So a manifest beside the checkpoint keeps the settings that its state depends on, the
cluster, and the ids of the topics. Pure: `belonging` reads and writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from kafkacompat.pipeline.options import RunOptions

FORMAT: Final = 1
STATE_VERSIONS: Final = {"logs": 1, "activity": 2, "metrics": 2}
"""Raised when a job's state or tables change so that older ones cannot go on."""

SETTINGS: Final = {
    "logs": {"--watermark": "watermark_s", "--duplicate-horizon": "duplicate_horizon_s"},
    "activity": {"--window": "window_s", "--session-gap": "session_gap_s", "--watermark": "watermark_s"},
    "metrics": {"--window": "window_s", "--watermark": "watermark_s"},
}
"""The options that a job's state and tables depend on: the word of the command line, and its name in RunOptions."""

NO_TOPIC_ID: Final = ""
"""A broker older than topic ids gives none."""


class ManifestUnreadable(ValueError):
    """The bytes are no manifest of a format that is known here."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Of one job in one checkpoint folder. `settings` are seconds by option; `topic_ids` are text by name of the topics read."""

    job: str
    version: int
    settings: dict[str, int]
    cluster_id: str
    topic_ids: dict[str, str]


def manifest_of(job: str, options: RunOptions, cluster_id: str, topic_ids: Mapping[str, str]) -> Manifest:
    """The manifest of a run of this job."""
    settings = {word: int(getattr(options, name)) for word, name in SETTINGS[job].items()}
    return Manifest(job, STATE_VERSIONS[job], settings, cluster_id, dict(topic_ids))


def encode(manifest: Manifest) -> str:
    """JSON text, for a person to read as well."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=2, sort_keys=True) + "\n"


def decode(text: str) -> Manifest:
    """Raises ManifestUnreadable."""
    try:
        told: Any = json.loads(text)
        if told["format"] != FORMAT:
            raise ManifestUnreadable(f"its format is {told['format']}, known is {FORMAT}")
        return Manifest(
            str(told["job"]),
            int(told["version"]),
            {str(word): int(value) for word, value in told["settings"].items()},
            str(told["cluster_id"]),
            {str(name): str(topic_id) for name, topic_id in told["topic_ids"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ManifestUnreadable):
            raise
        raise ManifestUnreadable("it is not the JSON of a manifest") from None


def difference(kept: Manifest, now: Manifest) -> str | None:
    """Why a run must not go on with the checkpoint; None if it may. Topics made anew are told by `topics_made_anew`."""
    if kept.job != now.job:
        return f"it belongs to job {kept.job}, not to {now.job}"
    if kept.version != now.version:
        return f"its state has version {kept.version}, this kafkacompat writes version {now.version}"
    for word, value in now.settings.items():
        if kept.settings.get(word) != value:
            return f"it was begun with {word} {kept.settings.get(word, 'unset')}, this run has {word} {value}"
    if kept.cluster_id != now.cluster_id:
        return (
            f"it holds offsets of cluster {kept.cluster_id}, the broker belongs to cluster {now.cluster_id}"
        )
    return None


def topics_made_anew(kept: Manifest, now: Manifest) -> list[str]:
    """Topics whose id is another than the one that the checkpoint's offsets belong to."""
    return sorted(
        name
        for name, topic_id in now.topic_ids.items()
        if NO_TOPIC_ID not in (topic_id, kept.topic_ids.get(name, NO_TOPIC_ID))
        and kept.topic_ids[name] != topic_id
    )
