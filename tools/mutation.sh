#!/bin/sh
# Mutation testing of what decides a verdict: each mutant is one change of the code, and survives when no unit test
# fails with it. `make mutation` calls it, with .venv/bin on the path. It takes about one mutant in ten, always the same;
# PATTERNs of mutmut choose others, such as 'fabricheck.yardsticks.policy*'. Results: build/mutation, `mutmut results` there.
#
#   tools/mutation.sh [PATTERN...]
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- '*__mutmut_*3'
copy=build/mutation
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --target-directory="$copy"
cd "$copy"
cat >>pyproject.toml <<'END'

[tool.mutmut]
source_paths = ["fabricheck"]
only_mutate = [
    "fabricheck/judge/*", "fabricheck/yardsticks/*", "fabricheck/results/guards.py", "fabricheck/statistics/iterations.py",
    "fabricheck/statistics/outliers.py", "fabricheck/statistics/parts.py", "fabricheck/statistics/spread.py",
]
also_copy = ["benchmarks", "checks", "ci", "config", "docs", "lab", "reference_values", "site_configs", "src", "tests", "tools"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not reframe"]
pytest_add_cli_args_test_selection = [
    "tests/judge", "tests/yardsticks", "tests/statistics", "tests/results/test_guards.py", "tests/results/test_fabricbench.py", "tests/commands/test_cli.py",
    "tests/commands/test_topology.py", "tests/commands/test_report.py", "tests/session/test_session.py",
    "tests/report/test_machine.py", "tests/report/test_html.py",
    "tests/history/test_calibrate.py", "tests/diagnosis",
]
END
nice mutmut run "$@"
mutmut results
