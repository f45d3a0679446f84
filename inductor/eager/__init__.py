"""Running a captured graph, or parts of it, with ATen."""
