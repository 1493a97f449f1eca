"""The services behind the site: samples of their hosts, and incidents with slow and failed requests. Pure."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from kafkacompat.pipeline.generator.chance import Chance, Chances, between, daily_rhythm, exponential
from kafkacompat.pipeline.generator.periods import Period, Periods
from kafkacompat.pipeline.generator.profile import Profile, Service

GIB = 1024**3


class Services:
    """All services from start_ms on."""

    __slots__ = ("_chance", "_incidents", "_profile", "_shares")

    def __init__(self, chances: Chances, profile: Profile, start_ms: int) -> None:
        self._chance = chances("samples")
        self._profile = profile
        self._shares = list(accumulate(service.share for service in profile.services))
        first = chances("first incident")
        soon = first.randrange(len(profile.services))
        self._incidents = {}
        for number, service in enumerate(profile.services):
            chance = chances(f"incidents of {service.name}")
            wait_ms = (
                between(first, profile.first_incident_ms)
                if number == soon
                else exponential(chance, profile.incident_every_ms)
            )
            self._incidents[service.name] = Periods(
                chance,
                start_ms + wait_ms,
                profile.incident_every_ms,
                profile.incident_length_ms,
                profile.incident_latency_factor,
                profile.incident_error_rate,
            )

    def incident(self, service: str, time_ms: float) -> Period | None:
        """Return the incident of the service at this time."""
        return self._incidents[service].at(time_ms)

    def sample(self, time_ms: int) -> dict[str, Any]:
        """Return one request to a host of a service, without an event id."""
        chance, profile = self._chance, self._profile
        at = chance.random() * self._shares[-1]
        service = profile.services[sum(share <= at for share in self._shares)]
        host = chance.randrange(profile.hosts_per_service) + 1
        incident = self.incident(service.name, time_ms)
        latency_ms = math.exp(chance.gauss(math.log(service.latency_ms), profile.latency_spread))
        load = daily_rhythm(time_ms)
        cpu = 15.0 + 25.0 * load + chance.gauss(0.0, 5.0)
        if incident is not None:
            latency_ms *= incident.factor
            cpu += 35.0
        return {
            "service": service.name,
            "host": f"{service.name}-{host}",
            "event_time_ms": time_ms,
            "latency_ms": round(latency_ms, 3),
            "error": self._fails(chance, service, incident),
            "cpu_percent": round(min(max(cpu, 1.0), 100.0), 2),
            "memory_bytes": int((2.0 + 1.5 * load + 0.2 * chance.random()) * GIB),
        }

    def _fails(self, chance: Chance, service: Service, incident: Period | None) -> bool:
        return chance.random() < (service.error_rate if incident is None else incident.rate)
