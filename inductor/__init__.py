"""inductor: compiles torch.fx graphs to fused, vectorised kernels."""
