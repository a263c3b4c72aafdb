"""What to do first, by symptom: one line for a card, and the section of docs/when-it-is-red.md that says more."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The page of the documentation.
PAGE = "docs/when-it-is-red.md"


@dataclass(frozen=True)
class Advice:
    """`pattern`: what messages with this symptom have; `section`: the heading on the page; `text`: the first step."""

    pattern: str
    section: str
    text: str


ADVICE = (
    Advice(
        r"did not report|ReqNodeNotAvail|MPI did not start|is a node down|Slurm lost it|job cancelled",
        "A node is missing",
        "sinfo -R and that node's console; drain it (ci/drain.py), then run again without it",
    ),
    Advice(
        r"is a GPU missing|drove the same device|no run drove more than|fewer GPUs",
        "A GPU is missing",
        "nvidia-smi -L or rocm-smi on that node, then dmesg",
    ),
    Advice(r"wrong bytes|arrived wrong", "Wrong bytes", "take the node out before anything else (ci/drain.py)"),
    Advice(
        r"which this check forbids|has to be proven|took another network|reported which way|went by",
        "The fast path was not used",
        "module list and the library's own log (NCCL_DEBUG=INFO): which plugin did it load, and which not?",
    ),
    Advice(
        r"was unset|tuning that was asked for|was .* and not '",
        "A setting was not in effect",
        "the job script: does the launcher pass the variable on (srun --export)?",
    ),
    Advice(
        r"most that is plausible|something else was measured",
        "Faster than possible",
        "fabricheck expected SYSTEM: is the topology that of this machine?",
    ),
    Advice(
        r"did not arrive|nothing went on|no progress|timed out",
        "A rank hangs",
        "the stack of that rank (gdb -p, py-spy), and dmesg of its node",
    ),
    Advice(
        r"signal \d+|kind crash|ended by",
        "A launch failed",
        "can that library take these buffers? ompi_info --parsable -a | grep cuda_support",
    ),
    Advice(
        r"left no results|left no exit status|no footer|cut off",
        "A launch failed",
        "rfm_job.err in the stage folder that the report names",
    ),
    Advice(
        r"were selected and|without leaving a result|is a file missing|not one measurement",
        "Something did not run",
        "fabricheck run --system SYSTEM --list, and validate SYSTEM",
    ),
    Advice(r"cannot be judged|unknown GPU|has no GPU", "The site's files are wrong", "fabricheck validate SYSTEM"),
)


def advice_for(message: str) -> str:
    """The first step for a problem; where nothing fits, where to read."""
    return next((each.text for each in ADVICE if re.search(each.pattern, message)), f"see {PAGE}")
