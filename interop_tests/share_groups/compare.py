"""Runs the scripted talks, each with groups of its own, and the random ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from interop_tests.consumer_groups.pair import Different
from interop_tests.share_groups.administration import ADMINISTRATION
from interop_tests.share_groups.asking import KnownAccident, ShareAsking, SharePair
from interop_tests.share_groups.in_flight import IN_FLIGHT
from interop_tests.share_groups.random_talk import EPISODE, RandomTalk
from interop_tests.share_groups.scenarios import SCENARIOS
from interop_tests.share_groups.session_talks import SESSIONS
from interop_tests.share_groups.sides import ShareSide

TALKS = (*SCENARIOS, *SESSIONS, *IN_FLIGHT, *ADMINISTRATION)
ATTEMPTS = 3
FIXED_TOPICS = {"t1": 1, "t3": 3}


def create_topics(sides: Sequence[ShareSide]) -> None:
    for side in sides:
        for name, partitions in FIXED_TOPICS.items():
            side.create_topic(name, partitions)


def talks_compared(sides: Sequence[ShareSide], only: str = "", is_whole_name: bool = False) -> SharePair:
    """All differences: a talk goes on after one, since Kafka's answers lead it. `only` is in the talk's name."""
    pair = SharePair(sides, stops_at_first=False)
    for talk in TALKS:
        name = talk.__name__
        if name == only if is_whole_name else only in name:
            until_equal(
                pair, lambda suffix, talk=talk, name=name: talk(ShareAsking(pair, name + suffix)), name
            )  # type: ignore[misc]
    return pair


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
            pair.accidental += seen
            break
        seen += pair.told
    pair.told = told + pair.told


def seed_compared(sides: Sequence[ShareSide], seed: int, requests: int) -> SharePair:
    """Takes episodes up to the first difference: after it the brokers hold different groups."""
    pair = SharePair(sides, stops_at_first=True)
    for episode in count():
        if pair.asked >= requests or pair.told:
            break
        length = min(EPISODE, requests - pair.asked)

        def talk(suffix: str, episode: int = episode, length: int = length) -> None:
            RandomTalk(pair, seed, episode, suffix).walk(length)

        until_equal(pair, talk, f"seed{seed}-{episode}")
    return pair
