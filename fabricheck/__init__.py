"""Fabricheck: acceptance, nightly and upgrade checks for the paths between GPUs."""

__version__ = "0.1.0"
