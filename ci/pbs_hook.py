"""A hook of PBS that looks at a node before each job: where prolog.sh ends with 1, the node goes offline, the job back.

    qmgr -c "create hook fabricheck event=execjob_prologue,alarm=20"
    qmgr -c "import hook fabricheck application/x-python default ci/pbs_hook.py"

prolog.sh has to be on a disk of each node. PBS runs this with its own Python, without Fabricheck.
"""

import subprocess
from typing import Any

import pbs  # type: ignore[import-not-found]

PROLOG = "/etc/pbs/fabricheck/prolog.sh"


def look(event: Any) -> None:
    try:
        done = subprocess.run([PROLOG], stdout=subprocess.PIPE, timeout=15, check=False)
    except (OSError, subprocess.SubprocessError):
        return  # no answer is no fault of the node
    if done.returncode != 1:
        return
    reason = "fabricheck: " + done.stdout.decode(errors="replace").split("\n")[0][:160]
    node = event.vnode_list[pbs.get_local_nodename()]
    node.state = pbs.ND_OFFLINE
    node.comment = reason
    event.job.rerun()
    event.reject(reason)


look(pbs.event())
