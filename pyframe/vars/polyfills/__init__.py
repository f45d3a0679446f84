"""Builtins rewritten in Python, so that they are traced inline."""
