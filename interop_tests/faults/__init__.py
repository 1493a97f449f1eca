"""Effects of disks and kills on a broker: full, read-only, damaged, torn. Each test has its own process and files."""
