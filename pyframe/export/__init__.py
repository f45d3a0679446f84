"""Functions and modules as whole programs: one graph with its signature, conditions and constants."""
