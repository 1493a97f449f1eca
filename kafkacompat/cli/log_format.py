"""An entry of a node's log as a line of text, or as a JSON object on one line. Times are UTC."""

from __future__ import annotations

import json
import logging
import re
import time

TEXT_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
NODE = "node"
"""The attribute of an entry that another process wrote: the id of that node."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that would end a line or change a terminal, except tabs and line ends."""


class TextFormatter(logging.Formatter):
    """The format of Kafka's server.log: time, level, message and logger. A stack follows on further lines.

    Texts of clients are parts of messages. None of them can look like an entry of its own, because only the first line of
    an entry begins with a bracket.
    """

    def __init__(self, *, is_brief: bool = False) -> None:
        """`is_brief`: an entry with an attribute `brief` is that one line, for a terminal at which a person works."""
        super().__init__(TEXT_FORMAT)
        self.converter = time.gmtime
        self._is_brief = is_brief

    def formatMessage(self, record: logging.LogRecord) -> str:
        if self._is_brief:
            record.message = getattr(record, "brief", record.message)
        text = super().formatMessage(record)
        node_id = getattr(record, NODE, None)
        return text if node_id is None else f"{text[:-1]}, node {node_id})"

    def format(self, record: logging.LogRecord) -> str:
        text = CONTROLS.sub(lambda found: ascii(found[0])[1:-1], super().format(record))
        return text.replace("\n[", "\n\t[")


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
        node_id = getattr(record, NODE, self.node_id)
        if node_id is not None:
            entry["node"] = node_id
        exception = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        if exception:
            entry["exception"] = exception
        # Escaped, because a lone surrogate in a file name has no UTF-8 form.
        return json.dumps(entry)


def entry_of(line: str, node_id: int) -> logging.LogRecord:
    """Return the entry that a node's JsonFormatter wrote, or a warning for a line that is something else, for example
    what an interpreter prints that cannot go on."""
    from calendar import timegm  # imports datetime, which a node needs for nothing

    try:
        found = json.loads(line)
        level = getattr(logging, found["level"])
        record = logging.LogRecord(found["logger"], level, "", 0, found["message"], None, None)
        moment, milliseconds = found["time"].removesuffix("Z").split(".")
        record.created = timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%S")) + int(milliseconds) / 1000
        record.msecs = float(milliseconds)
        record.exc_text = found.get("exception")
    except (ValueError, TypeError, KeyError, AttributeError):
        record = logging.LogRecord(__name__, logging.WARNING, "", 0, line, None, None)
    setattr(record, NODE, node_id)
    return record
