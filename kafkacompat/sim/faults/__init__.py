"""What may befall a simulated node beside the end of its process and the network's moods. Drawn from the seed, bounded, healed."""
