"""The command `kafkacompat` as a process, against the kind of broker that the suite runs with."""
