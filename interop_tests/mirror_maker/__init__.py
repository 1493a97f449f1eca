"""MirrorMaker 2 between a cluster of Apache Kafka and one of kafkacompat."""
