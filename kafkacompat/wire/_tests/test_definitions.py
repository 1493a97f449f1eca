"""A message class brings its definition, so its codecs need no file."""

from __future__ import annotations

import subprocess
import sys

from kafkacompat.wire.apis import message_class
from kafkacompat.wire.codec import specification
from kafkacompat.wire.definition import definition_paths, load_definition
from kafkacompat.wire.generate import definition_text

AUDIT = """
import sys
from kafkacompat.wire import codec
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.partition_record import PartitionRecord
from kafkacompat.wire.messages.vote_response import VoteResponse

opened = []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
for kind in (FetchRequest, PartitionRecord, VoteResponse):
    for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1):
        codec.decode(kind, version, codec.encode(kind(), version))
print(opened)
"""


def test_codecs_open_no_file() -> None:
    done = subprocess.run([sys.executable, "-c", AUDIT], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_class_has_the_definition_of_its_file() -> None:
    for path in definition_paths():
        spec = load_definition(path)
        if spec is None:
            continue
        kind = message_class(spec.name)
        assert definition_text(path) == kind.DEFINITION
        assert specification(kind).root == spec.root
