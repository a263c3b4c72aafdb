"""How NVML gives the state of the NVIDIA GPUs of this node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pynvml

_T = TypeVar("_T")


class NvmlUnavailable(Exception):
    """NVML does not answer at all. `absent`: there is no NVIDIA driver, which is not a fault of a node without GPUs."""

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


@contextmanager
def open_nvml() -> Iterator[None]:
    """NVML while the context lasts. Raises NvmlUnavailable with the reason."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = getattr(error, "value", None)
        absent = code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        hints = {
            pynvml.NVML_ERROR_NO_PERMISSION: ": this user may not read /dev/nvidiactl",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ": the driver was updated; reboot",
        }
        raise NvmlUnavailable(f"NVML: {error}{hints.get(code, '')}", absent=absent) from None
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers, or None where this GPU, driver or library does not tell."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def read_field(handle: Any, number: int, scope: int = 0) -> int | None:
    """A field of `nvmlDeviceGetFieldValues`, or None where this GPU or driver does not tell."""
    values = answer(pynvml.nvmlDeviceGetFieldValues, handle, [(number, scope)])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if values[0].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return int(values[0].value.ullVal)
    return int(values[0].value.uiVal)


def decode(value: str | bytes) -> str:
    """A string of NVML, which older bindings return as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def each_gpu(facts: Callable[[Any, int], _T]) -> tuple[str, list[_T], list[str]]:
    """The driver's version, of each GPU what `facts` of its handle and index gives, and a line for each that does not
    answer. Raises NvmlUnavailable."""
    with open_nvml():
        gpus, problems = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(facts(pynvml.nvmlDeviceGetHandleByIndex(index), index))
            except pynvml.NVMLError as error:
                problems.append(f"GPU {index} does not respond: NVML: {error}")
        return decode(answer(pynvml.nvmlSystemGetDriverVersion) or ""), gpus, problems
