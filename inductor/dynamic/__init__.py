"""Graphs whose sizes and numbers vary between calls: symbols, templates, dispatch."""
