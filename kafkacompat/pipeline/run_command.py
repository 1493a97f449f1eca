"""`kafkacompat pipeline run`: the command line, and what it starts."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

from kafkacompat.pipeline import options as defaults
from kafkacompat.pipeline import tables
from kafkacompat.pipeline.argument_types import MOST_INT16, MOST_INT32, whole, whole_to
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.formats.envelopes import ENVELOPES
from kafkacompat.pipeline.formats.patterns import FormatProblem
from kafkacompat.pipeline.formats.registry import LOG_FORMATS, log_format
from kafkacompat.pipeline.formats.server_formats import AUTO
from kafkacompat.pipeline.loading import OWN, installed, is_known, load
from kafkacompat.pipeline.maintenance.table import oldest_date
from kafkacompat.pipeline.manifest import manifest_of
from kafkacompat.pipeline.options import (
    FROM_GROUP,
    RunOptions,
    add_bootstrap,
    add_isolation_level,
    add_registry,
    address_of,
    registry_of,
)
from kafkacompat.pipeline.reports import Reports
from kafkacompat.pipeline.schemas.client import registry_at
from kafkacompat.pipeline.session import (
    is_jvm_gone,
    local_path,
    require_java,
    require_writable,
    start_session,
    stop_session,
)
from kafkacompat.pipeline.terminal import Terminal
from kafkacompat.pipeline.topics import (
    BROKERS_REPLICATION,
    CONFIGS,
    DEFAULT_PARTITIONS,
    LOGS_RAW,
    cluster_of,
    create_missing,
    identity_of,
    plans,
)
from kafkacompat.pipeline.user_data import user_data

if TYPE_CHECKING:
    from kafkacompat.pipeline.job import Job

SOURCES_MAX: Final = 16
"""Each source adds its format to the plan of three queries."""

IN_USER_DATA: Final = "$XDG_DATA_HOME/kafkacompat/pipeline"
ALL: Final = "all"


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return number


def _setting(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not (key and mark):
        raise argparse.ArgumentTypeError(f"{text} is not KEY=VALUE")
    return key, value


def _log_format(text: str) -> str:
    try:
        log_format(text)
    except FormatProblem as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    return text


def job_name(text: str) -> str:
    """Parse the name of one job."""
    if not is_known(text):
        names = ", ".join([*OWN, *sorted(installed())])
        raise argparse.ArgumentTypeError(f"{text} is none of {names}, and neither MODULE:NAME nor FILE.sql")
    return text


def _job(text: str) -> str:
    if text != ALL and not is_known(text):
        names = ", ".join([*OWN, ALL, *sorted(installed())])
        raise argparse.ArgumentTypeError(f"{text} is none of {names}, and neither MODULE:NAME nor FILE.sql")
    return text


def _source(text: str) -> tuple[str, str]:
    topic, mark, form = text.partition("=")
    if not mark or re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) is None:
        raise argparse.ArgumentTypeError(f"{text} is not TOPIC=FORMAT")
    return topic, _log_format(form)


def sources_of(arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return the sources of the job logs. PipelineFailed for those that cannot be used together."""
    sources: list[tuple[str, str]] = arguments.source
    topics = [topic for topic, _ in sources]
    for topic in topics:
        if topics.count(topic) > 1:
            raise PipelineFailed(f"--source has topic {topic} twice: a topic has one format")
        if topic in CONFIGS and topic != LOGS_RAW:
            raise PipelineFailed(f"--source {topic}: this topic of the pipeline has no log lines")
    if sources and arguments.log_format != AUTO:
        raise PipelineFailed(
            f"--log-format is for {LOGS_RAW} alone: with --source write --source {LOGS_RAW}=FORMAT"
        )
    if len(sources) > SOURCES_MAX:
        raise PipelineFailed(f"--source was given {len(sources)} times, at most {SOURCES_MAX} are possible")
    return tuple(sources)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for jobs, places and bounds."""
    folder = user_data() / "pipeline"
    parser.add_argument(
        "job",
        type=_job,
        metavar="JOB",
        help=f"{', '.join(OWN)}, {ALL} of these, the name of an installed job, MODULE:NAME of a Job in a Python module, "
        "or FILE.sql",
    )
    add_master(parser)
    add_bootstrap(parser)
    parser.add_argument(
        "--checkpoint",
        default=str(folder / "checkpoint"),
        metavar="DIR",
        help="where a run continues after a stop or crash; belongs to one output folder, cluster and set of windows "
        f"({IN_USER_DATA}/checkpoint)",
    )
    parser.add_argument(
        "--output",
        default=str(folder / "tables"),
        metavar="DIR",
        help=f"folder of the tables ({IN_USER_DATA}/tables)",
    )
    parser.add_argument(
        "--table-format",
        choices=tables.FORMATS,
        help="format of all tables (that of each table of the job, which is parquet for those of kafkacompat)",
    )
    parser.add_argument(
        "--trigger",
        type=_seconds,
        default=defaults.DEFAULT_TRIGGER_S,
        metavar="SECONDS",
        help="interval of batches of the result topics (%(default)s)",
    )
    parser.add_argument(
        "--table-trigger",
        type=_seconds,
        metavar="SECONDS",
        help="interval of batches of the tables, about one file each "
        f"({defaults.DEFAULT_TABLE_TRIGGER_S}, or --trigger if that is longer)",
    )
    parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="read what exists, then stop; open windows stay open",
    )
    parser.add_argument(
        "--progress", metavar="FILE", help="append Spark's progress of each batch as a JSON line"
    )
    parser.add_argument(
        "--starting",
        choices=["earliest", "latest", FROM_GROUP],
        default="earliest",
        help="where to start without a checkpoint; group: from the commits of each query's group, or else the earliest",
    )
    parser.add_argument(
        "--group-prefix",
        default=defaults.DEFAULT_GROUP_PREFIX,
        metavar="TEXT",
        help="each query commits what it has finished to the consumer group TEXT and its name (%(default)s)",
    )
    parser.add_argument(
        "--no-group-commits", action="store_true", help="commit nothing; lag then shows in the console only"
    )
    add_isolation_level(parser)
    for name, default, purpose in (
        ("--window", defaults.DEFAULT_WINDOW_S, "length of windows"),
        ("--session-gap", defaults.DEFAULT_SESSION_GAP_S, "time without events that ends a session"),
        ("--watermark", defaults.DEFAULT_WATERMARK_S, "how late an event may arrive"),
        (
            "--duplicate-horizon",
            defaults.DEFAULT_DUPLICATE_HORIZON_S,
            "how late a duplicate of a log line is still recognized",
        ),
    ):
        parser.add_argument(
            name, type=whole, default=default, metavar="SECONDS", help=f"{purpose} (%(default)s)"
        )
    for name, default, most, purpose in (
        (
            "--shuffle-partitions",
            defaults.DEFAULT_SHUFFLE_PARTITIONS,
            MOST_INT32,
            "tasks and state stores per operator; fixed by the checkpoint",
        ),
        ("--files-per-batch", 1, MOST_INT32, "files per hourly folder and batch of logs/events"),
        ("--partitions", DEFAULT_PARTITIONS, MOST_INT32, "partitions of created topics"),
    ):
        parser.add_argument(
            name, type=whole_to(most), default=default, metavar="N", help=f"{purpose} (%(default)s)"
        )
    parser.add_argument(
        "--maintain-every",
        type=_seconds,
        metavar="HOURS",
        help="merge small files of the tables while the run goes on, each time after this number of hours (default: never; see "
        "pipeline maintain)",
    )
    parser.add_argument(
        "--keep-days",
        type=whole,
        metavar="N",
        help="with --maintain-every: remove the rows whose date is more than N days before today, in UTC (default: keep all)",
    )
    add_log_formats(parser)
    add_registry(parser)
    parser.add_argument(
        "--replication",
        type=whole_to(MOST_INT16),
        default=BROKERS_REPLICATION,
        metavar="N",
        help="replication factor of created topics (the broker's default.replication.factor)",
    )
    parser.add_argument(
        "--max-records-per-batch",
        type=whole,
        metavar="N",
        help="limit of a batch (default none; with a limit, a backlog of uneven age across partitions makes events late)",
    )
    parser.add_argument(
        "--ignore-data-loss",
        action="store_true",
        help="continue instead of failing when records are deleted before they are read (retention, topic recreated)",
    )
    add_cache(parser)


def add_log_formats(parser: argparse.ArgumentParser) -> None:
    """Add the options for what the job logs reads."""
    parser.add_argument(
        "--log-format",
        type=_log_format,
        default=AUTO,
        metavar="FORMAT",
        help=f"format of access logs: {', '.join(LOG_FORMATS)}, "
        "the pattern of log_format (nginx) or LogFormat (Apache), a #Fields: line, `json PART=PATH ...`, "
        "`logfmt PART=KEY ...` or `pattern:TEXT with {FIELDS}`; "
        f"behind {', '.join(f'{name}+' for name in ENVELOPES)} the format of the lines in them (%(default)s)",
    )
    parser.add_argument(
        "--source",
        action="append",
        type=_source,
        default=[],
        metavar="TOPIC=FORMAT",
        help=f"read lines of this format from this topic instead of {LOGS_RAW}; repeatable",
    )


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add --master."""
    parser.add_argument(
        "--master", default="local[*]", help="local[N], spark://..., yarn or k8s://... (%(default)s)"
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the options for Spark's packages and settings."""
    parser.add_argument(
        "--ivy",
        metavar="DIR",
        help="Spark's cache of the connector (its own default is a folder in the home folder)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        type=_setting,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; repeatable",
    )


def _maintain_every_s(arguments: argparse.Namespace) -> float | None:
    hours: float | None = arguments.maintain_every
    if hours is None:
        if arguments.keep_days is not None:
            raise PipelineFailed("--keep-days is for --maintain-every: without it no rows are removed")
        return None
    if arguments.until_caught_up:
        raise PipelineFailed("--maintain-every is for a run that goes on, not for one --until-caught-up")
    if local_path(arguments.output) is None:
        raise PipelineFailed(f"--maintain-every: {arguments.output} is not on this machine's file system")
    oldest_date(arguments.keep_days)
    return hours * 3600


def options_of(arguments: argparse.Namespace) -> RunOptions:
    """Return the options from the command line."""
    table_trigger_s = arguments.table_trigger
    if table_trigger_s is None:
        table_trigger_s = max(arguments.trigger, defaults.DEFAULT_TABLE_TRIGGER_S)
    return RunOptions(
        jobs=tuple(OWN) if arguments.job == ALL else (arguments.job,),
        checkpoint=arguments.checkpoint,
        output=arguments.output,
        bootstrap=address_of(arguments),
        master=arguments.master,
        starting=arguments.starting,
        group_prefix=arguments.group_prefix,
        commits_to_groups=not arguments.no_group_commits,
        isolation_level=arguments.isolation_level,
        fail_on_data_loss=not arguments.ignore_data_loss,
        until_caught_up=arguments.until_caught_up,
        trigger_s=arguments.trigger,
        table_trigger_s=table_trigger_s,
        window_s=arguments.window,
        session_gap_s=arguments.session_gap,
        watermark_s=arguments.watermark,
        duplicate_horizon_s=arguments.duplicate_horizon,
        records_per_batch_max=arguments.max_records_per_batch,
        shuffle_partitions=arguments.shuffle_partitions,
        files_per_batch=arguments.files_per_batch,
        maintain_every_s=_maintain_every_s(arguments),
        keep_days=arguments.keep_days,
        table_format=arguments.table_format,
        log_format=arguments.log_format,
        sources=sources_of(arguments),
        registry=registry_of(arguments),
        progress=arguments.progress,
        ivy=arguments.ivy or os.environ.get("KAFKACOMPAT_IVY"),
        spark_conf=dict(arguments.conf),
    )


def _opened(path: str) -> IO[str]:
    try:
        return open(path, "a", encoding="utf-8")
    except OSError as error:
        raise PipelineFailed(f"progress file {path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _progress_file(path: str | None) -> Iterator[IO[str] | None]:
    if path is None:
        yield None
        return
    file = _opened(path)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            # What could not be written is still in its buffer. That was said.
            file.close()


def require_registry(jobs: list[Job], options: RunOptions) -> None:
    """Raise PipelineFailed unless what the jobs need for the schemas of their topics is there."""
    needed = [job for job in jobs if job.registered_formats]
    for job in needed:
        job.require_registry(options)
    if needed and options.registry is not None:
        registry_at(options.registry, patience_s=0).check()


def run(arguments: argparse.Namespace) -> int:
    """Check the requirements, cheapest first; start Spark; create topics unless a checkpoint belongs to another run; run until a
    signal or, with an option, until caught up."""
    options = options_of(arguments)
    require_extra("spark", "pyspark", "confluent_kafka")
    require_java()
    jobs = [load(name) for name in options.jobs]
    options = replace(options, jobs=tuple(job.name for job in jobs))
    require_registry(jobs, options)
    require_writable(options.output, "output")
    require_writable(options.checkpoint, "checkpoint")
    # Imported here, because these modules need pyspark.
    from kafkacompat.pipeline.checkpoint_files import choose_checkpoint_files
    from kafkacompat.pipeline.checkpoint_validation import (
        format_of,
        jobs_locked,
        require_same_job,
        require_same_run,
    )
    from kafkacompat.pipeline.groups import GroupCommits
    from kafkacompat.pipeline.runner import Run, StopRequest
    from kafkacompat.pipeline.table_formats import TABLE_FORMATS

    stop = StopRequest()
    stop.listen()
    say = Terminal(stop.ask).say
    # The locks are released last: a query that did not stop in time may write until the session has stopped.
    with _progress_file(options.progress) as progress, contextlib.ExitStack() as held:
        # A broker that does not answer is known before Spark starts.
        cluster_id = cluster_of(options.bootstrap)
        tables = [query for job in jobs for query in job.queries if query.table is not None]
        formats = {format_of(query, options) for query in tables}
        session = start_session(options, formats)
        # Spark has installed its own handler of SIGINT.
        stop.listen()
        try:
            held.enter_context(jobs_locked(session, options, stop.wait))
            if stop.is_set:
                return 0
            for job in jobs:
                require_same_job(session, manifest_of(job, options, cluster_id, {}), options)
            names = [name for job in jobs for name in (*job.inputs_of(options), *job.outputs)]
            configs = {name: config for job in jobs for name, config in job.configs.items()}
            planned = plans(names, arguments.partitions, arguments.replication, configs)
            created = create_missing(options.bootstrap, planned)
            if created:
                say(f"created topics {', '.join(sorted(created))}")
            read = {job.name: list(job.inputs_of(options)) for job in jobs}
            _, topic_ids = identity_of(options.bootstrap, [name for names in read.values() for name in names])
            for job in jobs:
                ids = {name: topic_ids[name] for name in read[job.name]}
                manifest = manifest_of(job, options, cluster_id, ids)
                of_job = [job.for_run(query, options) for query in job.queries]
                require_same_run(session, manifest, of_job, options, say)
            choose_checkpoint_files(session, options)
            for form in formats:
                TABLE_FORMATS[form].use_output(session, options.output)
            queries = [job.for_run(query, options) for job in jobs for query in job.queries]
            say(f"running {', '.join(options.jobs)} on {session.sparkContext.master}: {len(queries)} queries")
            say(f"tables in {options.output}, checkpoint in {options.checkpoint}")
            reports = Reports(options.bootstrap, say)
            commits = None
            if options.commits_to_groups:
                commits = GroupCommits(options.bootstrap.spark(), options.group_prefix, say)
            try:
                Run(session, queries, options, say, progress, reports.tell, commits).run(stop)
            finally:
                reports.close()
                if commits is not None:
                    commits.close()
        except Exception as error:
            if is_jvm_gone(error):
                raise PipelineFailed("Spark's JVM has ended; start the run again to continue") from None
            raise
        finally:
            stop_session(session)
    return 0
