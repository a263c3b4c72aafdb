"""Takes the suite into the wheel: what `pip install` brings is all that `fabricheck run` needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

#: Folders of the repository that an installed package has below fabricheck/installed (fabricheck.suite.INSTALLED).
FOLDERS = ("checks", "config", "reference_values", "site_configs", "src")
INSTALLED = Path("fabricheck") / "installed"


def suite_files() -> list[Path]:
    """The files of FOLDERS, relative to the repository, which is the current directory of a build."""
    files = (file for folder in FOLDERS for file in Path(folder).rglob("*") if file.is_file())
    return sorted(file for file in files if "__pycache__" not in file.parts)


class BuildWithSuite(build_py):
    """setuptools' own build_py, and the suite; an editable installation uses the repository itself."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        shutil.rmtree(Path(self.build_lib) / INSTALLED, ignore_errors=True)  # what an earlier build left
        for file in suite_files():
            target = Path(self.build_lib) / INSTALLED / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)

    def get_source_files(self) -> list[str]:
        """What a source distribution has to have, for a wheel to be built from it."""
        return [*super().get_source_files(), "tools/wheel.py", *map(str, suite_files())]
