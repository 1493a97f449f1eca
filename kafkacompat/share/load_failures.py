"""What the log says of share-partitions that cannot be loaded: one of each error, and then how many more, once a minute.

Whoever may read a group may ask for all partitions of a node, as often as it likes and for groups that do not exist.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.api.share_services import ShareError, SharePartitionKey
    from kafkacompat.ids import TopicPartition
    from kafkacompat.tasks import Tasks
    from kafkacompat.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

SAID_EVERY_MS = 60_000
NAME_MAX = 64
TEXT_MAX = 300


class LoadFailures:
    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
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
        self._more[code] = 0
        self._tasks.start("telling of more loads that failed", self._tell_more(code))

    async def _tell_more(self, code: ErrorCode) -> None:
        while True:
            await self._tasks.sleep(SAID_EVERY_MS)
            more, self._more[code] = self._more[code], 0
            if not more:
                del self._more[code]
                return
            logger.warning(
                "the states of share groups could not be loaded %d more times: %s", more, code.name
            )
