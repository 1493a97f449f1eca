"""A cluster of kafkacompat that mirrors topics of Apache Kafka."""
