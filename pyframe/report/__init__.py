"""What the user sees of a capture: `explain` and the logs."""
