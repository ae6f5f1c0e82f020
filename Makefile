# `make run` and `make test` set up what they need in .venv; nothing is installed outside it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STEP   ?= v22
SHAPE  ?= A
# In a virtual environment that `make release` makes: they bring 40 packages that nothing else needs.
RELEASE_TOOLS := twine==7.0.0 check-wheel-contents==0.6.3

CXX_SOURCES := $(shell find kernelbench kernels moe hopper layer tests tools \
	\( -name '*.cu' -o -name '*.cuh' -o -name '*.h' -o -name '*.hpp' -o -name '*.cpp' \
	-o -name '*.inl' \) 2>/dev/null)
PROSE := $(wildcard *.md) docs kernelbench kernels moe hopper layer tests tools Makefile .ci .github

.PHONY: run demo test test-long bench check style types layers tables budget prose docs pictures format lock wheel release test-gpu mutations clean distclean help setup setup-dev

run: setup  ## set up what is missing, then check and time STEP=v22 on SHAPE=A
	@$(BIN)/kernelbench run $(STEP) --shape $(SHAPE)

demo: setup  ## a Blackwell kernel without one of its lines: what the checker says of it
	@$(BIN)/kernelbench demo

test: check  ## all checks, then the tests that need no GPU and are not long
	$(BIN)/python -m pytest -m "not gpu and not long" -q -n auto --maxprocesses 8 --dist worksteal

test-long: check  ## what `make test` leaves out: every step built anew, larger samples, more programs
	$(BIN)/python -m pytest -m "long and not gpu" -q --durations=10 -n auto --maxprocesses 8 --dist worksteal

bench: setup-dev  ## measure what users wait for (results/bench.md) and the emulator (docs/evidence-ptx.md) (BENCH="--against REF")
	$(BIN)/python tools/bench.py $(BENCH)
	$(BIN)/python tools/ptx/speed.py

check: setup-dev  ## lint, formats, types, spelling, generated tables, code lock, docs, prose
	@$(MAKE) --no-print-directory -j2 --output-sync=target docs types style layers tables budget prose

style: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@echo "$(BIN)/clang-format --dry-run -Werror  # $(words $(CXX_SOURCES)) files"
	@$(if $(CXX_SOURCES),$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES))
	$(BIN)/codespell $(PROSE)

types: setup-dev
	$(BIN)/mypy

layers: setup-dev
	$(BIN)/lint-imports --no-logo --no-cache

tables: setup-dev
	$(BIN)/python -m kernelbench.report.readme_tables --check
	$(BIN)/python -m kernelbench.inspection.code_lock --check

budget: setup-dev  ## lines of each package against pyproject.toml, tool.line-budget
	$(BIN)/python tools/line_budget.py

prose: setup-dev  ## words and sentences of docs/ and README.md
	$(BIN)/python tools/prose.py

docs: setup-dev  ## build the documentation into build/docs; warnings are errors
	@echo "$(BIN)/python -m sphinx -W -E docs build/docs"
	@$(BIN)/python -m sphinx -W -E --keep-going -q -d build/doctrees docs build/docs

pictures: setup-dev  ## what the pages show of the checker, anew
	$(BIN)/python tools/pictures.py

test-gpu: setup-dev  ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu -q

mutations: setup-dev  ## mutate every step at every site and rewrite tools/mutations/table.md (two hours)
	$(BIN)/python tools/mutations/mutate.py

format: setup-dev  ## reformat sources and bring generated tables up to date
	$(BIN)/ruff check --fix --select I
	$(BIN)/ruff format
	$(if $(CXX_SOURCES),$(BIN)/clang-format -i $(CXX_SOURCES))
	$(BIN)/python -m kernelbench.report.readme_tables

lock: setup-dev  ## record what every step's kernels compile to (needs nvcc)
	$(BIN)/python -m kernelbench.inspection.code_lock --update

wheel: setup-dev  ## a wheel in dist/ with the emulator built
	$(BIN)/python tools/prebuild.py build/prebuilt
	KERNELBENCH_PREBUILT=build/prebuilt $(BIN)/python -m hatchling build -t wheel -d dist

release: setup-dev  ## wheel and sdist of this version in dist/, checked, with their sizes
	rm -rf dist build/release
	$(MAKE) --no-print-directory wheel
	$(BIN)/python -m hatchling build -t sdist -d dist
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install -q $(RELEASE_TOOLS)
	build/release/bin/python -m twine check --strict dist/*
	build/release/bin/check-wheel-contents dist/*.whl
	@du -h --apparent-size dist/*

setup:
	@$(PYTHON) tools/bootstrap.py

setup-dev:
	@$(PYTHON) tools/bootstrap.py --dev

clean:  ## remove caches; keep .venv and results
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find kernelbench kernels moe hopper layer tests tools -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf $(VENV) .venv.lock

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
