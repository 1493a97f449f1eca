"""kafka-python, confluent-kafka and aiokafka, unmodified."""
