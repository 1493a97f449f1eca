"""Code that the interop tests share: broker processes, Kafka's jars, a raw wire client, waits with a limit."""
