"""Clients of other languages, by small programs of our own: franz-go and Sarama in Go, kafkajs in Node."""
