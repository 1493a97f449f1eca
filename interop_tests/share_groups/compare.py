"""The area of share groups: the scripted talks, each with groups of its own, and the random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from interop_tests.share_groups.administration import ADMINISTRATION
from interop_tests.share_groups.asking import KnownAccident, ShareAsking, SharePair
from interop_tests.share_groups.in_flight import IN_FLIGHT
from interop_tests.share_groups.random_settings import settings_of
from interop_tests.share_groups.random_talk import EPISODE, RandomTalk
from interop_tests.share_groups.scenarios import SCENARIOS
from interop_tests.share_groups.session_talks import SESSIONS
from interop_tests.share_groups.sides import SHARE_SETTINGS, ShareSide
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.side_by_side.comparison import Different

TALKS = (*SCENARIOS, *SESSIONS, *IN_FLIGHT, *ADMINISTRATION)
ATTEMPTS = 3
NOT_AGAIN = "differed once, and not when the same talk was held again"
FIXED_TOPICS = {"t1": 1, "t3": 3}


@contextmanager
def started_with(
    folder: Path, settings: Mapping[str, str], kinds: Sequence[str] = BOTH
) -> Iterator[list[ShareSide]]:
    """With the topics that are always there."""
    with started(ShareSide, folder, kinds, SHARE_SETTINGS | settings) as sides:
        for side in sides:
            for name, partitions in FIXED_TOPICS.items():
                side.create_topic(name, partitions)
        yield sides


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[ShareSide]]:
    with started_with(folder, {} if seed is None else settings_of(seed), kinds) as sides:
        yield sides


def until_equal(pair: SharePair, talk: Callable[[str], None], name: str) -> None:
    """A talk, and if it shows a difference then again, in a new group and with the same words.

    On a busy machine a share-partition may be loaded too late for an answer. What differs in each talk is no accident.
    """
    told, seen = pair.told, list[str]()
    for attempt in range(ATTEMPTS):
        pair.told = []
        pair.stem = name if attempt == 0 else f"{name}-{attempt}"
        pair.place = pair.stem
        try:
            talk(pair.stem.removeprefix(name))
        except KnownAccident:
            pass
        except Different as difference:
            pair.told = [str(difference)]
        except (AssertionError, TypeError, LookupError) as error:
            pair.told.append(f"{pair.place}: {error!r}")
        finally:
            pair.end_talk()
        if not pair.told:
            pair.excused += [(NOT_AGAIN, each) for each in seen]
            break
        seen += pair.told
    pair.told = told + pair.told


def of_own_group(talk: Callable[[ShareAsking], object]) -> Callable[[SharePair], None]:
    name = talk.__name__

    def held(suffix: str, pair: SharePair) -> None:
        talk(ShareAsking(pair, name + suffix))

    return lambda pair: until_equal(pair, lambda suffix: held(suffix, pair), name)


def random_talk(pair: SharePair, seed: int, requests: int) -> None:
    """Takes episodes up to the first difference: after it the brokers hold different groups."""
    for episode in count():
        if pair.asked >= requests or pair.told:
            break
        length = min(EPISODE, requests - pair.asked)

        def talk(suffix: str, episode: int = episode, length: int = length) -> Any:
            RandomTalk(pair, seed, episode, suffix).walk(length)

        until_equal(pair, talk, f"seed{seed}-{episode}")


AREA = Area(
    "share-groups",
    start,
    random_talk,
    {talk.__name__: of_own_group(talk) for talk in TALKS},
    make=SharePair,
    is_bound_to_seed=True,
)
