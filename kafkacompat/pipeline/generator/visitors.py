"""Visits: the visitors, their page views and searches, and the requests of their browsers. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkacompat.pipeline.generator.chance import Chance, Zipf, exponential, geometric
from kafkacompat.pipeline.generator.periods import Period
from kafkacompat.pipeline.generator.profile import MAX_ACTIONS, MAX_GAP_MS, Profile

DEVICES: Final = ("mobile", "desktop", "tablet")
AGENTS: Final = {
    "mobile": "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Mobile Safari/537.36",
    "desktop": "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
    "tablet": "Mozilla/5.0 (iPad; CPU OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/604.1",
}
SITES: Final = ("", "https://search.example/", "https://news.example/", "https://social.example/")
ADJECTIVES: Final = ("red", "blue", "small", "large", "warm", "light", "old", "new", "cheap", "green")
NOUNS: Final = (
    "coat", "lamp", "chair", "boots", "kettle", "tent", "bicycle", "radio", "desk", "shelf",
    "scarf", "mirror", "clock", "rug", "vase", "stove", "sofa", "hat", "bag", "book",
)  # fmt: skip
SECTIONS: Final = ("", "about", "help", "offers", "new")


class Action(NamedTuple):
    """One page view or search."""

    time_ms: int
    page: str
    referrer: str
    query: str | None
    """None for a page view."""
    results: int


class Visit(NamedTuple):
    """One visitor's actions. The first is at the start of the visit."""

    user: int
    user_id: str
    device: str
    address: str
    actions: list[Action]


def page_name(rank: int) -> str:
    """Return the path of the page with this rank; 0 is the most popular."""
    return f"/{SECTIONS[rank]}" if rank < len(SECTIONS) else f"/product/{rank}"


def query_text(rank: int) -> str:
    """Return the search text with this rank; 0 is the most popular."""
    return f"{ADJECTIVES[rank // len(NOUNS) % len(ADJECTIVES)]} {NOUNS[rank % len(NOUNS)]}"


class Visitors:
    """Makes visits."""

    __slots__ = ("_chance", "_pages", "_profile", "_users", "_words")

    def __init__(self, chance: Chance, profile: Profile) -> None:
        self._chance = chance
        self._profile = profile
        self._users = Zipf(profile.users, profile.user_exponent)
        self._pages = Zipf(profile.pages, profile.page_exponent)
        self._words = Zipf(profile.words, profile.word_exponent)

    def visit(self, start_ms: float, burst: Period | None) -> Visit:
        """Return one visit that begins at start_ms."""
        chance, profile = self._chance, self._profile
        user = self._users.draw(chance)
        # A user's properties are computed from the user's number, so they are the same at each visit.
        device = DEVICES[(user * 7919) % 10 // 4]
        address = f"10.{user >> 16 & 255}.{user >> 8 & 255}.{user & 255}"
        count = min(geometric(chance, profile.actions), MAX_ACTIONS)
        time_ms = start_ms
        referrer = SITES[chance.randrange(len(SITES))]
        actions = []
        for number in range(count):
            if chance.random() < profile.search_share:
                rank = self._words.draw(chance)
                page = f"/search?q={query_text(rank).replace(' ', '+')}"
                action = Action(int(time_ms), page, referrer, query_text(rank), (rank * 37 + 5) % 120)
            else:
                talked_of = burst is not None and number == 0 and chance.random() < profile.burst_page_share
                rank = (
                    50 + burst.number % 100 if burst is not None and talked_of else self._pages.draw(chance)
                )
                page = page_name(rank)
                action = Action(int(time_ms), page, referrer, None, 0)
            actions.append(action)
            referrer = f"https://shop.example{page}"
            time_ms += min(exponential(chance, profile.action_gap_ms), MAX_GAP_MS)
        return Visit(user, f"user-{user:05d}", device, address, actions)

    def any_page(self) -> str:
        """Return a page for a bot: any page, popular or not."""
        return page_name(self._chance.randrange(self._profile.pages))
