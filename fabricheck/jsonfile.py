"""JSON files, read so that nothing in them can do more than be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.wholefile import read_file

# ReFrame's report of a session of 10,000 test cases has some 50 MB.
_MOST_BYTES = 512 << 20


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises UserError if it cannot be read, is not JSON, or is nested too deeply."""
    try:
        return json.loads(read_file(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None
    except ValueError as error:
        raise UserError(f"{path}: is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deeply") from None
