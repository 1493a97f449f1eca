"""`kafkacompat watch`: the requests of nodes and what becomes of them, live. It reads /watch at their metrics listeners."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import trio

from kafkacompat.cli.output import failing_clearly
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import parse_int
from kafkacompat.security.http_fetch import HttpAddress, http_address

OPTION = "--metrics"
DEFAULT_ADDRESS = "http://127.0.0.1:9404"
CONNECT_S = 5.0
SILENT_S = 30.0
"""A node sends something every few seconds."""
LINE_BYTES_MAX = 4 << 20
TOKEN_CHARACTERS_MAX = 1_024
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
    addresses, token = _addresses(arguments.metrics), _token(arguments.token_file)
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


def _token(path: str) -> str:
    """What stands in the file is not quoted."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(TOKEN_CHARACTERS_MAX).strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no ASCII text"
        raise CommandFailed(f"cannot read the file {path} of --token-file: {reason}") from None
    if not token or not token.isprintable():
        raise CommandFailed(f"the file {path} of --token-file has no token")
    return token


def _target(arguments: argparse.Namespace) -> str:
    wanted: list[tuple[str, str]] = [("api", name) for name in arguments.api]
    for name in ("client_id", "topic", "principal"):
        value = getattr(arguments, name)
        if value is not None:
            wanted.append((name, value))
    wanted += [(name, "true") for name in ("errors", "values") if getattr(arguments, name)]
    return "/watch" + (f"?{urlencode(wanted)}" if wanted else "")


class Enough(Exception):
    """As many exchanges are shown as were wanted."""


class _Printer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._left: int | None = arguments.count
        self._is_json: bool = arguments.json
        self._is_verbose: bool = arguments.verbose or arguments.values
        self._is_terminal = sys.stdout.isatty() and not arguments.json

    def lost(self, count: int) -> None:
        print(
            f"kafkacompat: {count} exchanges are not shown: they came faster than they are read",
            file=sys.stderr,
            flush=True,
        )

    def exchange(self, line: bytes, told: dict[str, Any]) -> None:
        """Raises Enough."""
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
                    nursery.start_soon(_follow, address, target, token, printer)
    except BaseExceptionGroup as group:
        if group.subgroup((Enough, KeyboardInterrupt)) is None:
            raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Several nodes may fail at once. What is no failure of theirs comes first."""
    others = group.split(CommandFailed)[1]
    error: BaseException = group if others is None else others
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _follow(address: HttpAddress, target: str, token: str, printer: _Printer) -> None:
    """Show what a node tells. Raises Enough, CommandFailed."""
    try:
        with trio.fail_after(CONNECT_S):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, trio.TooSlowError) as problem:
        raise CommandFailed(f"{address.place} does not answer: {problem or 'timed out'}") from None
    async with stream:
        request = (
            f"GET {target} HTTP/1.0\r\nHost: {address.host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        lines = _Lines(stream, address.place)
        try:
            await stream.send_all(request)
            status = await lines.next()
            while (await lines.next()).strip():
                pass
            if b" 200 " not in status:
                text = (await lines.next()).decode("utf-8", "replace").strip()
                if b" 404 " in status:
                    text = "nobody may watch it (watch.token.file is not set)"
                raise CommandFailed(f"{address.place}: {text}")
            print(f"kafkacompat: watching {address.place}", file=sys.stderr, flush=True)
            while True:
                line = (await lines.next()).strip()
                told = json.loads(line) if line else {}
                if "lost" in told:
                    printer.lost(told["lost"])
                elif told:
                    printer.exchange(line, told)
        except (trio.BrokenResourceError, ValueError):
            raise CommandFailed(f"{address.place}: it tells no exchanges any more") from None


class _Lines:
    def __init__(self, stream: trio.SocketStream, place: str) -> None:
        self._stream = stream
        self._place = place
        self._received = bytearray()

    async def next(self) -> bytes:
        """With its end. Raises CommandFailed."""
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > LINE_BYTES_MAX:
                raise CommandFailed(f"{self._place}: a line is too long")
            with trio.move_on_after(SILENT_S) as silence:
                data = await self._stream.receive_some(64 << 10)
            if silence.cancelled_caught:
                raise CommandFailed(f"{self._place} has told nothing for {SILENT_S:g} s")
            if not data:
                raise CommandFailed(f"{self._place} has closed the connection")
            self._received += data
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line
