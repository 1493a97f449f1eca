"""`kafkacompat watch`: the requests of nodes and what becomes of them, live. It reads /watch at their metrics listeners."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio

from kafkacompat.cli.output import failing_clearly
from kafkacompat.client.watching import follow, watch_target, watch_token
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.security.http_fetch import HttpAddress, http_address

OPTION = "--metrics"
DEFAULT_ADDRESS = "http://127.0.0.1:9404"
RED, GREY, YELLOW, PLAIN = "\x1b[31m", "\x1b[90m", "\x1b[33m", "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        OPTION,
        default=DEFAULT_ADDRESS,
        metavar="URL[,URL...]",
        help=f"metrics listeners of nodes on this machine (metrics.listener.port; default: {DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--token-file",
        required=True,
        metavar="FILE",
        help="the file that watch.token.file of the nodes names",
    )
    parser.add_argument(
        "--api",
        action="append",
        default=[],
        metavar="NAME",
        help="only requests of this API, such as Produce; may be given several times",
    )
    parser.add_argument("--client-id", metavar="ID", help="only requests of clients with this client.id")
    parser.add_argument("--topic", metavar="TOPIC", help="only requests or responses that name this topic")
    parser.add_argument(
        "--principal", metavar="TYPE:NAME", help="only requests of this principal, such as User:alice"
    )
    parser.add_argument(
        "--errors", action="store_true", help="only what was refused, or ended with a closed connection"
    )
    parser.add_argument(
        "--values",
        action="store_true",
        help="with the keys and values of the first records that are not compressed",
    )
    parser.add_argument("--verbose", action="store_true", help="with the whole request and response")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object for each exchange, with all of it"
    )
    parser.add_argument("--count", type=_number, metavar="N", help="end after N exchanges")
    parser.add_argument("--seconds", type=_number, metavar="S", help="end after S seconds")


def _number(text: str) -> int:
    number = parse_int(text)
    if number is None or number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return number


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    addresses, token = _addresses(arguments.metrics), watch_token(arguments.token_file, "--token-file")
    printer = _Printer(arguments)
    with suppress(KeyboardInterrupt):  # the usual end
        trio.run(_watch, addresses, _target(arguments), token, printer, arguments.seconds)
    return 0


def _addresses(text: str) -> list[HttpAddress]:
    found = []
    for url in filter(None, (each.strip() for each in text.split(","))):
        try:
            address = http_address(OPTION, url)
        except ConfigError as problem:
            raise CommandFailed(str(problem)) from None
        if address is None or address.scheme != "http":
            raise CommandFailed(f"{OPTION}: a URL begins with http://")
        found.append(address)
    if not found:
        raise CommandFailed(f"{OPTION}: give a URL")
    return found


def _target(arguments: argparse.Namespace) -> str:
    wanted: list[tuple[str, str]] = [("api", name) for name in arguments.api]
    for name in ("client_id", "topic", "principal"):
        value = getattr(arguments, name)
        if value is not None:
            wanted.append((name, value))
    wanted += [(name, "true") for name in ("errors", "values") if getattr(arguments, name)]
    return watch_target(wanted)


class Enough(Exception):
    """As many exchanges are shown as were wanted."""


class _Printer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._left: int | None = arguments.count
        self._is_json: bool = arguments.json
        self._is_verbose: bool = arguments.verbose or arguments.values
        self._is_terminal = sys.stdout.isatty() and not arguments.json

    async def tell(self, line: bytes, told: dict[str, Any]) -> None:
        """Raises Enough."""
        if "lost" in told:
            count = told["lost"]
            print(
                f"kafkacompat: {count} exchanges are not shown: they came faster than they are read",
                file=sys.stderr,
                flush=True,
            )
        else:
            self._exchange(line, told)

    def _exchange(self, line: bytes, told: dict[str, Any]) -> None:
        if self._is_json:
            print(line.decode(), flush=True)
        else:
            for each in lines_of(told, self._is_verbose):
                print(self._shown(each, told), flush=True)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise Enough

    def _shown(self, line: str, told: dict[str, Any]) -> str:
        if not self._is_terminal:
            return line
        colour = RED if told["errors"] else YELLOW if told["closed"] else GREY if line.startswith(" ") else ""
        if not self._is_verbose:
            line = fitted(line, os.get_terminal_size().columns)
        return f"{colour}{line}{PLAIN}" if colour else line


def lines_of(told: dict[str, Any], is_verbose: bool) -> list[str]:
    """An exchange in one line, with its reasons, request and response below. Control characters of clients are escaped."""
    at = datetime.fromtimestamp(told["at_ms"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    who = "" if told["client_id"] is None else f" from {told['client_id']!r}"
    topics = f" {', '.join(told['topics'])}" if told["topics"] else ""
    outcome = ", ".join(told["errors"]) or "ok"
    if told["closed"] is not None:
        outcome = "closed" if outcome == "ok" else f"{outcome}, closed"
    elif told["response"] is None and outcome == "ok":
        outcome = "no response is shown"
    lines = [
        f"{at} node {told['node']} {told['api']} v{told['version']}{topics}{who} "
        f"({told['principal']}, {told['client']}) - {outcome}"
    ]
    lines += [f"    {each}" for each in told["reasons"]]
    if told["closed"] is not None:
        lines.append(f"    closed: {told['closed']}")
    if is_verbose:
        lines += [f"    {name} {json.dumps(told[name])}" for name in ("request", "response")]
    return [_printable(each) for each in lines]


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def fitted(line: str, columns: int) -> str:
    return line if len(line) <= columns else line[: max(1, columns - 1)] + "…"


async def _watch(
    addresses: Sequence[HttpAddress], target: str, token: str, printer: _Printer, seconds: int | None
) -> None:
    try:
        with trio.move_on_after(seconds if seconds is not None else float("inf")):
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    begun = partial(_say, address.place)
                    nursery.start_soon(follow, address, target, token, begun, printer.tell)
    except BaseExceptionGroup as group:
        if group.subgroup((Enough, KeyboardInterrupt)) is None:
            raise _first(group) from None


async def _say(place: str) -> None:
    print(f"kafkacompat: watching {place}", file=sys.stderr, flush=True)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Several nodes may fail at once. What is no failure of theirs comes first."""
    others = group.split(CommandFailed)[1]
    error: BaseException = group if others is None else others
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
