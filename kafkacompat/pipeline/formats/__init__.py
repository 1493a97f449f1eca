"""Formats of log lines: what a line of each has, and where it ends. Without Spark, except that the patterns are Java's too."""
