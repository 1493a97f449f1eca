"""Asks Apache Kafka and kafkacompat the same, and lists what differs.

Each area of the protocol has a vocabulary of its own: which requests it has, and the form in which their answers are
compared. It is an `Area`, in the folder of its tests. Everything else is here: brokers, seeds, differences, the command.
"""
