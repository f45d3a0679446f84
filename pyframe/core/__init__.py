"""The small central types of the capture: Source, Guard, Effect, breaks, and the Tracer protocol."""
