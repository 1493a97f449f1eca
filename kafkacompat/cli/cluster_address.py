"""The options --bootstrap and --command-config of all commands that connect to a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import DEFAULT_SERVERS, ClusterAddress


def add_bootstrap(parser: argparse.ArgumentParser, *, action: bool = False) -> None:
    """Add the options that `address_of` reads. `action`: for a subparser whose parent has them too."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        default=argparse.SUPPRESS if action else DEFAULT_SERVERS,
        metavar="HOST:PORT",
        help=f"bootstrap brokers, separated by commas (default {DEFAULT_SERVERS})",
    )
    parser.add_argument(
        "--command-config",
        default=argparse.SUPPRESS if action else None,
        metavar="FILE",
        help="a file of Kafka's client properties that says how to connect: security.protocol, sasl.*, ssl.*",
    )


def add_bootstrap_to(actions: argparse._SubParsersAction[Any]) -> None:
    """Add them to each action of a command that has them, so that they may come before or after the action."""
    for parser in actions.choices.values():
        add_bootstrap(parser, action=True)


def address_of(arguments: argparse.Namespace) -> ClusterAddress:
    """Return the address. Raises CommandFailed with the name of a wrong property, without its value if that is a secret."""
    try:
        return ClusterAddress.of_file(arguments.bootstrap, arguments.command_config)
    except ConfigError as error:
        raise CommandFailed(str(error)) from None
