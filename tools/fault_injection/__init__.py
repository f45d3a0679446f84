"""Exceptions at chosen points of capture, compilation and call, and what they leave behind."""
