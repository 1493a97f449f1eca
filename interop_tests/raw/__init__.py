"""Hand-made requests: known mistakes of Kafka-compatible brokers, invalid input, restarts."""
