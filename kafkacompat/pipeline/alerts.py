"""Alerts: which rule is broken for which service, for how long, and when that changes.

The rules are about the services that send samples, not about the jobs' own queries. console/core/queries_view judges
those.

A rule fires when it is broken in all consecutive windows of its duration. The alert is resolved by the first later
window that is complete and not broken. Each change is reported once, however often a window is evaluated. Pure: state
and windows in, state and changes out. The same windows in the same batches give the same changes. Independent of
Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafkacompat.pipeline.topics import ALERT_KEY

FIRING: Final = "firing"
RESOLVED: Final = "resolved"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
RANKS: Final = {None: 0, WARNING: 1, CRITICAL: 2}

SAMPLES_MIN: Final = 20
"""A window with fewer samples is ignored: it neither breaks a rule nor resolves an alert."""

SILENCE_MS: Final = 3600 * 1000
"""An alert is resolved if its service has no samples for this much event time."""

ID_CHARACTERS: Final = 32


@dataclass(frozen=True, slots=True)
class Rule:
    """A column of a window, the values from which it is a warning or critical, and the duration for which that must last."""

    name: str
    column: str
    warning: float
    critical: float
    for_s: int

    def severity_of(self, value: float) -> str | None:
        """Return the severity, or None if the rule is not broken."""
        if value >= self.critical:
            return CRITICAL
        return WARNING if value >= self.warning else None

    def threshold_of(self, severity: str) -> float:
        return self.critical if severity == CRITICAL else self.warning

    def windows_in_a_row(self, window_s: int) -> int:
        """Return the number of windows that cover the duration, at least one."""
        return max(1, -(-self.for_s // window_s))


RULES: Final = (
    Rule("error_rate", "error_rate", 0.05, 0.20, for_s=60),
    Rule("latency_p95", "latency_p95_ms", 500.0, 2000.0, for_s=120),
    Rule("cpu", "cpu_mean_percent", 85.0, 95.0, for_s=180),
)
COLUMNS: Final = ("service", "window_start_ms", "window_end_ms", "count", *(rule.column for rule in RULES))
"""The columns of a window that `Tracker.step` reads."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one rule for one window."""

    start_ms: int
    end_ms: int
    value: float
    severity: str | None


@dataclass(frozen=True, slots=True)
class Watched:
    """The state of one rule for one service."""

    windows: tuple[Judged, ...] = ()
    """The windows that the next change may depend on, in order."""
    severity: str | None = None
    """The severity of the alert while it fires."""
    since_ms: int = 0
    """The start of the first window in which the rule was broken."""
    settled_ms: int = -1
    """The start of the window that caused the last change. Windows that start no later cause no further change."""


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that fires, becomes critical or is resolved. The window is the one that caused the change."""

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
        """The record's key. A later change with the same key replaces an earlier one."""
        return "|".join(getattr(self, name) for name in ALERT_KEY)

    @property
    def event_id(self) -> str:
        """The id of the change, without the measured value: a repeated batch may estimate another value."""
        told = f"{self.key}|{self.state}|{self.severity}|{self.since_ms}"
        return hashlib.sha256(told.encode()).hexdigest()[:ID_CHARACTERS]


@dataclass(frozen=True, slots=True)
class State:
    """The state after some batches. It contains only rules that are broken, fire, or were resolved recently."""

    newest_ms: int = 0
    """The start of the newest window of any service."""
    watched: Mapping[tuple[str, str], Watched] = field(default_factory=dict)
    """By service and rule."""


@dataclass(frozen=True, slots=True)
class Tracker:
    """Applies rules to windows of one length. Events up to watermark_s late may change a window."""

    window_s: int
    watermark_s: int
    rules: tuple[Rule, ...] = RULES

    def step(self, state: State, rows: Iterable[Mapping[str, Any]]) -> tuple[State, list[Change]]:
        """Process the current windows of a batch, in any order. Each row has the COLUMNS."""
        by_service: dict[str, list[Mapping[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: (row["service"], row["window_start_ms"])):
            if row["count"] >= SAMPLES_MIN:
                by_service.setdefault(row["service"], []).append(row)
        newest_ms = max([state.newest_ms, *(one[-1]["window_start_ms"] for one in by_service.values())])
        rules = {rule.name: rule for rule in self.rules}
        touched = {(service, name) for service in by_service for name in rules}
        watched: dict[tuple[str, str], Watched] = {}
        changes: list[Change] = []
        # Rules that no longer exist are dropped from the state.
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
        """Return all changes that the windows cause, in order, and the windows that must be kept."""
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
        """Whether it fires, or has broken or deciding windows that later events may change or continue."""
        if one.severity is not None:
            return True
        last_ms = max([one.settled_ms, *(each.start_ms for each in one.windows if each.severity)])
        return last_ms >= 0 and newest_ms - last_ms <= (self.watermark_s + self.window_s) * 1000


def _with_windows(one: Watched, rule: Rule, rows: Iterable[Mapping[str, Any]]) -> Watched:
    """Merge rows into the windows. A window that has broken the rule stays broken, even if later events improve it."""
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
    """Return the first change: a complete normal window, or enough consecutive critical ones to make the alert critical."""
    over = one.windows[:-1]
    normal = next((each for each in over if each.severity is None and each.start_ms > one.settled_ms), None)
    worse = None
    if one.severity == WARNING:
        worse = next(_rows_of(one.windows, CRITICAL, needed), None)
    if worse is not None and (normal is None or worse[-1].start_ms < normal.start_ms):
        settled_ms = max(one.settled_ms, worse[-1].start_ms)
        after = replace(one, severity=CRITICAL, settled_ms=settled_ms)
        return after, _change(after, rule, FIRING, CRITICAL, worse[-1])
    if normal is None or one.severity is None:
        return None
    after = Watched(windows=_from(one.windows, normal.start_ms + 1), settled_ms=normal.start_ms)
    return after, _change(one, rule, RESOLVED, one.severity, normal)


def _rows_of(windows: Iterable[Judged], least: str, length: int) -> Iterator[list[Judged]]:
    """Yield runs of `length` consecutive windows that all have at least that severity."""
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
    """Return the change. The caller sets the service."""
    threshold = rule.threshold_of(severity)
    return Change(
        "", rule.name, state, severity, one.since_ms, window.start_ms, window.end_ms, window.value, threshold
    )


FORMAT: Final = 1


def encode(state: State) -> str:
    """Return the state as JSON text."""
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
    """Parse a state. Raises ValueError for a text that `encode` did not write."""
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
