# Read by the scripts that a site runs (nightly.sh, acceptance.sh): what they share. Not to be run.
#
# Only exit statuses and files count. The exit status is that of the worst verdict:
#   0 PASS   1 DEGRADED   2 a mistake in what was given   3 FAIL   4 INCOMPLETE   5 INVALID
# Another run of the same system that is still running is 4, since nothing was measured. Any other status (70: a mistake
# in Fabricheck itself, 130 and more: a signal) is no verdict: the next run judges what was measured.
#
# FABRICHECK_OUTPUT    where everything is left; output/ in the repository when unset
# FABRICHECK_TEXTFILE  a folder of node_exporter's textfile collector: the metrics are left there too
# FABRICHECK_ARTIFACTS a folder to which report, verdict.json, junit.xml and metrics.prom are copied, for a CI server
# FABRICHECK_NOTIFY    a webhook of Slack, Teams or Mattermost, or mailto:ADDRESS: told of what is not PASS (ci/notify.py)
# FABRICHECK_DRAIN     print: say which nodes should be drained, and how (ci/drain.py); nothing is ever drained

suite=$(cd "$(dirname "$0")/.." && pwd)
PATH="$suite/.venv/bin:$PATH"
export FABRICHECK_SUITE="${FABRICHECK_SUITE:-$suite}"
output=${FABRICHECK_OUTPUT:-$suite/output}

usage() {
    name=$(basename "$0")
    echo "usage: $name SYSTEM [OPTION OF fabricheck run]..., for example: ci/$name alps --nodes idle" >&2
    exit 2
}

# Whether nobody but root, this user and who owns Fabricheck can change a place. Isolated: the current folder has no say.
trusted() {
    python -I -m fabricheck.trust "$1"
}

# The verdicts of a system, the newest last by its name: clocks may have been wrong.
judged() {
    find "$output/runs" -maxdepth 2 -path "*/$system-[0-9]*T*Z*/verdict.json" 2>/dev/null | sort
}

# publish FILE FOLDER NAME: renamed in place, so that nobody reads half a file and no link is followed that another user
# left. Root writes only where nobody else can (fabricheck/trust.py); what is not published changes no verdict.
publish() {
    [ -f "$1" ] && trusted "$2" || return 0
    new=$(mktemp "$2/.fabricheck-XXXXXX") && cat "$1" >"$new" && chmod 644 "$new" && mv -fT "$new" "$2/$3" && return 0
    echo "fabricheck: $2/$3 cannot be written" >&2
    [ -z "$new" ] || rm -f "$new"
}

# run_checks TAG SYSTEM [OPTION]...: runs, links what was run as `latest`, publishes; ends with the verdict's status.
run_checks() {
    tag=$1
    system=${2%%:*}
    trusted "$output" && mkdir -p "$output" || exit 2
    before=$(judged)
    shift
    status=0
    # A signal to this script ends the run, which still judges what there is; the script waits for that.
    fabricheck run --tag "$tag" --output "$output" --system "$@" &
    run=$!
    trap 'kill -s TERM "$run" 2>/dev/null || :' TERM HUP INT
    while :; do
        status=0
        wait "$run" || status=$?
        kill -s 0 "$run" 2>/dev/null || break
    done
    trap - TERM HUP INT
    # What was judged since: where another run of the system was going on, that is nothing.
    newest=$(judged | grep -vxF -e "$before" | tail -n 1)
    if [ "$status" -ne 2 ] && [ -n "$newest" ]; then
        newest=${newest%/verdict.json}
        ln -sfnT "$newest" "$output/latest-$system" || : # nothing from here on changes the exit status
        if [ -n "${FABRICHECK_TEXTFILE:-}" ]; then
            publish "$newest/metrics.prom" "$FABRICHECK_TEXTFILE" "fabricheck-$system.prom"
        fi
        if [ -n "${FABRICHECK_ARTIFACTS:-}" ]; then
            trusted "$FABRICHECK_ARTIFACTS" && mkdir -p "$FABRICHECK_ARTIFACTS" || :
            for name in report.html verdict.json junit.xml metrics.prom; do
                publish "$newest/$name" "$FABRICHECK_ARTIFACTS" "$name"
            done
        fi
        if [ -n "${FABRICHECK_NOTIFY:-}" ]; then python "$suite/ci/notify.py" "$newest/verdict.json" || :; fi
        if [ "${FABRICHECK_DRAIN:-}" = print ]; then
            python "$suite/ci/drain.py" "$newest/verdict.json" --system "$system" || :
        fi
    fi
    exit "$status"
}
