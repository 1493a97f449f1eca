"""`kafkacompat console`: the web page over the pipeline's results and the cluster. A client of the broker like any other."""

from __future__ import annotations

import argparse
import sys

import trio

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_LISTEN = "127.0.0.1:8088"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap", "--bootstrap-server", default=DEFAULT_BOOTSTRAP, metavar="HOST:PORT", help="the broker"
    )
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where the page is served; port 0 takes a free one. There is no login: keep it on loopback",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name, besides localhost and addresses, under which browsers may ask for the page",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from kafkacompat.console.core.addresses import listen_address
        from kafkacompat.console.failure import ConsoleError
        from kafkacompat.console.run import run_console
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        print(
            f"kafkacompat: the console needs {missing}: pip install 'kafkacompat[console]'",
            file=sys.stderr,
        )
        return 1
    try:
        host, port = listen_address(arguments.listen)
    except ValueError as error:
        print(f"kafkacompat: --listen: {error}", file=sys.stderr)
        return 2

    def ready(address: str) -> None:
        print(f"console at {address}/", flush=True)

    try:
        trio.run(run_console, arguments.bootstrap, host, port, arguments.allow_host, ready)
    except ConsoleError as error:
        print(f"kafkacompat: {error}", file=sys.stderr)
        return 1
    return 0
