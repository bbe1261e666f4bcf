"""Live answers: queries over tables of the lake, and what changes in their results."""
