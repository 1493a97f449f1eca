"""What Apache Kafka's releases say of themselves, for kafkacompat/testing/releases.tsv."""
