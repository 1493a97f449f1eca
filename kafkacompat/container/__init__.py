"""The entry point, the health check and the tools of the container image. It takes the environment of the apache/kafka image."""
