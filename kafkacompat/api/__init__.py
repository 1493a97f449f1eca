"""Request handlers, one module per API key, and the registry from which ApiVersions and dispatch are derived."""
