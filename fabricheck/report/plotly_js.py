"""plotly.js as a report carries it: whole, but without the address of any other host."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

# Namespaces of XML are no addresses, and a licence is passed on as it stands.
_LICENCE_OR_ADDRESS = re.compile(rb"""/\*[!*].*?\*/|https?://(?!www\.w3\.org/)[^\s"'`<>()\\]*""", re.DOTALL)


@lru_cache(maxsize=1)
def plotly_js() -> bytes:
    """The JavaScript of plotly, in which map tiles, fonts and the cloud that figures can be sent to have no address."""
    script = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return _LICENCE_OR_ADDRESS.sub(lambda match: match[0] if match[0].startswith(b"/*") else b"", script)
