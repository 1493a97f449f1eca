"""The entry point of the container image, run as a process in a clean folder."""
