"""What a run of the suite needs before ReFrame starts: what would spoil it late fails early."""

from __future__ import annotations

from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.judge.node_rules import rules_of
from fabricheck.judge.system import SystemJudge
from fabricheck.site.validation import undriven_gpus
from fabricheck.store.folders import check_name, create
from fabricheck.suite import Suite
from fabricheck.suites.sources import load_tools
from fabricheck.tuning import load_profiles


def require_ready(suite: Suite, system: str, store: Path | None) -> None:
    """Raises UserError for what cannot be judged or stored afterwards.

    That is the first mistake in a file that a run on `system` needs, but ReFrame's own settings (ReFrame would find it
    only in the middle of the run, with the traceback of a check, or not at all), and a store that cannot be made.
    """
    SystemJudge.of(system, suite.root)
    for problem in undriven_gpus(suite.settings(system)):
        raise UserError(f"{suite.settings(system)}: {problem}")
    rules_of()
    load_profiles(suite.root / "config" / "tuning.yaml")
    load_tools(suite.root / "config" / "vendor.yaml")
    if store is not None:
        check_name("system", system)
        create(store)
