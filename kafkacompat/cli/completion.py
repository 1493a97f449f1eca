"""`kafkacompat completion`: a script that lets a shell complete commands, actions, options and file names."""

from __future__ import annotations

import argparse

import shtab

from kafkacompat.cli.reference import PROGRAM, every_parser

SHELLS = ("bash", "zsh", "fish")
FILES = {"FILE", "FILE_OR_GLOB", "FILE|PARTITION_DIR", "SERVER_PROPERTIES"}
"""Placeholders of arguments that are files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write the script for")


def run(arguments: argparse.Namespace) -> int:
    print(script(arguments.shell))
    return 0


def script(shell: str) -> str:
    parser = every_parser()
    _complete_files(parser)
    text: str = shtab.complete(parser, shell=shell, root_prefix=PROGRAM)
    return text


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments of a command, and of its actions, that are files or directories."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                _complete_files(made)
        elif action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
