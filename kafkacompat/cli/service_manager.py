"""Tells the service manager that the node serves, by systemd's sd_notify protocol: one datagram to the socket in
NOTIFY_SOCKET. Without that variable nothing happens."""

from __future__ import annotations

import logging
import os
import socket

SOCKET_VARIABLE = "NOTIFY_SOCKET"

logger = logging.getLogger(__name__)


def notify_ready(status: str) -> None:
    """Send READY with a line that `systemctl status` shows. If that fails, the node serves all the same."""
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return
    # A leading @ stands for the zero byte of an abstract socket, which has no file.
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as door:
            door.connect(address)
            door.send(f"READY=1\nSTATUS={status}\n".encode())
    except OSError as error:
        logger.warning("the service manager at %s cannot be told that the node serves: %s", path, error)
