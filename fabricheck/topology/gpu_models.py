"""GPU models by what their makers' data sheets say: backend, architecture, PCIe link, and links to other GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuProduct:
    """A model. PCIe generation and width at most; `links` to GPUs or their switch (NVLink, Infinity Fabric), where all
    boards of the model have as many: 0 for none; None where bridges or the board decide, or the sheet does not tell."""

    backend: str
    arch: str
    pcie_generation: int | None
    pcie_width: int | None
    links: int | None


#: By a pattern of the model's name in lower case, the first that fits.
_GPUS = (
    (r"gb300", GpuProduct("cuda", "103", None, None, 18)),
    (r"gb200", GpuProduct("cuda", "100", None, None, 18)),
    (r"b300", GpuProduct("cuda", "103", 6, 16, 18)),
    (r"b[12]00\b", GpuProduct("cuda", "100", 5, 16, 18)),
    (r"rtx pro \d+ blackwell|rtx ?50\d0", GpuProduct("cuda", "120", 5, 16, 0)),
    (r"gh200|gh100|grace.?hopper", GpuProduct("cuda", "90", None, None, None)),
    (r"h[12]00 (nvl|pcie)", GpuProduct("cuda", "90", 5, 16, None)),
    (r"h800", GpuProduct("cuda", "90", 5, 16, 8)),
    (r"h100|h200|h20\b", GpuProduct("cuda", "90", 5, 16, 18)),
    (r"hopper", GpuProduct("cuda", "90", 5, 16, None)),
    (r"l40s?\b|l20\b|rtx 6000 ada|\bada\b", GpuProduct("cuda", "89", 4, 16, 0)),
    (r"\bl4\b", GpuProduct("cuda", "89", 4, 16, 0)),
    (r"a100.*(sxm|hgx)", GpuProduct("cuda", "80", 4, 16, 12)),
    (r"a800.*sxm", GpuProduct("cuda", "80", 4, 16, 8)),
    (r"a100|a800|\ba30\b|ampere", GpuProduct("cuda", "80", 4, 16, None)),
    (r"\ba(10|16|40)g?\b|rtx a\d000", GpuProduct("cuda", "86", 4, 16, None)),
    (r"\ba2\b", GpuProduct("cuda", "86", 4, 8, 0)),
    (r"\bt4\b|turing", GpuProduct("cuda", "75", 3, 16, 0)),
    (r"v100.*sxm", GpuProduct("cuda", "70", 3, 16, 6)),
    (r"v100|volta", GpuProduct("cuda", "70", 3, 16, None)),
    (r"p100.*sxm", GpuProduct("cuda", "60", 3, 16, 4)),
    (r"p100|pascal", GpuProduct("cuda", "60", 3, 16, None)),
    (r"mi35[05]x?", GpuProduct("hip", "gfx950", 5, 16, 7)),
    (r"mi3(00x|08x|25x)", GpuProduct("hip", "gfx942", 5, 16, 7)),
    (r"mi300", GpuProduct("hip", "gfx942", None, None, None)),
    (r"mi2[0-9]0", GpuProduct("hip", "gfx90a", 4, 16, None)),
    (r"mi100", GpuProduct("hip", "gfx908", 4, 16, None)),
    (r"pvc|ponte|max ?1[0-9]{3}", GpuProduct("sycl", "pvc", 5, 16, None)),
)


def gpu_product(model: str) -> GpuProduct | None:
    """The product of a model's name, such as `NVIDIA H100 80GB HBM3`; None where it is unknown."""
    words = re.sub(r"[_-]", " ", model.lower())
    return next((product for pattern, product in _GPUS if re.search(pattern, words)), None)
