"""One of Kafka's tools: python -m kafkacompat.container.tools kafka-topics [OPTIONS]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from kafkacompat.cli.output import failing_clearly
from kafkacompat.container.tools import cluster, console, groups, quorum, topics
from kafkacompat.container.tools.options import Options

TOOLS: dict[str, tuple[Callable[[], Options], Callable[[argparse.Namespace], int]]] = {
    "kafka-broker-api-versions": (cluster.api_versions_options, cluster.run_api_versions),
    "kafka-cluster": (cluster.cluster_options, cluster.run_cluster),
    "kafka-console-consumer": (console.consumer_options, console.run_consumer),
    "kafka-console-producer": (console.producer_options, console.run_producer),
    "kafka-consumer-groups": (groups.options, groups.run),
    "kafka-get-offsets": (cluster.get_offsets_options, cluster.run_get_offsets),
    "kafka-metadata-quorum": (quorum.options, quorum.run),
    "kafka-server-start": (cluster.server_options, cluster.run_server),
    "kafka-storage": (cluster.storage_options, cluster.run_storage),
    "kafka-topics": (topics.options, topics.run),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool that the first argument names, with or without `.sh`. The status is 1 if it fails or is called wrongly."""
    name, *words = list(sys.argv[1:] if argv is None else argv) or [""]
    tool = TOOLS.get(name.removesuffix(".sh"))
    if tool is None:
        print(f"there is no tool {name!r} here, only {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    options, run = tool
    return failing_clearly(run)(options().parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
