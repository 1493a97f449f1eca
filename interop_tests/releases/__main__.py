"""Writes kafkacompat/testing/releases.tsv: python -m interop_tests.releases FOLDER

FOLDER/RELEASE/lib has the jars of a release's broker, for example of 3.9.2. Maven's `dependency:copy-dependencies` puts them
there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from interop_tests.releases.table import Said, said_by, table_of

TABLE = Path(__file__).resolve().parents[2] / "kafkacompat" / "testing" / "releases.tsv"


def main() -> None:
    (folder,) = map(Path, sys.argv[1:])
    said: dict[str, Said] = {}
    for each in sorted(folder.iterdir(), key=lambda each: [int(part) for part in each.name.split(".")]):
        said[each.name.rpartition(".")[0]] = said_by(f"{each}/lib/*")
    TABLE.write_text(table_of(said))


main()
