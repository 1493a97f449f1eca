"""Consumer groups of KIP-848: the pure part of their coordinator."""
