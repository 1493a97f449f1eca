"""The data pipeline: jobs on Spark Structured Streaming over Kafka topics, and the programs that write events to the
topics.

The pipeline is an ordinary client of the broker. Of the rest of kafkacompat it imports what every package may, and from
`security` how clients connect. No part of the broker imports it. docs/explanation/pipeline.md describes the flow of data.
"""
