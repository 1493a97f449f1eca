"""What every replayed machine shares."""
