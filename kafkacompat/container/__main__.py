"""The entry point of the image: python -m kafkacompat.container [VARIABLE=VALUE...]

It writes the final server.properties, formats the data directories unless a node has them, and runs the node in
the same process. `--root` puts all its folders below another one, for tests.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkacompat.api.loggers import PACKAGE
from kafkacompat.cli import format as format_command
from kafkacompat.cli.log_options import LOG_FORMAT_VARIABLE, LogOptions, log_format
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import is_laid_out, load_settings, runs_several, warn_of_settings
from kafkacompat.cli.start import LOG_LEVEL_VARIABLE, log_level, node_logging, print_line, serve
from kafkacompat.config import ServerConfig, parse_voters
from kafkacompat.config.keys import ConfigError
from kafkacompat.config.properties import open_regular
from kafkacompat.container import environment as image
from kafkacompat.container.folders import Folders
from kafkacompat.container.login_modules import jaas_settings
from kafkacompat.failure import CommandFailed
from kafkacompat.security.authorizer import AUDIT
from kafkacompat.security.jaas import JaasError
from kafkacompat.server.process_wide import StopSignals

logger = logging.getLogger("kafkacompat.container")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="kafkacompat-container", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="the folder that stands for / (default %(default)s)"
    )
    parser.add_argument(
        "variables", nargs="*", metavar="VARIABLE=VALUE", help="a variable that wins over the environment"
    )
    return run(parser.parse_args(argv))


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    signals = StopSignals()
    signals.listen()
    variables = {**os.environ, **_pairs(arguments.variables)}
    folders = Folders(arguments.root)
    try:
        level = log_level(False, variables.get(LOG_LEVEL_VARIABLE) or image.log_level(variables))
        levels = image.logger_levels(variables)
        logs = LogOptions(format=log_format(variables.get(LOG_FORMAT_VARIABLE)))
    except image.EnvironmentRefused as problem:
        raise CommandFailed(str(problem)) from None
    with node_logging(level, logs) as know:
        set_levels(levels)
        config, cluster_id = prepared_settings(variables, folders)
        _format_once(config, folders.final_file, cluster_id)
        warn_of_settings(config, logger.warning)

        def tell_ready(line: str) -> None:
            _print_ready(config, line)

        def serve_one(config: ServerConfig) -> int:
            know(config.node_id)
            return serve(config, signals, tell_ready, format_if_empty=False)

        if not runs_several(config):
            return serve_one(config)
        from kafkacompat.cli.supervisor import run_brokers

        return run_brokers(str(folders.final_file), [], signals, tell_ready, serve_one, format_if_empty=False)


def set_levels(levels: Mapping[str, str]) -> None:
    """Set the levels of those loggers that this process has, and tell of the others."""
    for name, level in levels.items():
        if name in (AUDIT.name, PACKAGE) or name.startswith(f"{PACKAGE}."):
            logging.getLogger(name).setLevel(level)
        else:
            logger.warning(
                "%s has no effect on %s: the loggers have other names; %s sets the level of all",
                image.LOGGERS,
                name,
                image.ROOT_LOG_LEVEL,
            )


def prepared_settings(variables: Mapping[str, str], folders: Folders) -> tuple[ServerConfig, str]:
    """The settings, which are also written, and the id for a new cluster."""
    try:
        prepared = image.prepare(
            variables, _text(folders.mounted_file), image.Secrets(str(folders.secrets), _secret)
        )
        text = prepared.server_properties + _jaas_text(prepared)
    except (image.EnvironmentRefused, JaasError, ConfigError) as problem:
        raise CommandFailed(str(problem)) from None
    for note in prepared.notes:
        logger.warning(note)
    for path in folders.mounted_without_effect():
        logger.warning("%s has no effect: there is no log4j", path)
    _write(folders.final_file, image.as_latin(text))
    return load_settings(str(folders.final_file), []), prepared.cluster_id


def _pairs(words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise CommandFailed(f"an argument of the image has the form VARIABLE=VALUE, not {word!r}")
    return dict(word.split("=", 1) for word in words)


def _text(path: str | Path) -> str | None:
    """The text of a file, or None if there is none. It is read as Java reads properties."""
    data = _data(path)
    return None if data is None else data.decode("latin-1")


def _secret(path: str) -> str | None:
    """The password in a file, without the line ends after it, or None if there is no file."""
    text = _utf8_text(path)
    return None if text is None else text.rstrip("\n")


def _utf8_text(path: str | Path) -> str | None:
    data = _data(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _data(path: str | Path) -> bytes | None:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error


def _jaas_text(prepared: image.Prepared) -> str:
    if prepared.jaas_file is None:
        return ""
    text = _utf8_text(prepared.jaas_file)
    if text is None:
        raise CommandFailed(f"{image.JVM_OPTIONS}: there is no file {prepared.jaas_file}")
    settings = jaas_settings(image.properties_of(prepared), text)
    doubled: Mapping[str, str] = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in doubled.items())


def _write(path: Path, text: str) -> None:
    """Write the file, which only its user can read: it may contain passwords."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="latin-1"
        ) as file:
            file.write(text)
    except OSError as error:
        raise CommandFailed(
            f"cannot write {path}: {error.strerror}; mount a folder at {path.parent} that the user of the container may write"
        ) from error


def _format_once(config: ServerConfig, path: Path, cluster_id: str) -> None:
    """Format the directories. If one is formatted, or several brokers have theirs below it, they go on with the ids
    that they have. A format that has ended half way is finished, with the cluster id that it has given."""
    from kafkacompat.log.disk import RealDisk
    from kafkacompat.raft.storage import StorageProblem, read_meta_properties
    from kafkacompat.server.data_directories import absolute_log_dirs, absolute_metadata_dir, begun_format

    disk = RealDisk()
    log_dirs, metadata_dir = absolute_log_dirs(config), absolute_metadata_dir(config)
    if is_laid_out(config):
        return
    try:
        begun = begun_format(disk, log_dirs, metadata_dir)
        formatted = (read_meta_properties(disk, path) is not None for path in (*log_dirs, metadata_dir))
        if begun is None and any(formatted):
            return
    except (StorageProblem, OSError):
        return  # The start says it in full.
    if "controller" in config.roles and not parse_voters(config):
        raise CommandFailed(
            "KAFKA_CONTROLLER_QUORUM_VOTERS is not set: the image makes quorums of static voters only"
        )
    parser = argparse.ArgumentParser()
    format_command.add_arguments(parser)
    more = [] if begun is None else ["--ignore-formatted"]
    arguments = parser.parse_args(["-c", str(path), f"--cluster-id={begun or cluster_id}", *more])
    try:
        # The start tells of settings without effect.
        format_command.formatted(arguments, lambda line: None)
    except CommandFailed as failure:
        raise CommandFailed(f"the data directories cannot be formatted for CLUSTER_ID: {failure}") from None


def _print_ready(config: ServerConfig, line: str) -> None:
    """Print the line, and what programs wait for that start apache/kafka containers."""
    print_line(line)
    if "broker" in config.roles:
        print_line(f"[BrokerLifecycleManager id={config.node_id}] Transitioning from RECOVERY to RUNNING")
    print_line(
        f"[KafkaRaftServer nodeId={config.node_id}] Kafka Server started (kafka.server.KafkaRaftServer)"
    )


if __name__ == "__main__":
    sys.exit(main())
