"""The same episodes, chosen by libFuzzer through atheris instead of by chance: what leads to new code is kept and changed further.

    python -m kafkacompat._tests.fuzz.guided --seconds 600 CORPUS_FOLDER

Each file of the folder is an episode: the bytes that its author chooses by. A finding is left as `crash-...` in the working folder;
`--replay FILE` runs one again.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .episode import Tally

REQUESTS_AN_EPISODE = 60
CHOSEN_BYTES_MAX = 8192
INSTRUMENTED = ("api", "coordinator", "group", "txn", "partition", "log", "records", "controller", "node")


def replay(data: bytes, tally: Tally) -> None:
    from .choices import ByteChoices
    from .episode import Episode

    Episode(0, ByteChoices(data), REQUESTS_AN_EPISODE, tally).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one episode again")
    parser.add_argument("corpus", nargs="?", type=Path, help="a folder, which grows")
    options = parser.parse_args()
    if options.replay is not None:
        from .episode import Tally

        replay(options.replay.read_bytes(), Tally())
        return 0
    search(options.seconds, options.corpus)
    return 0


def search(seconds: int, corpus: Path | None) -> None:
    """Does not come back: libFuzzer ends the process."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.exit("atheris is not installed: it has wheels for Linux on x86_64 only")
    with atheris.instrument_imports(include=[f"kafkacompat.{name}" for name in INSTRUMENTED]):
        from kafkacompat.api.registry import BROKER_APIS, CONTROLLER_APIS

        from .episode import Tally

        for table in (BROKER_APIS, CONTROLLER_APIS):
            for entry in table.entries:
                table.load(
                    entry.key
                )  # which comes with the first request otherwise, too late to be instrumented
    tally = Tally()
    arguments = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={CHOSEN_BYTES_MAX}",
        "-len_control=0",
        "-rss_limit_mb=3000",
        "-timeout=120",
    ]
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        arguments.append(str(corpus))
    atheris.Setup(arguments, lambda data: replay(data, tally))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
