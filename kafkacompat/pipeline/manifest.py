"""Records the settings with which a checkpoint was started, by job, and decides whether a run may continue from it.

Spark accepts a checkpoint with other settings than it was started with. Windows of two lengths would then overlap in
one table, or the offsets of one topic would be used for another. So a manifest beside the checkpoint records the
settings that its state depends on, the cluster, and the ids of the topics. Pure: `checkpoint_validation` reads and writes the
file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.options import OF_EVERY_JOB, OPTIONS, RunOptions

if TYPE_CHECKING:
    from kafkacompat.pipeline.job import Job

FORMAT: Final = 1
STATE_VERSION_KEY: Final = "version"
"""The key of state_version in the file. Checkpoints that exist have it."""

NO_TOPIC_ID: Final = ""
"""The id that brokers without topic ids give."""


class ManifestUnreadable(ValueError):
    """The bytes are not a manifest in a known format."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One job's settings in one checkpoint folder: seconds by option. `topic_ids` are the ids, as text, of the topics
    that are read."""

    job: str
    state_version: int
    settings: dict[str, int]
    cluster_id: str
    topic_ids: dict[str, str]
    # Job.continues_from, which is not in the file. 0: state_version alone.
    continues_from: int = field(default=0, compare=False)


def manifest_of(job: Job, options: RunOptions, cluster_id: str, topic_ids: Mapping[str, str]) -> Manifest:
    """Return the manifest of a run of this job."""
    words = {*job.settings, *OF_EVERY_JOB}
    settings = {word: int(getattr(options, OPTIONS[word])) for word in words}
    from_version = job.state_version if job.continues_from is None else job.continues_from
    return Manifest(job.name, job.state_version, settings, cluster_id, dict(topic_ids), from_version)


def encode(manifest: Manifest) -> str:
    """Return JSON text, which people can read too."""
    told = asdict(manifest)
    del told["continues_from"]
    told[STATE_VERSION_KEY] = told.pop("state_version")
    return json.dumps({"format": FORMAT, **told}, indent=2, sort_keys=True) + "\n"


def decode(text: str) -> Manifest:
    """Parse a manifest. Raises ManifestUnreadable."""
    try:
        told: Any = json.loads(text)
        if told["format"] != FORMAT:
            raise ManifestUnreadable(f"its format is {told['format']}, known is {FORMAT}")
        return Manifest(
            str(told["job"]),
            int(told[STATE_VERSION_KEY]),
            {str(word): int(value) for word, value in told["settings"].items()},
            str(told["cluster_id"]),
            {str(name): str(topic_id) for name, topic_id in told["topic_ids"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ManifestUnreadable):
            raise
        raise ManifestUnreadable("it is not the JSON of a manifest") from None


def difference(kept: Manifest, now: Manifest) -> str | None:
    """Return why a run must not continue from the checkpoint, or None. `topics_made_anew` checks for recreated topics."""
    if kept.job != now.job:
        return f"it belongs to job {kept.job}, not to {now.job}"
    if kept.state_version > now.state_version:
        return (
            f"its state_version is {kept.state_version}, and this job has state_version {now.state_version}, which is older. Run "
            "the version of the job that has it"
        )
    if kept.state_version < now.state_version and not 0 < now.continues_from <= kept.state_version:
        return (
            f"its state_version is {kept.state_version}, this job has state_version {now.state_version} and does not continue "
            "earlier ones (continues_from). Run the version of the job that the checkpoint is of"
        )
    for word, value in now.settings.items():
        # A manifest of an earlier release lacks an option that every job has since then.
        if kept.settings.get(word) != value and not (word in OF_EVERY_JOB and word not in kept.settings):
            return (
                f"it was started with {word} {kept.settings.get(word, 'unset')}, this run has {word} {value}"
            )
    if kept.cluster_id != now.cluster_id:
        return (
            f"it holds offsets of cluster {kept.cluster_id}, the broker belongs to cluster {now.cluster_id}"
        )
    return None


def upgrade(kept: Manifest, now: Manifest) -> str | None:
    """Return what a person must know of a run that continues from an earlier state_version, or None."""
    if kept.state_version == now.state_version:
        return None
    return (
        f"state_version {kept.state_version} becomes {now.state_version}: the version of the job before it cannot continue "
        "any more"
    )


def topics_made_anew(kept: Manifest, now: Manifest) -> list[str]:
    """Return the topics whose id differs from the one that the checkpoint's offsets belong to."""
    return sorted(
        name
        for name, topic_id in now.topic_ids.items()
        if NO_TOPIC_ID not in (topic_id, kept.topic_ids.get(name, NO_TOPIC_ID))
        and kept.topic_ids[name] != topic_id
    )
