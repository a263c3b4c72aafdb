"""The vendor suites as fixtures: fetched and built once for each environment."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError

from fabricheck.errors import UserError
from fabricheck.rfm.build_fabricbench import built_on_login_node
from fabricheck.rfm.job_end import EXIT_STATUS
from fabricheck.suite import suite_root
from fabricheck.suites.build import CHECKED, Toolchain, build_once, explain_failure
from fabricheck.suites.sources import (
    NotAvailableError,
    Source,
    SourceKind,
    Tool,
    fetch,
    find_program,
    find_source,
    load_tools,
    site_setting,
)

BUILD_LOG = "build.log"


def vendor_tool(name: str) -> Tool:
    """The tool of that name in config/vendor.yaml; UserError where there is none."""
    tools = _tools(suite_root() / "config" / "vendor.yaml")
    if name not in tools:
        raise UserError(f"config/vendor.yaml has no tool {name!r}: choose from {', '.join(tools)}")
    return tools[name]


# Every test asks, as often as it has parameters.
_tools = functools.lru_cache(load_tools)


class BuildVendor(rfm.CompileOnlyRegressionTest):
    """Fetches a suite and builds it, unless it was built before (`fabricheck.building`).

    An installed one is taken as it is. A subclass names the `tool`. What the environment's `extras` say of compilers
    and libraries is described in docs/vendor-suites.md. Skipped, saying what to set, where the site has none and the
    release cannot be fetched.
    """

    tool = variable(str)
    descr = "build a vendor suite"
    build_system = "CustomBuild"
    build_time_limit = "60m"
    sourcesdir = None

    @run_after("init")
    def choose_where(self) -> None:
        """Hook after init: whether it is built on this machine or in a job."""
        self.build_locally = built_on_login_node(self.valid_systems)

    @run_after("setup")
    def fetch(self) -> None:
        """Hook after setup: finds or downloads the suite; skips the environment where neither can be done."""
        tool = vendor_tool(self.tool)
        setting = site_setting(self.tool, tool, self.current_environ.extras)
        self.skip_if(setting is None, f"{tool.title} is left out here: {tool.how_to_say}")
        self.source: Source = find_source(tool, str(setting))
        try:
            self.tree = fetch(tool, self.source, Path(self.stagedir) / "fetched")
        except NotAvailableError as error:
            self.skip(str(error))

    @run_before("compile")
    def configure(self) -> None:
        """Hook before compile: the command that builds the suite; none where it is installed."""
        build: Any = self.build_system  # its name in the class, ReFrame's object from here on
        self.installed = Path(self.stagedir) / "installed"
        tree = self.tree
        if tree is None:
            build.commands = ["true"]
            return
        chain = Toolchain.of(self.current_environ.extras, self.current_environ.features)
        script = build_once(self.tool, chain, tree, self.installed)
        # ReFrame would end at the first command that fails and show the last lines, not the first error.
        build.commands = [f"( {script} ) > {BUILD_LOG} 2>&1 && echo 0 > {EXIT_STATUS} || echo $? > {EXIT_STATUS}"]

    @property
    def module(self) -> str | None:
        """The module to load for the suite; None where it is a folder."""
        return self.source.where if self.source.kind is SourceKind.MODULE else None

    @property
    def root(self) -> Path:
        """The folder below which the suite's programs are."""
        return self.installed if self.tree is not None else Path(self.source.where)

    def program(self, name: str) -> str | None:
        """The path of a program of the suite, or its name where a module brings it; `None` where it has none."""
        if self.module is not None:
            return name
        path = find_program(self.root, name)
        return str(path) if path is not None else None

    def checked_program(self, name: str) -> str | None:
        """The program of that name that checks its data, where it is another one."""
        path = find_program(self.installed / CHECKED, name)
        return str(path) if path is not None else None

    @sanity_function
    def is_built(self) -> bool:
        """The sanity function. Raises SanityError with the first error of the build, or if the program is missing."""
        tool = vendor_tool(self.tool)
        if self.tree is not None:
            status = (Path(self.stagedir) / EXIT_STATUS).read_text().strip()
            if status != "0":
                log = (Path(self.stagedir) / BUILD_LOG).read_text(errors="replace")
                raise SanityError(f"INCOMPLETE: {explain_failure(tool, log, int(status or -1))}")
        if self.program(tool.program) is None:
            raise SanityError(f"INCOMPLETE: the build of {tool.title} left no {tool.program}")
        return True


class BuildOsu(BuildVendor):
    tool = "osu"


class BuildNcclTests(BuildVendor):
    tool = "nccl-tests"


class BuildRcclTests(BuildVendor):
    tool = "rccl-tests"


class BuildImb(BuildVendor):
    tool = "imb"


class BuildLibfabric(BuildVendor):
    tool = "libfabric"


class BuildUcx(BuildVendor):
    tool = "ucx"


class BuildPerftest(BuildVendor):
    tool = "perftest"


class BuildOneCcl(BuildVendor):
    tool = "oneccl"
