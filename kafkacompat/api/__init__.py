"""Handlers, one module an API key, and the registry that ApiVersions and dispatch are derived from."""
