"""A run beside the test case that it was."""

from __future__ import annotations

from dataclasses import dataclass

from fabricheck.records.case import Case
from fabricheck.records.run import Run


@dataclass(frozen=True)
class CaseRun:
    """A run and the test case that it was; texts are empty where nothing states, as for a file that was submitted.

    `test` is the class, `partition` is `system:partition`. `trusted`: ReFrame's check let it count.
    `shortened`: what it left out of its plan to end in time.
    """

    run: Run
    test: str = ""
    environment: str = ""
    partition: str = ""
    trusted: bool = True
    shortened: str = ""

    @classmethod
    def of_case(cls, run: Run, case: Case) -> CaseRun:
        """A run of a session: of one that just ended, or of a stored one."""
        shortened = str(case.attributes.get("shortened", ""))
        return cls(run, case.test, case.environment, case.partition, case.trusts_its_run, shortened)

    @classmethod
    def of_file(cls, run: Run) -> CaseRun:
        """A run of which only the file is known: its environment is the MPI library that the header names."""
        library = run.header.get("libraries", {}).get("mpi", {})
        return cls(run, environment=" ".join(filter(None, (library.get("name"), library.get("version")))))

    @property
    def transport(self) -> str:
        """The transport that the header states."""
        return str(self.run.header["transport"])

    @property
    def label(self) -> str:
        """Transport and environment, for a line about this run."""
        return ", ".join(filter(None, (self.transport, self.environment)))
