"""A real broker for users' tests: a process of its own on a free loopback port, gone when the block ends."""

from kafkacompat.testing.process import Broker, broker, running_broker

__all__ = ["Broker", "broker", "running_broker"]
