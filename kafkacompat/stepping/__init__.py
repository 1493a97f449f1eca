"""Long work cut into steps, with turns of the loop in between."""
