"""What the log says of share-partitions that cannot be loaded: one of each error, and then how many more, once a minute.

Whoever may read a group may ask for all partitions of a node, as often as it likes and for groups that do not exist.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.api.share_services import ShareError, SharePartitionKey
    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Timers
    from kafkacompat.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

SAID_EVERY_MS = 60_000
NAME_MAX = 64
TEXT_MAX = 300


class LoadFailures:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._more: dict[ErrorCode, int] = {}
        """How many no line has told yet, by error. An error is forgotten after SAID_EVERY_MS without any."""

    def failed(self, key: SharePartitionKey, name: TopicPartition, error: ShareError) -> None:
        code = error.code
        if code in self._more:
            self._more[code] += 1
            return
        logger.warning(
            "the state of %s for share group %r cannot be loaded: %s: %s",
            name, key.group_id[:NAME_MAX], code.name, (error.message or "")[:TEXT_MAX],
        )  # fmt: skip
        self._wait(code)

    def _wait(self, code: ErrorCode) -> None:
        self._more[code] = 0
        self._timers.call_after(SAID_EVERY_MS, partial(self._due, code))

    def _due(self, code: ErrorCode) -> None:
        more = self._more.pop(code)
        if more:
            logger.warning(
                "the states of share groups could not be loaded %d more times: %s", more, code.name
            )
            self._wait(code)
