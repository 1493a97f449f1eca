"""`kafkacompat format`: give the log directories of a node their identity, as kafka-storage format does.

It knows settings and options; what is written into a directory it does not know. Nothing is changed when it refuses.
"""

from __future__ import annotations

import argparse

from kafkacompat.cli.failure import CommandFailed
from kafkacompat.cli.format_options import parse_feature_levels, parse_initial_controllers
from kafkacompat.cli.node_making import new_id
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import add_override, load_settings, warn_of_settings
from kafkacompat.config import ServerConfig, parse_voters
from kafkacompat.ids import uuid_to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "properties", nargs="?", metavar="SERVER_PROPERTIES", help="the file that `start` will be given"
    )
    where.add_argument("-c", "--config", metavar="FILE", help="the same, as kafka-storage takes it")
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
        "-f",
        "--feature",
        metavar="NAME=LEVEL",
        action="append",
        default=[],
        help="begin the cluster with another level of a feature than Kafka's default; may be given several times",
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
    if arguments.random_id:
        print(new_id())
        return 0
    config = load_settings(arguments.config or arguments.properties, arguments.override)
    warn_of_settings(config)
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
    if arguments.feature:
        dynamic = arguments.standalone or bool(initial_voters)
        levels = parse_feature_levels(arguments.feature, dynamic)

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
            # The new directories join those that are there already.
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


def check_voters(
    config: ServerConfig, standalone: bool, no_initial_controllers: bool, named: bool = False
) -> None:
    """CommandFailed unless the settings and options together say who votes. `named`: by --initial-controllers."""
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
    """CommandFailed for what no file can carry. Kafka takes any other text, usually a UUID's."""
    if not text or not text.isascii() or any(character.isspace() for character in text):
        raise CommandFailed(f"--cluster-id takes an id without blanks, not {text!r}")
