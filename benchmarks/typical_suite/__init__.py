"""Two hundred tests as people write them against Kafka, for benchmarks/suites.py."""
