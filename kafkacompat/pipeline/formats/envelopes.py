"""Envelopes: what a container runtime or syslog writes around a line. Any format may be in them, also another envelope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkacompat.pipeline.formats.patterns import MALFORMED_LINE, START, Step, Time, refusals_of, with_rest

ENVELOPES_MAX: Final = 3
"""Maximum number of envelopes in each other."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """`pattern` has a group for each of `parts`, the names under which they are kept in `extra`. "" is not kept.

    The part `time` is the time of the line, if the line has none. The last group is the line. `reached` and `refusals`
    are as in LineFormat. pattern "": a JSON object with the fields `parts`, of which the last one is the line.
    """

    name: str
    pattern: str
    parts: tuple[str, ...]
    has_time: bool
    reached: str
    refusals: tuple[str, ...]

    @property
    def reached_and_rest(self) -> str:
        """`reached` with one more group for the text from which the line is refused."""
        return with_rest(self.reached)

    @property
    def kept(self) -> tuple[str, ...]:
        """The names in `extra`."""
        return tuple(part for part in self.parts if part not in ("", TIME, LINE))


TIME: Final = "time"
LINE: Final = "line"
_ISO: Final = Time.ISO.value
_WORD: Final = r"\S++"
_BODY: Final = r"([\s\S]*+)$"


def _envelope(name: str, pattern: str, parts: tuple[str, ...], steps: list[Step], has_time: bool) -> Envelope:
    reached, refusals = refusals_of(steps, f"{MALFORMED_LINE}: {name}")
    last = f"{MALFORMED_LINE}: {name}: expected the line after field {len(steps)} ({steps[-1].name})"
    return Envelope(name, START + pattern + _BODY, (*parts, LINE), has_time, reached, (*refusals[:-1], last))


def _cri() -> Envelope:
    tag = r"F(?::[A-Z]++)*+"
    steps = [
        Step("", "time", _ISO, "a time such as 2026-09-21T14:13:20.250+00:00", _ISO),
        Step(" ", "stream", "", "stdout or stderr", "(?:stdout|stderr)"),
        Step(" ", "tag", "", "F, because P is a part of a line", tag),
    ]
    return _envelope("cri", rf"({_ISO}) (stdout|stderr) {tag} ", (TIME, "stream"), steps, True)


def _syslog3164() -> Envelope:
    # rsyslog and systemd write an RFC 3339 time where RFC 3164 has one without a year. Files lack the priority.
    time = rf"(?:<[0-9]{{1,3}}>)?+(?:[A-Z][a-z]{{2}} [ 0-9][0-9] [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}|{_ISO})"
    host, tag, procid = r"(?:[^\s:]|:(?!\x20))++", r"[^\s:\[]++", r"[^\]\s]*+"
    steps = [
        Step("", "time", "", "a time such as Sep 21 14:13:20", time),
        Step(
            " ",
            "tag",
            "",
            "a host name, the name of a program, and a colon",
            rf"(?:{host} )?+{tag}(?:\[{procid}\])?+:",
        ),
    ]
    parts = ("syslog_hostname", "syslog_app_name", "syslog_procid")
    pattern = rf"{time} (?:({host}) )?+({tag})(?:\[({procid})\])?+: ?+"
    return _envelope("syslog3164", pattern, parts, steps, False)


def _syslog5424() -> Envelope:
    element = r'\[[^\s=\]"]++(?: [^\s=\]"]++="(?:[^"\\]++|\\[\s\S])*+")*+\]'
    structured = rf"(?:-|(?:{element})++)"
    priority, time = r"<[0-9]{1,3}>[0-9]{1,2}", rf"(?:-(?=\s)|{_ISO})"
    words = [("hostname", 255), ("app_name", 48), ("procid", 128), ("msgid", 32)]
    steps = [
        Step("", "priority", "", "<NUMBER>1", priority),
        Step(" ", "time", "", "a time such as 2026-09-21T14:13:20.250+00:00, or -", time),
        *(
            Step(" ", name, "", f"a word of at most {most} characters", rf"\S{{1,{most}}}+(?=\s)")
            for name, most in words
        ),
        Step(" ", "structured_data", "", '- or [ID NAME="VALUE"]', structured),
    ]
    shapes = " ".join(rf"(\S{{1,{most}}}+)" for _, most in words)
    pattern = rf"{priority} ({time}) {shapes} ({structured})(?: \uFEFF?+|(?=$))"
    parts = (TIME, *(f"syslog_{name}" for name, _ in words), "syslog_structured_data")
    return _envelope("syslog5424", pattern, parts, steps, True)


DOCKER_PART: Final = (
    f"{MALFORMED_LINE}: docker: field log: expected text that ends with a newline, as only whole lines do"
)
DOCKER_MALFORMED: Final = f"{MALFORMED_LINE}: docker: it is not one JSON object"

ENVELOPES: Final = {
    each.name: each
    for each in (
        Envelope("docker", "", (TIME, "stream", LINE), True, "", ()),
        _cri(),
        _syslog3164(),
        _syslog5424(),
    )
}
"""The json-file driver of Docker, the files of CRI (containerd, CRI-O), and syslog by RFC 3164 and RFC 5424."""
