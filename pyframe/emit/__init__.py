"""What a capture produces: the FX graph, and the bytecode that replaces the frame."""
