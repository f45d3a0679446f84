"""From a torch-level graph to ATen graphs without mutation: functionalization, autograd, partitioning."""
