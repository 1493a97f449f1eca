"""The compiled gait of plain_appends.py; not there where nothing compiled it."""

from collections.abc import Callable

from kafkacompat.partition.plain_appends import AppendKnown, FindCores

def functions(
    partition: type, traffic: type, takes_batches: Callable[..., bool], /
) -> tuple[FindCores, AppendKnown]: ...
