"""The data pipeline: jobs on Spark Structured Streaming over Kafka topics, and the programs that write events to the
topics.

The pipeline is an ordinary client of the broker. It imports nothing of the rest of kafkacompat, and nothing there
imports it. docs/explanation/pipeline.md describes the flow of data.
"""
