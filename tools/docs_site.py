"""What mkdocs needs to show this repository's Markdown as it is: pages of its root, and links that leave the site.

mkdocs calls the functions below (`hooks` in mkdocs.yml) and checks the links that stay inside of the site.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

#: Pages that are not below docs/, by what they are called on the site.
_OF_ROOT = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "commands-of-the-lab.md": "lab/commands.md",
    "emulated-nodes.md": "lab/README.md",
    "faults-of-gpus.md": "lab/faults.md",
    "faults.md": "tests/faults/README.md",
    "sycl.md": "src/sycl.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_ITEM = re.compile(r"([-*]|\d+\.) |\|")
_log = logging.getLogger("mkdocs.fabricheck")


def on_files(files: Files, config: Any) -> Files:
    for name, source in _OF_ROOT.items():
        files.append(File.generated(config, name, content=(_root(config) / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    name = page.file.src_uri
    return _LINK.sub(lambda found: _link(found, name, _root(config)), _spaced(markdown))


def _root(config: Any) -> Path:
    return Path(config.config_file_path).parent


def _link(match: re.Match[str], page: str, root: Path) -> str:
    """A link of the repository as one of the site; one to a file that the site has not is its text alone."""
    image, text, target, anchor = match.groups(default="")
    if ":" in target:
        return match[0]
    source = _OF_ROOT.get(page, f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (root / path).exists():
        _log.warning("%s links to %s, which is not there", source, target)
    if (root / path / "README.md").is_file():
        path += "/README.md"
    shown = {source: name for name, source in _OF_ROOT.items()}.get(path, path.removeprefix("docs/"))
    if shown == path or (root / path).is_dir():
        return text
    return f"{image}[{text}]({os.path.relpath(shown, posixpath.dirname(page) or '.')}{anchor})"


def _spaced(markdown: str) -> str:
    """Lists and tables may follow a paragraph at once, as on GitHub; Python-Markdown wants an empty line between."""
    lines: list[str] = []
    fenced, before = False, ""
    for line in markdown.split("\n"):
        if not fenced and _ITEM.match(line) and before.strip() and not _ITEM.match(before) and before[0] != " ":
            lines.append("")
        fenced ^= line.lstrip().startswith("```")
        lines.append(line)
        before = line
    return "\n".join(lines)
