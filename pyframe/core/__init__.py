"""Data types shared by all parts of the capture: sources, guards, side effects, the catalogue of graph breaks, and the
`Tracer` protocol."""
