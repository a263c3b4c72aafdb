"""The floor of latency, below which no measured value can be right."""

from __future__ import annotations

# The least one-way time in microseconds that anything could take; well below what was ever measured, so that only a
# wrong clock or a transfer that did not happen falls under it.
_SHARED_MEMORY_US = 0.02  # one cache line between two cores takes tens of ns
_DEVICE_US = 0.1  # one crossing of PCIe or NVLink; nvbandwidth reads a peer's memory in 0.8 us on an H200
_LAUNCH_US = 0.5  # a copy or kernel that is launched and waited for
_NETWORK_US = 0.3  # two NICs and a switch; the best of De Sensi §V-B2 is 1.02 us


def least_plausible_us(transport: str, *, between_nodes: bool, devices: bool) -> float:
    """One-way time in us below which a latency cannot be right."""
    least = _SHARED_MEMORY_US
    if devices:
        least = _DEVICE_US if transport == "mpi" else _LAUNCH_US
    return max(least, _NETWORK_US) if between_nodes else least
