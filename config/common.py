"""ReFrame settings that all systems share: what is logged and kept, where, and how a run is executed.

ReFrame reads this file before a system's own: RFM_CONFIG_FILES=config/common.py:site_configs/<system>/settings.py.
Everything that a run leaves behind lies below RFM_PREFIX, or below output/ in this repository when that is not
set; where the suite came with an installed package, below output/ in the current directory.
"""

import os
from pathlib import Path

from fabricheck.begin import begin_when_told
from fabricheck.suite import output_folder

begin_when_told()

output = output_folder(Path(__file__).resolve().parent.parent)
output.mkdir(parents=True, exist_ok=True)
mask = os.umask(0)
os.umask(mask)

site_configuration = {
    "general": [
        {
            # A check that shares links with another one would measure both: one at a time, in order.
            "pipeline_timeout": None,
            "failure_inspect_lines": 20,
            "topology_prefix": str(output / "topology"),
            "report_file": str(output / "reports" / "run-{sessionid}.json"),
            "save_log_files": True,
        }
    ],
    "logging": [
        {
            "handlers$": [{"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}],
            "handlers": [
                {
                    "type": "file",
                    "name": str(output / "reframe.log"),
                    "level": "debug2",
                    "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
                    "append": False,
                }
            ],
            "handlers_perflog": [
                {
                    "type": "filelog",
                    "basedir": str(output / "perflogs"),
                    "prefix": "%(check_system)s/%(check_partition)s",
                    "level": "info",
                    "format": (
                        "%(check_job_completion_time)s|%(version)s|%(check_result)s|%(check_info)s|%(check_jobid)s"
                        "|%(check_num_tasks)s|%(check_job_nodelist)s|%(check_perfvalues)s"
                    ),
                    "format_perfvars": (
                        "%(check_perf_value)s|%(check_perf_unit)s"
                        "|%(check_perf_ref)s|%(check_perf_lower_thres)s|%(check_perf_upper_thres)s|"
                    ),
                    "datefmt": "%FT%T%z",
                    "append": True,
                }
            ],
        }
    ],
    "storage": [
        {
            "enable": True,
            "backend": "sqlite",
            "sqlite_db_file": str(output / "results.db"),
            # As the user wants new files to be: a group that shares the suite shares this too.
            "sqlite_db_file_mode": f"{0o666 & ~mask:o}",
            "sqlite_conn_timeout": 10,
        }
    ],
}
