"""How much of the noise between sessions those of one night share: docs/results/nights, one archive a night.

    python -m benchmarks.nights

One-way analysis of variance of the logarithms of a metric's sessions, by archive. Nights were on other hosts too: what
hosts differ by is in it. Prints Markdown.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.history.series import KEY, NO_MEASUREMENT
from fabricheck.store.reading import history

NIGHTS = Path(__file__).parents[1] / "docs" / "results" / "nights"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        nights = [sessions(archive, Path(folder) / archive.name) for archive in sorted(NIGHTS.glob("*.tar.xz"))]
    print("| GPUs | unit | metrics | nights | share of the variance between nights: median, quartiles |")
    print("|---|---|---|---|---|")
    for gpus in ("h200", "h200x2"):
        rows = pl.concat([rows for rows in nights if rows["night"][0].startswith(f"{gpus}-")])
        shares: dict[str, list[float]] = {}
        for (*_, unit), metric in rows.group_by(*KEY, "unit", maintain_order=True):
            groups = [night["value"].log().to_numpy() for _, night in metric.group_by("night", maintain_order=True)]
            if len(groups) > 1 and metric.height >= len(groups) + 2:
                shares.setdefault(str(unit), []).append(share_between(groups))
        for unit, values in shares.items():
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
            count = rows["night"].n_unique()
            print(f"| {gpus} | {unit} | {len(values)} | {count} | {middle:.2f}, {low:.2f} to {high:.2f} |")


def sessions(archive: Path, folder: Path) -> pl.DataFrame:
    """The values of a night's sessions: the median of each metric's runs."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (system,) = (each.name for each in (folder / "store").iterdir() if each.is_dir())
    measured = history(folder / "store", system=system).filter(~pl.col("verdict").is_in(NO_MEASUREMENT))
    values = measured.group_by(*KEY, "unit", "session", maintain_order=True).agg(pl.col("value").median())
    return values.with_columns(night=pl.lit(archive.name))


def share_between(groups: Sequence[npt.NDArray[np.float64]]) -> float:
    """The share of the variance that values of a group have in common, by analysis of variance; 0 where it is less."""
    sizes = np.array([group.size for group in groups])
    means = np.array([group.mean() for group in groups])
    total = sizes.sum()
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - sizes.size)
    middle = float((sizes * means).sum() / total)
    between = float((sizes * (means - middle) ** 2).sum()) / (sizes.size - 1)
    size = (total - (sizes**2).sum() / total) / (sizes.size - 1)
    common = max((between - within) / size, 0.0)
    return common / (common + within) if common + within > 0 else 0.0


if __name__ == "__main__":
    main()
