"""Makes a oneAPI home out of Intel's wheels: SYCL's headers and runtime, OpenCL for the processor, and oneCCL.

There is no DPC++ among the wheels: the sycl backend is compiled with the machine's C++ compiler, and its kernels when
the program starts.
"""

from __future__ import annotations

import os
from pathlib import Path

# Hundreds of megabytes that nothing here loads: static libraries, sanitizers, link-time optimisation.
_NOT_NEEDED = ("lib*.a", "libsycl-[amt]san*", "libsycl-preview*", "icx-lto.so", "libonnxruntime*", "ccl/cpu/lib/*.a")


def complete(home: Path) -> None:
    """Drops what is not needed, makes one file of the copies of a library, and tells OpenCL where its driver lies."""
    libraries = home / "lib"
    for pattern in _NOT_NEEDED:
        for file in libraries.glob(pattern):
            file.unlink()
    # Wheels cannot hold links: libsycl.so, libsycl.so.8 and libsycl.so.8.0.0 are three copies.
    for library in sorted(libraries.glob("lib*.so.*"), key=lambda each: len(each.name)):
        for shorter in sorted(libraries.glob("lib*.so*"), key=lambda each: len(each.name)):
            if (
                not shorter.is_symlink()
                and library.name.startswith(f"{shorter.name}.")
                and shorter.stat().st_size == library.stat().st_size
            ):
                shorter.unlink()
                shorter.symlink_to(library.name)


def runtime_environment(home: Path) -> dict[str, str]:
    """What a program of the sycl backend needs to run on the processor, in the place of a GPU."""
    return {
        "OCL_ICD_FILENAMES": os.fspath(home / "lib" / "libintelocl.so"),
        "ONEAPI_DEVICE_SELECTOR": "opencl:cpu",
        # oneCCL refuses to start with a loader of Level Zero that is older than it, such as Debian 12's.
        "CCL_ZE_ENABLE": "0",
    }
