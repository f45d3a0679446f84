"""What the database suite does not run, and failures that are known, each with the reason."""

from __future__ import annotations

from op_suite_report import Tables

# "entry mode", "entry mode dtype" or "entry mode case": (verdict, why that is so and stays so).
KNOWN: dict[str, tuple[str, str]] = {}

# Entries, or an entry in one mode ("entry mode"), that are not run, with the reason.
LEFT_OUT: dict[str, str] = {}

TABLES = Tables("Databases", KNOWN, LEFT_OUT)
