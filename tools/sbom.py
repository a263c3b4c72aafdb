"""Writes what Fabricheck runs with as an SBOM: CycloneDX 1.6 as JSON, of the environment whose Python runs this.

    python tools/sbom.py > fabricheck.cdx.json

The packages are those that Fabricheck needs and what they depend on in turn. Nothing but these and `pip` is imported:
this runs in a site's environment as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

ROOT = "fabricheck"


def reached() -> dict[str, Distribution]:
    """What the package needs without extras, by name; what is not installed is left out."""
    distributions: dict[str, Distribution] = {}
    wanted = {(ROOT, "")}
    seen: set[tuple[str, str]] = set()
    while wanted - seen:
        name, extra = min(wanted - seen)
        seen.add((name, extra))
        try:
            distributions[name] = distribution(name)
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, distributions[name].requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted |= {(canonicalize_name(requirement.name), one) for one in ("", *requirement.extras)}
    return distributions


def component(name: str, version: str, kind: str, licence: str) -> dict[str, object]:
    return {
        "type": "application" if name == ROOT else "library",
        "bom-ref": f"pkg:{kind}/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:{kind}/{name}@{version}",
        **({"licenses": [{"license": {"name": licence}}]} if licence else {}),
    }


def of_package(name: str, installed: Distribution) -> dict[str, object]:
    said: dict[str, Any] = installed.metadata.json
    classes = [each.rpartition(" :: ")[2] for each in said.get("classifier", []) if each.startswith("License ::")]
    licence = said.get("license_expression") or ", ".join(classes) or said.get("license", "").partition("\n")[0]
    return component(name, installed.version, "pypi", licence)


def sbom() -> Mapping[str, object]:
    parts = {name: of_package(name, each) for name, each in sorted(reached().items())}
    own = parts.pop(ROOT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [*parts.values()],
    }


if __name__ == "__main__":
    json.dump(sbom(), sys.stdout, indent=1)
    print()
