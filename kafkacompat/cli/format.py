"""`kafkacompat format`: format the log directories of a node, as kafka-storage format does.

This module knows settings and options, not the files that are written. If it refuses, nothing has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from kafkacompat.cli.format_options import (
    parse_feature_levels,
    parse_initial_controllers,
    parse_release,
    parse_scram_credential,
)
from kafkacompat.cli.node_making import new_id
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import (
    add_override,
    is_laid_out,
    load_settings,
    warn,
    warn_of_settings,
    written_settings,
)
from kafkacompat.config import ServerConfig, parse_voters
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "properties", nargs="?", metavar="SERVER_PROPERTIES", help="the settings file, as for `start`"
    )
    where.add_argument("-c", "--config", metavar="FILE", help="the same, with the option of kafka-storage")
    parser.add_argument(
        "-t", "--cluster-id", metavar="ID", help="the cluster's id (default: a random one, which is printed)"
    )
    parser.add_argument(
        "--random-id", action="store_true", help="print an id for a cluster or a directory, and do nothing"
    )
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument(
        "-s",
        "--standalone",
        action="store_true",
        help="this controller alone is the quorum's first voter; for settings without controller.quorum.voters",
    )
    voters.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="format without a voter; this controller joins a quorum later",
    )
    voters.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY_ID,...",
        help="the quorum's first voters, the same on every node; this node's metadata directory gets the id given here",
    )
    parser.add_argument(
        "-r",
        "--release-version",
        metavar="RELEASE",
        help="the release of Kafka whose levels the cluster begins with, for example 4.3 (default: the latest); nodes of "
        "that release can open the directories",
    )
    parser.add_argument(
        "-f",
        "--feature",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="a feature level other than the release's; may be repeated",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        metavar="CREDENTIAL",
        action="append",
        default=[],
        help="a user that exists from the cluster's first start on, for example "
        "SCRAM-SHA-512=[name=alice,password=alice-secret], or with iterations, salt and saltedpassword (both in base64); "
        "may be given several times",
    )
    parser.add_argument(
        "-g",
        "--ignore-formatted",
        action="store_true",
        help="leave formatted directories as they are and format the others",
    )
    add_override(parser)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    return formatted(arguments, warn)


def formatted(arguments: argparse.Namespace, tell: Callable[[str], object]) -> int:
    """Format the directories and return the exit status. `tell` gets a line for each setting without its effect. Raises
    CommandFailed."""
    if arguments.random_id:
        print(new_id())
        return 0
    config = load_settings(arguments.config or arguments.properties, arguments.override)
    warn_of_settings(config, tell)
    if is_laid_out(config):
        return format_laid_out(arguments, config)
    check_voters(
        config,
        arguments.standalone,
        arguments.no_initial_controllers,
        named=arguments.initial_controllers is not None,
    )
    initial_voters = (
        parse_initial_controllers(arguments.initial_controllers, config.controller_listener_names[0])
        if arguments.initial_controllers is not None
        else ()
    )
    levels = None
    if arguments.feature or arguments.release_version is not None:
        dynamic = not parse_voters(config)
        release = None if arguments.release_version is None else parse_release(arguments.release_version)
        levels = parse_feature_levels(arguments.feature, dynamic, release)
    users = [parse_scram_credential(text) for text in arguments.add_scram]

    from kafkacompat.log.disk import RealDisk
    from kafkacompat.net.runtime import SystemClock, SystemRandom
    from kafkacompat.raft.storage import StorageProblem, read_meta_properties
    from kafkacompat.server.data_directories import absolute_log_dirs, absolute_metadata_dir, format_node

    disk, random = RealDisk(), SystemRandom()
    directories = dict.fromkeys((*absolute_log_dirs(config), absolute_metadata_dir(config)))
    try:
        found = [meta for path in directories if (meta := read_meta_properties(disk, path)) is not None]
        cluster_id = arguments.cluster_id
        if cluster_id is not None:
            check_cluster_id(cluster_id)
        elif found and arguments.ignore_formatted and found[0].cluster_id is not None:
            # New directories get the cluster id of the existing ones.
            cluster_id = found[0].cluster_id
        else:
            cluster_id = uuid_to_text(random.uuid())
        format_node(
            config,
            disk,
            random,
            SystemClock().now_ms(),
            cluster_id=cluster_id,
            standalone=arguments.standalone,
            initial_voters=initial_voters,
            feature_levels=levels,
            users=users,
            ignore_formatted=arguments.ignore_formatted,
            progress=print,
        )
    except StorageProblem as problem:
        raise CommandFailed(str(problem)) from problem
    except OSError as error:
        raise CommandFailed(f"cannot format {error.filename} of log.dirs: {error.strerror}") from error
    if len(found) == len(directories):
        print("All of the log directories are already formatted.")
    elif arguments.cluster_id is None:
        print(f"cluster.id={cluster_id}")
    return 0


def format_laid_out(arguments: argparse.Namespace, config: ServerConfig) -> int:
    """Format what is new in log.dirs for the brokers that share them. Raises CommandFailed without --ignore-formatted."""
    from kafkacompat.cli.brokers_folder import BrokersFolder
    from kafkacompat.cli.machine import machine_name

    written = written_settings(arguments.config or arguments.properties, arguments.override)
    folder = BrokersFolder(written, config, machine_name())
    layout = folder.load()
    if not arguments.ignore_formatted:
        raise CommandFailed(f"{folder.files.root} is already formatted, for {len(layout.nodes)} brokers")
    for node in layout.nodes:
        folder.format_new(node.node_id, layout, print)
    return 0


def check_voters(
    config: ServerConfig, standalone: bool, no_initial_controllers: bool, named: bool = False
) -> None:
    """Raise CommandFailed unless settings and options together define the voters. `named`: by --initial-controllers."""
    static = bool(parse_voters(config))
    if named and static:
        raise CommandFailed(
            "--initial-controllers makes a dynamic quorum, but controller.quorum.voters is set"
        )
    if standalone and static:
        raise CommandFailed("--standalone makes a dynamic quorum, but controller.quorum.voters is set")
    if standalone and "controller" not in config.roles:
        raise CommandFailed("--standalone needs the role controller in process.roles")
    if "controller" in config.roles and not (static or standalone or named or no_initial_controllers):
        raise CommandFailed(
            "controller.quorum.voters is not set, so say --standalone for a quorum of this node alone, "
            "--initial-controllers for one of several, or --no-initial-controllers to join one later"
        )


def check_cluster_id(text: str) -> None:
    """Like Kafka, accept any text, usually a UUID: meta.properties has escapes for blanks. Raise CommandFailed for an
    empty one, and for one that no Java string of text has."""
    if not text or any("\ud800" <= character <= "\udfff" or character > "\uffff" for character in text):
        raise CommandFailed(f"--cluster-id takes an id, not {text!r}")
