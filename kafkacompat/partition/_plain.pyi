"""The compiled gait of plain_appends.py; not there where nothing compiled it."""

from collections.abc import Callable

from kafkacompat.partition.plain_appends import AppendKnown, FindCores, TakesBatches

def functions(
    partition: type,
    traffic: type,
    config: type,
    takes_batches: Callable[..., bool],
    codec_of_setting: dict[str, int],
    unpacked_most: int,
    /,
) -> tuple[FindCores, AppendKnown, TakesBatches]: ...
