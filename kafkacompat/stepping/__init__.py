"""Long work cut into steps, with the loop in between."""
