"""What kafkacompat.testing gives to tests, with the clients that tests use."""
