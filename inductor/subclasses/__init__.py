"""Graphs on traceable wrapper subclasses, compiled as graphs on their inner tensors."""
