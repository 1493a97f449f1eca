"""Kafka's settings as data: names, types, defaults and bounds, and our own line of help for each honoured one."""
