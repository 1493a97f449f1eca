"""Clean stops on disks that fail."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.ports import SyncFailed
from kafkacompat.server.shared_server import SharedServer


@pytest.mark.parametrize("refused", ["flush", "close", None])
def test_a_metadata_log_whose_disk_refuses_does_not_keep_the_others_from_their_close(
    refused: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def refusing(step: str) -> Any:
        def carry_out() -> None:
            if step == refused:
                raise SyncFailed(errno.EIO, "broken", "__cluster_metadata-0")
            done.append(step)

        return carry_out

    shared: Any = SimpleNamespace(
        driver=SimpleNamespace(flush_now=refusing("flush"), close=refusing("left the quorum")),
        store=SimpleNamespace(close=refusing("close")),
    )
    with caplog.at_level(logging.ERROR):
        assert SharedServer.stop(shared) is (refused is None)
    assert "left the quorum" in done
    assert ("cannot be closed cleanly" in caplog.text) is (refused is not None)
