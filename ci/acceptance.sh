#!/bin/sh
# The acceptance checks of a system, or of a partition after maintenance: ci/acceptance.sh SYSTEM[:PARTITION] [OPTION...]
# The options are those of `fabricheck run`; site.sh says what the exit status means and what can be set.
set -eu
. "$(dirname "$0")/site.sh"
case "${1:--}" in -*) usage ;; esac
run_checks acceptance "$@"
