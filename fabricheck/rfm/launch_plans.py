"""What the job of several plans does: launches them, and those again that another one kept from beginning."""

from __future__ import annotations

from fabricheck.results.node_state import FOLDER
from fabricheck.rfm.job_end import BEGUN, EXIT_STATUS

#: What the job does in the folder of a launch. A plan that ends its launch gets the exit status of that, and the plans
# after it are launched again. What the launcher prints is of all plans of its launch. Two launches that begin no plan
# are the end; what the first of them printed stays. A job that is cancelled ends when its launcher has ended the ranks.
LAUNCH = f"""
trap 'exit 143' TERM
end_plan() {{
  [ -e "$1/{EXIT_STATUS}" ] || echo $status > "$1/{EXIT_STATUS}"
  for kind in out err; do cat launch.$kind "$1/plan.$kind" > "$1/rfm_job.$kind" 2> /dev/null; done
  [ ! -d {FOLDER} ] || cp -r {FOLDER} "$1"
}}
launch_plans() (
  trap 'exit 143' TERM
  cd "$1" || exit
  idle=0
  while :; do
    open=$(while read -r folder _; do [ -e "$folder/{BEGUN}" ] || echo "$folder"; done < "$2")
    [ -n "$open" ] && [ $idle -lt 2 ] && [ ! -e ended ] || break
    rm -rf {FOLDER}
    [ $idle -gt 0 ] || rm -f launch.out launch.err
    (trap : TERM; . ./launch.sh) >> launch.out 2>> launch.err < /dev/null
    status=$?
    idle=$((idle + 1))
    for folder in $open; do [ ! -e "$folder/{BEGUN}" ] || {{ idle=0; end_plan "$folder"; }}; done
  done
  for folder in $open; do end_plan "$folder"; done
)
"""
