"""The data pipeline: jobs on Spark Structured Streaming over Kafka topics, and what brings events into those topics.

A client of the broker like any other. It imports nothing of the rest of kafkacompat, and nothing there imports it.
docs/explanation/pipeline.md tells what flows where.
"""
