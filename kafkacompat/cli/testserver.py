"""`kafkacompat testserver`: a Kafka for the tests of programs in any language, with a control API over HTTP on loopback.

No other command imports the control API, and no setting switches it on.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

TOKEN_BYTES = 32
PARENT_LOOK_S = 1.0
"""How often the command looks whether its parent lives. The end of standard input is noticed at once."""
NODES_MAX = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=1,
        metavar="N",
        help=f"how many nodes, at most {NODES_MAX} (default: 1)",
    )
    parser.add_argument(
        "--version",
        metavar="RELEASE",
        help="the release of Apache Kafka that clients see, from 2.1 to 4.4, such as 3.9",
    )
    parser.add_argument(
        "--flavor",
        metavar="NAME",
        help="the other Kafka whose refusals it has: redpanda, event-hubs or msk-express",
    )
    parser.add_argument(
        "--settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker setting by Kafka's name; may be given several times",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        metavar="PORT",
        help="the port of the control API (default: a free one)",
    )
    parser.add_argument(
        "--info-file",
        metavar="FILE",
        help="write the addresses and the token to this file, which only its owner can read, and not to standard output",
    )


def _nodes(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= NODES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {NODES_MAX}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from kafkacompat.config import ConfigError
    from kafkacompat.testing.settings import UnknownSetting

    settings: dict[str, str] = {}
    for pair in arguments.settings:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            print(f"kafkacompat: --settings: {pair!r} is not NAME=VALUE", file=sys.stderr)
            return 2
        settings[name] = value
    try:
        with _signals() as signals:
            _serve(arguments, settings, signals)
    except (ConfigError, UnknownSetting, ValueError, OSError) as error:
        print(f"kafkacompat: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(arguments: argparse.Namespace, settings: Mapping[str, str], signals: int) -> None:
    """Until a signal comes, standard input ends or the parent does."""
    parent = os.getppid()
    from kafkacompat.server.process_wide import collect_seldom, while_importing

    collect_seldom()
    with while_importing():
        from kafkacompat.testing.control_server import ControlServer
        from kafkacompat.testing.controlled import Control
        from kafkacompat.testing.kafka import Kafka

    kafka = Kafka(settings, nodes=arguments.nodes, version=arguments.version, flavor=arguments.flavor)
    kafka.record_requests()
    token = secrets.token_urlsafe(TOKEN_BYTES)
    control = Control(kafka)
    server = ControlServer(control, token, arguments.port)
    try:
        kafka.start()
        server.start()
        info = {"bootstrap_servers": kafka.bootstrap_servers, "control": server.address, "token": token}
        with _told(json.dumps(info), arguments.info_file):
            _wait(signals, parent)
        server.stop()
    finally:
        control.stop()
        kafka.stop()


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that can be read when a signal has asked for the end."""
    asked, ask = os.pipe()
    os.set_blocking(ask, False)

    def end(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(ask, b".")

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(asked)
        os.close(ask)


def _wait(signals: int, parent: int) -> None:
    watched = [signals, *([0] if _ends_with_parent() else [])]
    while os.getppid() == parent:
        ready, _, _ = select.select(watched, [], [], PARENT_LOOK_S)
        if signals in ready or (0 in ready and not os.read(0, 4096)):
            return


def _ends_with_parent() -> bool:
    """Whether standard input is a pipe or a socket. A terminal must not be read in the background, and a file says nothing."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _told(line: str, path: str | None) -> Iterator[None]:
    """Print the line, or keep it in a file meanwhile."""
    if path is None:
        print(line, flush=True)
        yield
        return
    folder, name = os.path.split(os.path.abspath(path))
    made = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(line + "\n")
        own = os.fstat(file.fileno())
    os.replace(made, path)  # a reader finds the whole line, or no file
    try:
        yield
    finally:
        with suppress(OSError):
            if os.path.samestat(own, os.lstat(path)):
                os.unlink(path)
