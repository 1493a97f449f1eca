"""The health check of the image: python -m kafkacompat.container.health

The node is healthy if its first listener answers ApiVersions. A listener with TLS need only answer the start of a
handshake, since the check has no certificate.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import load_settings
from kafkacompat.client.blocking import Connection
from kafkacompat.container.folders import Folders
from kafkacompat.failure import CommandFailed

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
        check_tls(host, listener.port, TIMEOUT_S)
    else:
        Connection(host, listener.port, TIMEOUT_S).close()
    return 0


def check_tls(host: str, port: int, timeout_s: float) -> None:
    """Start a handshake. A refusal is an answer too: the node may ask for a certificate. Raises CommandFailed without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout_s) as plain:
            context.wrap_socket(plain).close()
    except OSError as error:
        # The end of the connection is an ssl.SSLError too.
        if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
            raise CommandFailed(f"no broker answers at {host_and_port(host, port)}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
