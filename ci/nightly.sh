#!/bin/sh
# The nightly checks of a system, for cron or scrontab on a login node: ci/nightly.sh SYSTEM [OPTION...]
# The options are those of `fabricheck run`; site.sh says what the exit status means and what can be set.
set -eu
. "$(dirname "$0")/site.sh"
case "${1:--}" in -*) usage ;; esac
run_checks nightly "$@"
