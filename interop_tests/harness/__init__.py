"""What the interop tests share: broker processes, Kafka's jars, a raw wire client, bounded waits."""
