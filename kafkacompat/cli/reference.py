"""Generate docs/reference/commands.md from the parsers of all commands: python -m kafkacompat.cli.reference [--check]"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from kafkacompat.__main__ import COMMANDS
from kafkacompat.cli.pipeline import ACTIONS

PROGRAM = "kafkacompat"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
HEAD = """# Commands

Every command of `kafkacompat` with its arguments. This page is written by `python -m kafkacompat.cli.reference`; a test
compares it with the commands' own help.

A command ends with status 0 when it did what was asked, 1 when it could not, and 2 when it was called wrongly.
"""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each command with its parser. Each action of the pipeline is listed as a command."""
    for name, purpose in COMMANDS.items():
        if name == "pipeline":
            for action, (module, purpose) in ACTIONS.items():
                yield from _filled(f"kafkacompat pipeline {action}", module, purpose)
        else:
            yield from _filled(f"kafkacompat {name}", f"kafkacompat.cli.{name}", purpose)


def every_parser() -> argparse.ArgumentParser:
    """One parser with all commands, and all actions of the pipeline."""
    whole = argparse.ArgumentParser(prog=PROGRAM)
    whole.add_argument("--version", action="store_true", help="print the version and end")
    commands = whole.add_subparsers(dest="command")
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if name == "pipeline":
            actions = command.add_subparsers(dest="action")
            for action, (module, told) in ACTIONS.items():
                importlib.import_module(module).add_arguments(actions.add_parser(action, help=told))
        else:
            importlib.import_module(f"kafkacompat.cli.{name}").add_arguments(command)
    return whole


def _filled(words: str, module: str, purpose: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(prog=words, description=purpose)
    importlib.import_module(module).add_arguments(parser)
    yield from _with_actions(words, parser)


def _with_actions(
    words: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                made = action.choices[choice.dest]
                made.description = choice.help
                yield from _with_actions(f"{words} {choice.dest}", made)


def page() -> str:
    return "\n".join([HEAD, *(_section(words, parser) for words, parser in parsers())])


def _section(words: str, parser: argparse.ArgumentParser) -> str:
    purpose = (parser.description or "").rstrip(".")
    arguments = [action for action in parser._actions if _is_told(action)]
    lines = [f"{'#' * len(words.split())} {words}", ""]
    lines += [f"{purpose[:1].upper()}{purpose[1:]}.", ""] if purpose else []
    if arguments:
        lines += ["| argument | meaning |", "| --- | --- |", *(_row(parser, each) for each in arguments), ""]
    return "\n".join(lines)


def _is_told(action: argparse.Action) -> bool:
    return action.help is not argparse.SUPPRESS and not isinstance(
        action, (argparse._HelpAction, argparse._SubParsersAction)
    )


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = _value(action)
    if action.option_strings:
        said = ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in action.option_strings)
        said += ", required" if action.required else ""
    else:
        said = f"`{value}`"
    meaning = parser._get_formatter()._expand_help(action) if action.help else ""
    return f"| {_cell(said)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _value(action: argparse.Action) -> str:
    """Return the placeholder of an option's value, or of an argument."""
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        name = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    elif action.choices is not None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        name = action.dest.upper() if action.option_strings else action.dest
    many = {"*": f"[{name}...]", "+": f"{name}...", "?": f"[{name}]"}
    return many.get(str(action.nargs), name)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 where the page is out of date"
    )
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(PAGE.read_text(encoding="utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
