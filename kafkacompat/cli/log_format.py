"""An entry of a node's log as a line of text, or as a JSON object on one line. Times are UTC."""

from __future__ import annotations

import json
import logging
import time

TEXT_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


def text_formatter() -> logging.Formatter:
    """Return the format of Kafka's server.log: time, level, message and logger. A stack follows on further lines."""
    formatter = logging.Formatter(TEXT_FORMAT)
    formatter.converter = time.gmtime
    return formatter


class JsonFormatter(logging.Formatter):
    """One JSON object per entry: time, level, logger, message, node and, after an error, exception."""

    def __init__(self) -> None:
        super().__init__()
        self.node_id: int | None = None
        """Unknown until the settings are read."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.node_id is not None:
            entry["node"] = self.node_id
        exception = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        if exception:
            entry["exception"] = exception
        # Escaped, because a lone surrogate in a file name has no UTF-8 form.
        return json.dumps(entry)
