"""Alerts: which rule is broken for which service, for how long, and when that changes.

A rule fires when it is broken in all windows of its duration, one after the other. It is resolved by the first later window that is
over and not broken. Each change is told once, however often a window is looked at. Pure: state and windows in, state and changes
out; the same windows in the same batches give the same changes. Knows no Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

FIRING: Final = "firing"
RESOLVED: Final = "resolved"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
RANKS: Final = {None: 0, WARNING: 1, CRITICAL: 2}

SAMPLES_MIN: Final = 20
"""A window with fewer samples says nothing: it neither breaks a rule nor resolves an alert."""

SILENCE_MS: Final = 3600 * 1000
"""An alert of a service that is silent for so long in event time is resolved: nobody measures it any more."""

ID_CHARACTERS: Final = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """The column of a window that is looked at, from which value on it is a warning or critical, and for how long it must be."""

    name: str
    column: str
    warning: float
    critical: float
    for_s: int

    def severity_of(self, value: float) -> str | None:
        """None where the rule is kept."""
        if value >= self.critical:
            return CRITICAL
        return WARNING if value >= self.warning else None

    def threshold_of(self, severity: str) -> float:
        return self.critical if severity == CRITICAL else self.warning

    def windows_in_a_row(self, window_s: int) -> int:
        """How many windows cover the duration; one at least."""
        return max(1, -(-self.for_s // window_s))


RULES: Final = (
    Rule("error_rate", "error_rate", 0.05, 0.20, for_s=60),
    Rule("latency_p95", "latency_p95_ms", 500.0, 2000.0, for_s=120),
    Rule("cpu", "cpu_mean_percent", 85.0, 95.0, for_s=180),
)
COLUMNS: Final = ("service", "window_start_ms", "window_end_ms", "count", *(rule.column for rule in RULES))
"""What `Tracker.step` reads of a window."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One window by one rule."""

    start_ms: int
    end_ms: int
    value: float
    severity: str | None


@dataclass(frozen=True, slots=True)
class Watched:
    """One rule of one service."""

    windows: tuple[Judged, ...] = ()
    """Those that the next change may depend on, in order."""
    severity: str | None = None
    """Of the alert while it fires."""
    since_ms: int = 0
    """Where the first window begins in which the rule was broken."""
    settled_ms: int = -1
    """Where the window begins that made the last change: what begins no later makes no other."""


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that fires, gets critical or is resolved; the window is the one that made the change."""

    service: str
    rule: str
    state: str
    severity: str
    since_ms: int
    window_start_ms: int
    window_end_ms: int
    value: float
    threshold: float

    @property
    def key(self) -> str:
        """By which the later change replaces the earlier."""
        return f"{self.service}|{self.rule}"

    @property
    def event_id(self) -> str:
        """Of the change, not of what was measured: a batch that is run again may estimate another value."""
        told = f"{self.key}|{self.state}|{self.severity}|{self.since_ms}"
        return hashlib.sha256(told.encode()).hexdigest()[:ID_CHARACTERS]


@dataclass(frozen=True, slots=True)
class State:
    """What is known after some batches. Only what is broken, fires or was resolved lately is in it."""

    newest_ms: int = 0
    """Where the newest window of any service begins."""
    watched: Mapping[tuple[str, str], Watched] = field(default_factory=dict)
    """By service and rule."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """Rules over windows of one length. Windows are changed by events that come up to watermark_s late."""

    window_s: int
    watermark_s: int
    rules: tuple[Rule, ...] = RULES

    def step(self, state: State, rows: Iterable[Mapping[str, Any]]) -> tuple[State, list[Change]]:
        """The windows of a batch, as they are now, in any order; each is a row with COLUMNS."""
        by_service: dict[str, list[Mapping[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: (row["service"], row["window_start_ms"])):
            if row["count"] >= SAMPLES_MIN:
                by_service.setdefault(row["service"], []).append(row)
        newest_ms = max([state.newest_ms, *(one[-1]["window_start_ms"] for one in by_service.values())])
        rules = {rule.name: rule for rule in self.rules}
        touched = {(service, name) for service in by_service for name in rules}
        watched: dict[tuple[str, str], Watched] = {}
        changes: list[Change] = []
        # One that is no rule any more is forgotten.
        for service, name in sorted(touched | {key for key in state.watched if key[1] in rules}):
            rule = rules[name]
            one = _with_windows(
                state.watched.get((service, name), Watched()), rule, by_service.get(service, ())
            )
            after, made = self._settle(one, rule, newest_ms)
            changes += [replace(change, service=service) for change in made]
            if self._is_needed(after, newest_ms):
                watched[service, name] = after
        return State(newest_ms, watched), changes

    def _settle(self, one: Watched, rule: Rule, newest_ms: int) -> tuple[Watched, list[Change]]:
        """All changes that the windows make, in their order; what is kept of the windows."""
        needed = rule.windows_in_a_row(self.window_s)
        changes = []
        while (found := _next_change(one, rule, needed)) is not None:
            one, change = found
            changes.append(change)
        if one.severity is not None and one.windows[-1].start_ms < newest_ms - SILENCE_MS:
            changes.append(_change(one, rule, RESOLVED, one.severity, one.windows[-1]))
            one = Watched(settled_ms=one.windows[-1].start_ms)
        if one.windows:
            from_ms = one.windows[-1].start_ms - needed * self.window_s * 1000
            one = replace(one, windows=tuple(each for each in one.windows if each.start_ms > from_ms))
        return one, changes

    def _is_needed(self, one: Watched, newest_ms: int) -> bool:
        """It fires, or has windows that are broken or made a change, and events may still change those or follow them."""
        if one.severity is not None:
            return True
        last_ms = max([one.settled_ms, *(each.start_ms for each in one.windows if each.severity)])
        return last_ms >= 0 and newest_ms - last_ms <= (self.watermark_s + self.window_s) * 1000


def _with_windows(one: Watched, rule: Rule, rows: Iterable[Mapping[str, Any]]) -> Watched:
    """A window that has broken the rule has broken it, also when the rest of it is better."""
    known = {each.start_ms: each for each in one.windows}
    for row in rows:
        value = float(row[rule.column])
        now = Judged(row["window_start_ms"], row["window_end_ms"], value, rule.severity_of(value))
        before = known.get(now.start_ms)
        if before is None and now.start_ms <= one.settled_ms:
            continue
        if before is None or RANKS[now.severity] >= RANKS[before.severity]:
            known[now.start_ms] = now
    return replace(one, windows=tuple(known[start] for start in sorted(known)))


def _next_change(one: Watched, rule: Rule, needed: int) -> tuple[Watched, Change] | None:
    if one.severity is None:
        return _fired(one, rule, needed)
    return _changed_while_firing(one, rule, needed)


def _fired(one: Watched, rule: Rule, needed: int) -> tuple[Watched, Change] | None:
    for row in _rows_of(one.windows, WARNING, needed):
        severity = min((each.severity for each in row), key=RANKS.__getitem__) or WARNING
        after = replace(
            one,
            windows=_from(one.windows, row[0].start_ms),
            severity=severity,
            since_ms=row[0].start_ms,
            settled_ms=row[-1].start_ms,
        )
        return after, _change(after, rule, FIRING, severity, row[-1])
    return None


def _changed_while_firing(one: Watched, rule: Rule, needed: int) -> tuple[Watched, Change] | None:
    """Whichever comes first: a good window that is over, or as many critical ones in a row as make the alert critical."""
    over = one.windows[:-1]
    good = next((each for each in over if each.severity is None and each.start_ms > one.settled_ms), None)
    worse = None
    if one.severity == WARNING:
        worse = next(_rows_of(one.windows, CRITICAL, needed), None)
    if worse is not None and (good is None or worse[-1].start_ms < good.start_ms):
        settled_ms = max(one.settled_ms, worse[-1].start_ms)
        after = replace(one, severity=CRITICAL, settled_ms=settled_ms)
        return after, _change(after, rule, FIRING, CRITICAL, worse[-1])
    if good is None or one.severity is None:
        return None
    after = Watched(windows=_from(one.windows, good.start_ms + 1), settled_ms=good.start_ms)
    return after, _change(one, rule, RESOLVED, one.severity, good)


def _rows_of(windows: Iterable[Judged], least: str, length: int) -> Iterator[list[Judged]]:
    """So many windows, each beginning where the one before ends, that are all of that severity at least."""
    row: list[Judged] = []
    for each in windows:
        if RANKS[each.severity] < RANKS[least]:
            row = []
            continue
        row = [*row, each] if row and row[-1].end_ms == each.start_ms else [each]
        if len(row) >= length:
            yield row[-length:]


def _from(windows: Iterable[Judged], start_ms: int) -> tuple[Judged, ...]:
    return tuple(each for each in windows if each.start_ms >= start_ms)


def _change(one: Watched, rule: Rule, state: str, severity: str, window: Judged) -> Change:
    """Of a service that the caller names."""
    threshold = rule.threshold_of(severity)
    return Change(
        "", rule.name, state, severity, one.since_ms, window.start_ms, window.end_ms, window.value, threshold
    )


FORMAT: Final = 1


def encode(state: State) -> str:
    """JSON text."""
    watched = [
        [
            service,
            rule,
            one.severity,
            one.since_ms,
            one.settled_ms,
            [[each.start_ms, each.end_ms, each.value, each.severity] for each in one.windows],
        ]
        for (service, rule), one in sorted(state.watched.items())
    ]
    return json.dumps({"format": FORMAT, "newest_ms": state.newest_ms, "watched": watched}) + "\n"


def decode(text: str) -> State:
    """Raises ValueError for what `encode` has not written."""
    try:
        told: Any = json.loads(text)
        if told["format"] != FORMAT:
            raise ValueError(f"the state of alerts has format {told['format']}, known is {FORMAT}")
        watched = {
            (str(service), str(rule)): Watched(
                tuple(Judged(*window) for window in windows), severity, int(since_ms), int(settled_ms)
            )
            for service, rule, severity, since_ms, settled_ms, windows in told["watched"]
        }
        return State(int(told["newest_ms"]), watched)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the state of alerts cannot be read: {error!r}") from None
