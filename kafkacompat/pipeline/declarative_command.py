"""`kafkacompat pipeline declarative`: runs `spark-pipelines`, and adds what it lacks: groups with the lag of each flow, and a
manifest that refuses another cluster or topics that were made anew.

It reads the checkpoints that the pipeline has in its storage, and knows nothing of its definitions.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.manifest import (
    NO_TOPIC_ID,
    Manifest,
    ManifestUnreadable,
    decode,
    difference,
    encode,
    topics_made_anew,
)
from kafkacompat.pipeline.options import DEFAULT_GROUP_PREFIX, add_bootstrap, address_of
from kafkacompat.pipeline.session import local_path
from kafkacompat.pipeline.topics import identity_of

if TYPE_CHECKING:
    from kafkacompat.pipeline.groups import Finished
    from kafkacompat.security.cluster_address import ClusterAddress

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
CHECKPOINTS: Final = "_checkpoints"
MANIFEST: Final = "kafkacompat.manifest.json"
PROGRAM: Final = "spark-pipelines"
FULL_REFRESH: Final = "--full-refresh-all"
STATE_VERSION: Final = 1
LOOK_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spec", metavar="FILE", help=f"the pipeline's specification ({SPEC_NAMES[0]} in this folder)"
    )
    add_bootstrap(parser)
    parser.add_argument(
        "--group-prefix",
        default=DEFAULT_GROUP_PREFIX,
        metavar="TEXT",
        help="each flow commits what it has finished to the consumer group TEXT and its name (%(default)s)",
    )
    parser.add_argument(
        FULL_REFRESH, action="store_true", help="begin all tables anew, as spark-pipelines run does with it"
    )
    parser.add_argument(
        "--remote", metavar="URL", help="Spark Connect: sc://HOST:PORT, or local[N] (that of spark-pipelines)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline once. Return the status of spark-pipelines."""
    require_extra("spark", "pyspark", "confluent_kafka")
    from kafkacompat.pipeline.groups import GroupCommits

    program = _program()
    spec = _spec(arguments.spec)
    address = address_of(arguments)
    storage = storage_of(spec)
    kept = _manifest(storage)
    if kept is not None and not arguments.full_refresh_all:
        require_same_topics(storage, kept, _manifest_of(spec, address, sorted(kept.topic_ids)))
    words = [program]
    if arguments.remote is not None:
        words += ["--remote", arguments.remote]
    words += ["run", "--spec", str(spec)]
    if arguments.full_refresh_all:
        words.append(FULL_REFRESH)
    commits = GroupCommits(address.spark(), arguments.group_prefix, print)
    process = subprocess.Popen(words)
    # Otherwise a service manager that stops this process would leave Spark alone.
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        while (status := _status(process)) is None:
            if not arguments.full_refresh_all:
                # At once: a run that is killed would leave offsets of which nobody knows whose they are.
                with contextlib.suppress(PipelineFailed):
                    kept = _with_new_topics(storage, spec, address, kept)
            _commit(storage, commits)
        _commit(storage, commits)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        commits.close()
    if not arguments.full_refresh_all:
        _with_new_topics(storage, spec, address, kept)
    elif status == 0:
        # After a refresh that has failed, flows may go on from the checkpoints before it.
        _with_new_topics(storage, spec, address, None)
    return status if status >= 0 else 128 - status


def _status(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _commit(storage: Path, commits: Any) -> None:
    for found in finished_flows(storage):
        commits.commit(found)


def _with_new_topics(
    storage: Path, spec: Path, address: ClusterAddress, kept: Manifest | None
) -> Manifest | None:
    """Return the manifest with the topics that flows have read since, and write it. An id that it has stays: the offsets are
    those of that topic, whatever has its name now."""
    known = {} if kept is None else kept.topic_ids
    new = {topic for found in finished_flows(storage) for topic, _ in found.offsets}.difference(known)
    if not new:
        return kept
    now = _manifest_of(spec, address, sorted(new))
    ids = {**dict.fromkeys(new, NO_TOPIC_ID), **now.topic_ids, **known}
    made = replace(now, topic_ids=ids)
    _write(storage, made)
    return made


def _program() -> str:
    """Return the program of the installed PySpark."""
    import pyspark

    place = Path(pyspark.__file__).parent / "bin" / PROGRAM
    found = str(place) if place.exists() else shutil.which(PROGRAM)
    if found is None:
        raise PipelineFailed(
            f"PySpark {pyspark.__version__} has no {PROGRAM}: declarative pipelines need PySpark 4.1 or later, "
            "installed with: pip install 'pyspark[pipelines]'"
        )
    return found


def _spec(given: str | None) -> Path:
    for name in (given,) if given is not None else SPEC_NAMES:
        if Path(name).is_file():
            return Path(name)
    raise PipelineFailed(f"there is no {given or SPEC_NAMES[0]}")


def storage_of(spec: Path) -> Path:
    """Return the folder in which a pipeline keeps its checkpoints. PipelineFailed."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise PipelineFailed(
            "PyYAML is not installed; install with: pip install 'pyspark[pipelines]'"
        ) from None

    try:
        told = yaml.safe_load(spec.read_text("utf-8"))
        storage, name = told["storage"], told["name"]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        raise PipelineFailed(f"{spec} is no specification of a pipeline: {_first_line(error)}") from None
    if not isinstance(storage, str) or not isinstance(name, str):
        raise PipelineFailed(f"{spec} is no specification of a pipeline: name and storage must be texts")
    path = local_path(storage)
    if path is None:
        raise PipelineFailed(f"the storage {storage} of {spec} is not on this machine's file system")
    return path


def _first_line(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def finished_flows(storage: Path) -> Iterator[Finished]:
    """Yield what each flow of a pipeline has finished by its newest checkpoint: of flows that read topics and have ended a
    batch. A refresh begins a checkpoint with the next number."""
    from kafkacompat.pipeline.groups import Finished, logged_offsets

    newest: dict[Path, int] = {}
    for metadata in (storage / CHECKPOINTS).rglob("metadata"):
        version = metadata.parent
        if version.name.isdigit() and metadata.is_file():
            newest[version.parent] = max(newest.get(version.parent, 0), int(version.name))
    for flow, number in sorted(newest.items()):
        folder = flow / str(number)
        try:
            ended = [int(each) for each in os.listdir(folder / "commits") if each.isdigit()]
            batch = max(ended, default=None)
            if batch is None:
                continue
            offsets = logged_offsets((folder / "offsets" / str(batch)).read_text("utf-8"))
            query_id = str(json.loads((folder / "metadata").read_text("utf-8"))["id"])
        except (FileNotFoundError, ValueError):
            # A flow that has just begun. Spark also deletes old batches.
            continue
        if offsets:
            yield Finished(flow.name, query_id, batch, offsets)


def _manifest_of(spec: Path, address: ClusterAddress, topics: list[str]) -> Manifest:
    # A flow that was taken out leaves its checkpoint, and its topics may be gone.
    cluster_id, topic_ids = identity_of(address, topics, may_lack=True)
    return Manifest(spec.name, STATE_VERSION, {}, cluster_id, topic_ids)


def _manifest(storage: Path) -> Manifest | None:
    place = storage / MANIFEST
    try:
        return decode(place.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ManifestUnreadable) as error:
        raise PipelineFailed(f"manifest {place} cannot be read: {error}") from None


def require_same_topics(storage: Path, kept: Manifest, now: Manifest) -> None:
    """Raise PipelineFailed if the checkpoints have offsets of another cluster, or of topics that were made anew."""
    found = difference(kept, now)
    anew = topics_made_anew(kept, now)
    if found is None and anew:
        found = f"topics {', '.join(anew)} were deleted and created again"
    if found is not None:
        raise PipelineFailed(
            f"storage {storage} cannot be continued: {found}. Use {FULL_REFRESH} to begin all tables anew, which also deletes "
            "what they have"
        )


def _write(storage: Path, manifest: Manifest) -> None:
    place = storage / MANIFEST
    fresh = place.with_suffix(".new")
    try:
        fresh.write_text(encode(manifest), "utf-8")
        fresh.replace(place)
    except OSError as error:
        raise PipelineFailed(f"manifest {place} cannot be written: {error.strerror}") from None
