"""`Finding`: one line of what `python -m pyframe doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` was looked at and what was `found`. `remedy`: what to do about it if it is wrong, else None."""

    what: str
    found: str
    remedy: str | None = None

    def __str__(self) -> str:
        lines = [f"{'ok   ' if self.remedy is None else 'WRONG'} {self.what}: {self.found}"]
        return "\n".join(lines if self.remedy is None else [*lines, f"      to do: {self.remedy}"])


def size_text(count: int) -> str:
    """A number of bytes in the largest unit in which it is at least 1."""
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
