"""Kafka's tools under their own names, as `/opt/kafka/bin` of the image has them. Each takes the options that its table
lists, prints what Kafka's tool prints, and refuses every other option by name."""
