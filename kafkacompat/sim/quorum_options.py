"""The options of one simulated quorum, drawn from its seed. Different runs are difficult in different ways."""

from __future__ import annotations

from dataclasses import fields

from kafkacompat.dataclass import dataclass
from kafkacompat.raft.quorum_state import QuorumSettings
from kafkacompat.sim.chance import Chance

MIN_EVENTS = 2000
MIN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Options:
    """Times in ms unless named _us; probabilities 0..1."""

    voters: int
    observers: int
    is_dynamic: bool
    """kraft.version 1 from the start, with voters that are added and removed."""
    settings: QuorumSettings
    delay_us: int
    """Mean delay of a message."""
    delay_tail: float
    """Share of messages that take ten times as long, so that later ones arrive before them."""
    loss: float
    duplication: float
    sync_us: int
    """Mean duration of an fsync."""
    sync_stall: float
    """Share of fsyncs that take fifty times as long."""
    drift: float
    """Maximum relative error of the speed of a node's clock."""
    fault_interval_ms: int
    fault_ms: int
    """Maximum time until a fault is healed."""
    propose_interval_us: int
    snapshot: float
    """Probability, per proposal, that some node makes a snapshot."""
    keeps_writing: float
    """Maximum share of the unsynced batches that a crash may keep."""
    refuses: bool
    """A dead process refuses connections at once (as a live host does). Otherwise it does not answer."""
    membership: float
    """Probability, per proposal, of a change of the voters."""
    upgrade: float
    """Probability, per proposal, that a static quorum is asked to become dynamic."""
    resign: float
    """Probability, per proposal, that the leader is asked to resign."""

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def draw_options(seed: int) -> Options:
    chance = Chance(seed, "options")

    def sometimes(probability: float, value: float) -> float:
        return value * chance.uniform() if chance.happens(probability) else 0.0

    voters = (1, 2, 3, 3, 3, 3, 3, 4, 5, 5)[chance.randrange(10)]
    is_dynamic = chance.happens(0.35)
    upgrades = not is_dynamic and chance.happens(0.3)
    fetch_timeout_ms = chance.between(60, 400)
    settings = QuorumSettings(
        election_timeout_ms=chance.between(15, 200),
        fetch_timeout_ms=fetch_timeout_ms,
        election_backoff_max_ms=chance.between(20, 200),
        request_timeout_ms=chance.between(60, 400),
        retry_backoff_ms=chance.between(5, 20),
        fetch_max_wait_ms=chance.between(10, max(11, fetch_timeout_ms // 2)),
        fetch_max_bytes=(500, 5_000, 1_000_000)[chance.randrange(3)],
        fetch_snapshot_max_bytes=(300, 2_000, 1_000_000)[chance.randrange(3)],
    )
    return Options(
        voters=voters,
        observers=chance.between(1, 3) if is_dynamic or upgrades else chance.randrange(2),
        is_dynamic=is_dynamic,
        settings=settings,
        # Slow links with short timeouts: there are several candidates in one epoch, and votes are split.
        delay_us=chance.between(5_000, 30_000) if chance.happens(0.25) else chance.between(200, 6_000),
        delay_tail=sometimes(0.5, 0.2),
        loss=sometimes(0.5, 0.1),
        duplication=sometimes(0.5, 0.1),
        sync_us=chance.between(100, 8_000),
        sync_stall=sometimes(0.5, 0.1),
        drift=sometimes(0.5, 0.2),
        fault_interval_ms=chance.between(40, 400),
        fault_ms=chance.between(50, 900),
        propose_interval_us=chance.between(3_000, 40_000),
        snapshot=sometimes(0.6, 0.1),
        keeps_writing=chance.uniform(),
        refuses=chance.happens(0.5),
        membership=sometimes(0.8, 0.4) if is_dynamic or upgrades else 0.0,
        upgrade=0.0 if is_dynamic else (0.2 if upgrades else 0.0),
        resign=sometimes(0.3, 0.02),
    )
