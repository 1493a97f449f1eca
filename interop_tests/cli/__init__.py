"""The command `kafkacompat` as a process, against whichever broker the suite runs with."""
