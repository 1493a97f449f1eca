"""A broker's life in the cluster: registration, shutdown, producer-id blocks, automatic topic creation."""
