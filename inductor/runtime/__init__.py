"""What runs a compiled graph: plans, ATen calls, and the building and loading of kernels."""
