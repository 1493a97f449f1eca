"""Options as Kafka's tools take them: long names, also abbreviated, with `=` or a space before the value."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from kafkacompat import __version__
from kafkacompat.config import ConfigError, load_properties
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress

VERSION = f"4.4.0 (kafkacompat {__version__})"
"""The version of Kafka whose behaviour this is, and our own."""


class Options(argparse.ArgumentParser):
    """The parser of one tool. A wrong call ends with status 1, as with Kafka's tools."""

    def __init__(self, tool: str, purpose: str) -> None:
        super().__init__(prog=f"{tool}.sh", description=purpose, add_help=False)
        self.add_argument("--help", action="help", help="print this and end")
        self.add_argument(
            "--version",
            action="version",
            version=VERSION,
            help="print the version of Kafka and of kafkacompat, and end",
        )

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(1)

    def add_flags(self, *names: str) -> None:
        for name in names:
            self.add_argument(f"--{name}", action="store_true")

    def add_server(self, *configs: str) -> None:
        """--bootstrap-server, and these names of the option for a file of client properties."""
        self.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True)
        self.add_argument(*[f"--{each}" for each in configs], dest="client_properties", metavar="FILE")


def address_of(arguments: argparse.Namespace) -> ClusterAddress:
    try:
        return ClusterAddress.of_file(arguments.bootstrap_server, arguments.client_properties)
    except ConfigError as error:
        raise CommandFailed(str(error)) from None


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE of an option that may be repeated. A value may lack."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name:
            raise CommandFailed(f"--{option} takes NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def topic_pattern(text: str) -> re.Pattern[str]:
    """A regular expression of topics, or several with commas between them, with or without quotes."""
    try:
        return re.compile(text.replace(",", "|").replace(" ", "").strip("\"'"))
    except re.error as error:
        raise CommandFailed(f"{text} is no regular expression of topics: {error}") from None


def property_of(path: str | None, name: str) -> str | None:
    """One property of a file of client properties, or None."""
    return None if path is None else load_properties(path).get(name)
