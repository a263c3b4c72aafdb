# Each recipe sets .venv up for what it needs (quick when nothing changed), then calls a script below tools/.
# PYTHON names the Python to make .venv with; SYSTEM the system below site_configs/ that `demo` checks; FULL=1 has `test`
# leave out nothing.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
SYSTEM ?= local

.PHONY: help demo test lint sanitize format build lab docs sbom audit mutation bundle-offline clean

help:
	@echo "make demo    build the benchmark, run the acceptance checks on this machine, write the report"
	@echo "make test    run the tests, in ten minutes; FULL=1 runs those that take longer too"
	@echo "make lint    check style, types and warnings"
	@echo "make sanitize  run the host backend with GCC's sanitizers of addresses and undefined behaviour; FULL=1: of threads"
	@echo "make format  bring the style in order, where a tool can"
	@echo "make build   build fabricbench into build/ with every MPI of this machine"
	@echo "make lab     install what \`fabricheck emulate\` needs: clusters in miniature, for rehearsals"
	@echo "make docs    write the generated pages, and the documentation as a site into build/site"
	@echo "make sbom    write what Fabricheck runs with into dist/fabricheck.cdx.json (CycloneDX)"
	@echo "make bundle-offline  write an archive with all packages, which installs without a network"
	@echo "make audit   ask the package registry which tested versions have known vulnerabilities"
	@echo "make mutation  change what judges in a few hundred places, and count the changes that no unit test notices"
	@echo "make clean   remove what was built and measured (.venv stays)"

demo:
	@tools/setup.sh run
	@fabricheck run --system $(SYSTEM) --tag acceptance

test:
	@tools/setup.sh test
	@tools/test.sh

lint:
	@tools/setup.sh lint
	@tools/lint.sh

sanitize:
	@tools/setup.sh test
	@tools/sanitize.sh

build:
	@tools/setup.sh run
	@python -m tools.build

lab:
	@tools/setup.sh lab

docs:
	@tools/setup.sh lint
	@python -m tools.commands_page
	@python -m tools.catalogue_page
	@python -m tools.metrics_page
	@python -m tools.schemas
	@python -m tools.papers_page
	@mkdocs build --quiet --strict

sbom:
	@tools/setup.sh run
	@mkdir -p dist
	@python tools/sbom.py > dist/fabricheck.cdx.json

bundle-offline:
	@tools/setup.sh run
	@python -m tools.offline

audit:
	@tools/setup.sh audit
	@tools/audit.sh

mutation:
	@tools/setup.sh mutation
	@tools/mutation.sh

format:
	@tools/setup.sh lint
	@tools/lint.sh --fix

clean:
	rm -rf build output dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
