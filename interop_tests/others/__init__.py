"""Clients of other languages, by small programs of our own: franz-go in Go, kafkajs in Node."""
