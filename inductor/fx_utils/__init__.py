"""Helpers for torch.fx graphs that no single stage owns."""
