"""Sends the verdict of a run in a few lines to a chat or by mail, unless it is PASS.

    FABRICHECK_NOTIFY=TARGET python ci/notify.py VERDICT_JSON

TARGET is the address of an incoming webhook (Slack, Mattermost, Teams or compatible), or `mailto:ADDRESS`, for which
sendmail is called. It is read from the environment only, because anybody who knows a webhook's address can write to it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fabricheck.visible import escaped

TARGET = "FABRICHECK_NOTIFY"
_PATIENCE_S = 20
_MOST_LINES = 4
# Whose webhooks take cards alone; others take a text.
_TEAMS = (".office.com", ".logic.azure.com", ".powerplatform.com")


def lines_of(verdict: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The verdict, what was tested, the causes or problems, and the path of the report."""
    yield f"{verdict['verdict']} {verdict['system']}: {verdict['coverage']['message']}"
    problems = [*verdict["causes"], *verdict["problems"]] or [one for run in verdict["runs"] for one in _bad(run)]
    for problem in problems[:_MOST_LINES]:
        yield f"{problem['verdict']} {problem.get('code', '')}: {problem['message']}"
    if len(problems) > _MOST_LINES:
        yield f"and {len(problems) - _MOST_LINES} more"
    yield f"report: {folder / 'report.html'}"


def _bad(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from run["problems"]
    for metric in run["metrics"]:
        if metric["verdict"] != "PASS":
            yield {"verdict": metric["verdict"], "code": metric["name"], "message": metric["reason"]}


def content_for(target: str, text: str) -> dict[str, Any]:
    """The JSON that the webhook expects: a card for Teams, else a text."""
    host = urllib.parse.urlsplit(target).hostname or ""
    if not host.endswith(_TEAMS):
        return {"text": text}
    body = [{"type": "TextBlock", "text": line, "wrap": True} for line in text.splitlines()]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": body}
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
    }


def send(target: str, text: str) -> None:
    """Sends the text. Raises OSError or ValueError if that fails, without the secret target in the message."""
    scheme, _, address = target.partition(":")
    if scheme == "mailto":
        message = f"To: {address}\nSubject: Fabricheck: {text.splitlines()[0]}\n\n{text}\n"
        sendmail = ["sendmail", "-t"]
        subprocess.run(sendmail, input=message.encode(), check=True, timeout=_PATIENCE_S, capture_output=True)
        return
    if scheme not in ("http", "https"):
        raise ValueError(f"{TARGET} is neither an http address nor mailto:ADDRESS")
    data = json.dumps(content_for(target, text)).encode()
    request = urllib.request.Request(target, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_S):
        pass


def main(file: Path, target: str) -> int:
    try:
        verdict = json.loads(file.read_text(encoding="utf-8"))
        if verdict["verdict"] == "PASS" or not target:
            return 0
        send(target, "\n".join(map(escaped, lines_of(verdict, file.parent))))
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else type(error).__name__
        print(f"notify.py: nobody was notified of {file}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="notify.py",
        description="Send the verdict of a run to a chat or by mail, unless it is PASS.",
        epilog="When: after each run of CI or cron. Example: "
        "FABRICHECK_NOTIFY=mailto:ops@example.org python ci/notify.py output/runs/alps-20261122T020000Z/verdict.json",
    )
    parser.add_argument("verdict", type=Path, metavar="VERDICT_JSON")
    sys.exit(main(parser.parse_args().verdict, os.environ.get(TARGET, "")))
