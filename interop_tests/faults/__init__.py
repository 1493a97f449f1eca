"""What disks and kills do to a broker: full, read-only, damaged, torn. Each test owns a real process and its files."""
