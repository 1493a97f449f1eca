"""A broker's life: registration, shutdown, producer-id blocks, topics created on demand."""
