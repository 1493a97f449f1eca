"""The health check of the image: python -m kafkacompat.container.health

The node is healthy if its first listener answers ApiVersions. A listener with TLS need only accept a connection, since
the check has no certificate.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkacompat.cli.connection import Connection
from kafkacompat.cli.failure import CommandFailed
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import load_settings
from kafkacompat.container.folders import Folders

TIMEOUT_S = 4.0
ANY_ADDRESS = ("", "0.0.0.0", "::")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kafkacompat-health", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="the folder that stands for / (default %(default)s)"
    )
    return run(parser.parse_args(argv))


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    path = Folders(arguments.root).final_file
    if not path.exists():
        raise CommandFailed(f"there is no {path}: the node has not started")
    listener = load_settings(str(path), []).listeners()[0]
    host = "localhost" if listener.host in ANY_ADDRESS else listener.host
    if listener.has_tls:
        try:
            socket.create_connection((host, listener.port), TIMEOUT_S).close()
        except OSError as error:
            raise CommandFailed(f"no broker answers at {host}:{listener.port}: {error}") from error
    else:
        Connection(host, listener.port, TIMEOUT_S).close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
