"""The process of one of several brokers: python -m kafkacompat.cli.broker_process SETTINGS LEVEL [LOGGER=LEVEL...]

`kafkacompat start --brokers` starts it and reads its output: on standard output the port of its metrics and that it
serves, on standard error its log as JSON lines. It stops when its standard input ends, which happens however the process
that started it ends.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from kafkacompat.cli.log_options import JSON, LogOptions
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.settings import METRICS_LINE, SERVES_LINE, load_settings
from kafkacompat.cli.start import node_logging, print_line, serve
from kafkacompat.server.process_wide import StopSignals, collect_seldom

BETWEEN_SIGNALS_S = 0.2
"""Two signals that come at the same time are one."""


@failing_clearly
def run(words: Sequence[str]) -> int:
    settings, level, *levels = words
    collect_seldom()
    signals = StopSignals()
    signals.listen()
    threading.Thread(target=_stop_with_the_starter, name="starter", daemon=True).start()
    with node_logging(level, LogOptions(format=JSON)) as know:
        for name, _, own in (each.partition("=") for each in levels):
            logging.getLogger(name).setLevel(own)
        config = load_settings(settings, [])
        know(config.node_id)
        return serve(
            config,
            signals,
            lambda line: print_line(f"{SERVES_LINE}{line}"),
            format_if_empty=False,
            tell_metrics=lambda port: print_line(f"{METRICS_LINE}{port}"),
        )


def _stop_with_the_starter() -> None:
    """All brokers stop then, so none waits for a controller: that is what a second signal says."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(BETWEEN_SIGNALS_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
