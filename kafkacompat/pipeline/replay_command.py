"""`kafkacompat pipeline replay`: writes rejected records again to the topics from which they came."""

from __future__ import annotations

import argparse

from kafkacompat.pipeline.failure import PipelineFailed, require_extra
from kafkacompat.pipeline.options import add_bootstrap, add_isolation_level, address_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the topic and the reasons."""
    parser.add_argument("topic", help="the topic of a job's rejected records, such as logs.rejected")
    parser.add_argument(
        "--reason",
        action="append",
        default=[],
        metavar="TEXT",
        help="replay the records whose reason begins with this text; repeatable. Without it the reasons are shown",
    )
    add_isolation_level(parser)
    add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay the records, or count them by reason."""
    require_extra("spark", "pyspark", "confluent_kafka")
    from confluent_kafka import KafkaException

    from kafkacompat.pipeline.replay import RECORDS_MAX, ledger_of, reasons_in, replay

    address = address_of(arguments)
    topic = arguments.topic
    ledger_of(topic)
    if not arguments.reason:
        try:
            found = reasons_in(address, topic)
        except KafkaException as error:
            raise PipelineFailed(f"{topic} cannot be read: {error.args[0].str()}") from None
        for reason, count in found.most_common():
            print(f"{count:9,}  {reason}")
        print(f"{found.total():,} rejected records; nothing is replayed without --reason")
        return 0
    done = replay(address, topic, arguments.reason, arguments.isolation_level)
    for name, count in sorted(done.topics.items()):
        print(f"{count:,} records written to {name}")
    print(
        f"{done.topics.total():,} replayed, {done.before:,} had been replayed before, "
        f"{done.gone:,} are not in their topics any more"
    )
    if done.large:
        print(f"{done.large:,} are larger than their topics take now")
    if done.unreadable:
        print(f"{done.unreadable:,} have a header whose name is no UTF-8 text, and stay as they are")
    if done.left:
        print(f"up to {done.left:,} are left: a call replays at most {RECORDS_MAX:,}, so call again")
    return 0
