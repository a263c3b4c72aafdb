#!/bin/sh
# Writes a GitLab child pipeline with a job for each check, by ReFrame's own generator: ci/gitlab.sh SYSTEM TAG FILE
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
[ $# -eq 3 ] || { echo "usage: ci/gitlab.sh SYSTEM TAG FILE" >&2; exit 2; }
[ -f "site_configs/$1/settings.py" ] || { echo "unknown system '$1': site_configs/ has no such folder" >&2; exit 2; }
export RFM_CONFIG_FILES="config/common.py:site_configs/$1/settings.py" RFM_REFERENCE_PREFIX="$PWD/reference_values" RFM_SAVE_LOG_FILES=no RFM_WARN_AS_ERROR=yes
reframe --checkpath checks --recursive --system "$1" --tag "$2" --ci-generate="$3"
# What the generator leaves out: jobs need the suite's Python, its references, and warnings as errors.
cat >>"$3" <<END
default:
  before_script:
  - tools/setup.sh run
  - export PATH="\$PWD/.venv/bin:\$PATH" RFM_REFERENCE_PREFIX="\$PWD/reference_values" RFM_WARN_AS_ERROR=yes
END
