"""`kafkacompat console`: the web page that shows the pipeline's results and the cluster. It is an ordinary client of
the broker."""

from __future__ import annotations

import argparse
import sys

import trio

from kafkacompat.cli.cluster_address import add_bootstrap, address_of
from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.options import add_registry, registry_of

DEFAULT_LISTEN = "127.0.0.1:8088"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where the console listens; port 0 takes a free one. Beyond loopback it asks for a token, and prints it",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="ask for the token in this file, on loopback too (default: a random one beyond loopback, none on loopback)",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL[,URL...]",
        help="metrics listeners of the nodes (metrics.listener.port), which alone tell how many records of share groups are in "
        "flight: http://HOST:PORT",
    )
    parser.add_argument(
        "--watch-token-file",
        metavar="FILE",
        help="show the requests of the nodes of --metrics, live: the file that watch.token.file of the nodes names. Only on "
        "loopback, and the console then asks for a token there too",
    )
    add_registry(parser)
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name, besides localhost and IP addresses, under which browsers may open the console",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from kafkacompat.console.core.addresses import listen_address
        from kafkacompat.console.failure import ConsoleError
        from kafkacompat.console.run import run_console, token_of_file
        from kafkacompat.console.share_numbers import metrics_addresses
        from kafkacompat.console.watching import watched_nodes
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

    def ready(address: str, made_token: str | None) -> None:
        print(f"console at {address}/", flush=True)
        if made_token is not None:
            print(f"its token is {made_token}", flush=True)

    try:
        token = token_of_file(arguments.token_file) if arguments.token_file is not None else None
        registry = registry_of(arguments)
        if registry is not None:
            require_extra("registry", "fastavro", "grpc_tools")
        metrics = metrics_addresses(arguments.metrics) if arguments.metrics is not None else ()
        watch_file = arguments.watch_token_file
        watched = watched_nodes(metrics, watch_file) if watch_file is not None else None
        trio.run(
            run_console,
            address_of(arguments),
            host,
            port,
            arguments.allow_host,
            ready,
            token,
            metrics,
            registry,
            watched,
        )
    except (ConsoleError, PipelineFailed) as error:
        print(f"kafkacompat: {error}", file=sys.stderr)
        return 1
    return 0
