"""PCI Express by what the kernel and vendors' tools call it."""

from __future__ import annotations

# Generation by GT/s of a lane (PCI Express base specification).
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def generation(gigatransfers: float | None) -> int | None:
    """Of a lane's rate in GT/s the generation, 5 of 32; None for any other rate."""
    return _GENERATIONS.get(gigatransfers) if gigatransfers is not None else None


def generation_of_text(text: str) -> int | None:
    """Of the kernel's `32.0 GT/s PCIe`; None for another form."""
    try:
        return generation(float(text.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
        return None
