"""Raises exceptions at chosen points of capture, compilation and call, and checks the state that they leave."""
