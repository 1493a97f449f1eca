"""A real broker for users' tests: a separate process on a free loopback port, which ends with the block."""

from kafkacompat.testing.process import Broker, broker, running_broker

__all__ = ["Broker", "broker", "running_broker"]
