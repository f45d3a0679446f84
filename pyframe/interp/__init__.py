"""The tracer's bytecode interpreter: frames, a handler per instruction, calls, exceptions, planned breaks."""
