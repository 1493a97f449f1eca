"""`kafkacompat pipeline backfill`: computes dates of a job's tables again from the records of its topics."""

from __future__ import annotations

import argparse
import os
from datetime import date

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.loading import OWN, load
from kafkacompat.pipeline.maintain_command import add_keep_replaced, for_each_table, tables_in
from kafkacompat.pipeline.maintenance.table import HOUR_MS
from kafkacompat.pipeline.options import (
    RunOptions,
    add_bootstrap,
    add_isolation_level,
    add_registry,
    address_of,
    registry_of,
)
from kafkacompat.pipeline.run_command import (
    IN_USER_DATA,
    add_cache,
    add_log_formats,
    add_master,
    job_name,
    require_registry,
    sources_of,
)
from kafkacompat.pipeline.session import local_path, start_session, stop_session
from kafkacompat.pipeline.user_data import user_data


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a date YYYY-MM-DD") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job, the dates, and where its run is."""
    folder = user_data() / "pipeline"
    parser.add_argument(
        "job",
        type=job_name,
        metavar="JOB",
        help=f"{', '.join(OWN)}, the name of an installed job, MODULE:NAME, or FILE.sql",
    )
    parser.add_argument(
        "--from",
        dest="first",
        type=_date,
        required=True,
        metavar="DATE",
        help="the first date, YYYY-MM-DD in UTC",
    )
    parser.add_argument(
        "--to",
        dest="last",
        type=_date,
        required=True,
        metavar="DATE",
        help="the last date, which is computed too",
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="JOB/NAME",
        help="this table; repeatable (all tables of the job)",
    )
    add_bootstrap(parser)
    parser.add_argument(
        "--checkpoint",
        default=str(folder / "checkpoint"),
        metavar="DIR",
        help=f"that of the run ({IN_USER_DATA}/checkpoint)",
    )
    parser.add_argument(
        "--output",
        default=str(folder / "tables"),
        metavar="DIR",
        help=f"that of the run ({IN_USER_DATA}/tables)",
    )
    add_keep_replaced(parser)
    add_master(parser)
    add_isolation_level(parser)
    add_log_formats(parser)
    add_registry(parser)
    add_cache(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compute one table after the other. The status is 1 if one could not be computed."""
    require_extra("spark", "pyspark", "confluent_kafka")
    from kafkacompat.pipeline.backfill import Backfill, kept_manifest, options_of_run
    from kafkacompat.pipeline.recomputing import Range

    if arguments.first > arguments.last:
        raise PipelineFailed(f"--from {arguments.first} is after --to {arguments.last}")
    places = []
    for place in (arguments.checkpoint, arguments.output):
        path = local_path(place)
        if path is None:
            raise PipelineFailed(f"{place} is not on this machine's file system")
        places.append(path.absolute())
    checkpoint, output = places
    job = load(arguments.job)
    options = RunOptions(
        jobs=(job.name,),
        checkpoint=str(checkpoint),
        output=str(output),
        bootstrap=address_of(arguments),
        master=arguments.master,
        isolation_level=arguments.isolation_level,
        log_format=arguments.log_format,
        sources=sources_of(arguments),
        registry=registry_of(arguments),
        ivy=arguments.ivy or os.environ.get("KAFKACOMPAT_IVY"),
        spark_conf=dict(arguments.conf),
    )
    require_registry([job], options)
    found = tables_in(output, arguments.table or [job.name])
    kept = kept_manifest(checkpoint, job.name)
    options = options_of_run(job, options, kept)
    session = start_session(options, set(found.values()))
    try:
        backfill = Backfill(session, job, options, kept, Range(arguments.first, arguments.last))
        grace_ms = round(arguments.keep_replaced * HOUR_MS)
        return for_each_table(
            found, lambda table, form: backfill.table(table, form, grace_ms), "was not computed again"
        )
    finally:
        stop_session(session)
