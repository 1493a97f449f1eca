"""Each array of a request that names topics, groups or transactions is a level, or is known to be none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kafkacompat.exchanges.levels import _KIND_OF_ARRAY
from kafkacompat.wire.apis import APIS, request_class
from kafkacompat.wire.definition import snake_case

NAMING = {"topicName", "groupId", "transactionalId"}
NO_LEVELS = {
    "forgotten_topics_data",  # what a session drops
    "repartition_sink_topics",  # of a topology, as the next two
    "source_topics",
    "subtopologies",
    "subscribed_topic_names",  # of a member
}
"""Arrays that name something else than what the request is about."""


def arrays_in(struct: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in struct.get("fields", ()):
        if field["type"].startswith("[]"):
            yield field
        yield from arrays_in(field)


def test_arrays_that_name_something_are_levels() -> None:
    naming = set()
    for key, api in APIS.items():
        if api.latest < api.oldest:
            continue
        for field in arrays_in(json.loads(request_class(key).DEFINITION)):
            elements = (field, *field.get("fields", ()))
            if any(each.get("entityType") in NAMING for each in elements):
                naming.add(snake_case(field["name"]))
    assert naming - _KIND_OF_ARRAY.keys() == NO_LEVELS
