"""Faults of simulated nodes besides the end of their process and network delays. Drawn from the seed, bounded, and healed."""
