"""plotly.js as a report carries it: whole, but without the address of any other host."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

# Namespaces of XML are no addresses, and a licence is passed on as it stands.
_LICENCE_OR_ADDRESS = re.compile(rb"""/\*[!*].*?\*/|https?://(?!www\.w3\.org/)[^\s"'`<>()\\]*""", re.DOTALL)


# The permission notice of the MIT licence, which has to be in every copy of what has it.
_MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
permit persons to whom the Software is furnished to do so, subject to the following conditions:
The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS
OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def plotly_notice() -> str:
    """Whose plotly.js is, and its licence: a page carries it packed, where nobody would find that."""
    banner = plotly_js().partition(b"*/")[0].removeprefix(b"/**").decode()
    lines = [line.strip(" *") for line in banner.splitlines()]
    return "\n".join([*filter(None, lines), _MIT.rstrip()])


@lru_cache(maxsize=1)
def plotly_js() -> bytes:
    """The JavaScript of plotly, in which map tiles, fonts and the cloud that figures can be sent to have no address."""
    script = (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return _LICENCE_OR_ADDRESS.sub(lambda match: match[0] if match[0].startswith(b"/*") else b"", script)
