#!/bin/sh
# Asks the package registry which of the tested versions have known vulnerabilities. `make audit` calls it, with .venv/bin on
# the path. What a registry has no data of, as mirrors have not, is one line and no "none found".
set -eu
cd "$(dirname "$0")/.."
status=0
said=$(pip-audit --progress-spinner off --require-hashes --disable-pip --requirement tools/constraints.txt 2>&1) || status=$?
left=$(echo "$said" | grep -c "could not be audited" || :)
case $status:$left:$said in
    *"Found "*" known vulnerabilit"*) echo "$said"; exit 1 ;;
    0:0:*) echo "$said" ;;
    0:*) echo "fabricheck: not audited: $left of $(grep -c == tools/constraints.txt) versions, of which the registry has no data" >&2 ;;
    *) echo "fabricheck: not audited: $(echo "$said" | tail -n 1 | cut -c 1-120)" >&2 ;;
esac
