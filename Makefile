# `make run` and `make test` set up what they need in .venv; nothing is installed outside it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STEP   ?= v22
SHAPE  ?= A

CXX_SOURCES := $(shell find kernelbench kernels moe hopper tests \
	\( -name '*.cu' -o -name '*.cuh' -o -name '*.h' -o -name '*.hpp' -o -name '*.cpp' \
	-o -name '*.inl' \) 2>/dev/null)
PROSE := $(wildcard *.md) kernelbench kernels moe hopper tests tools Makefile .ci .github

.PHONY: run test check format lock test-gpu mutations clean distclean help setup setup-dev

run: setup  ## set up what is missing, then check and time STEP=v22 on SHAPE=A
	@$(BIN)/kernelbench run $(STEP) --shape $(SHAPE)

test: check  ## all checks, then every test that needs no GPU
	$(BIN)/python -m pytest -m "not gpu and not alone" -q -n auto --maxprocesses 8 --dist worksteal
	$(BIN)/python -m pytest -m "alone and not gpu" -q

check: setup-dev  ## lint, formats, types, spelling, generated tables, code lock
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@echo "$(BIN)/clang-format --dry-run -Werror  # $(words $(CXX_SOURCES)) files"
	@$(if $(CXX_SOURCES),$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES))
	$(BIN)/codespell $(PROSE)
	$(BIN)/python -m kernelbench.lineage_table --check
	$(BIN)/python -m kernelbench.code_lock --check

test-gpu: setup-dev  ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu -q

mutations: setup-dev  ## mutate every step at every site and rewrite tests/mutations/table.md (two hours)
	$(BIN)/python tests/mutations/mutate.py

format: setup-dev  ## reformat sources and bring generated tables up to date
	$(BIN)/ruff check --fix --select I
	$(BIN)/ruff format
	$(if $(CXX_SOURCES),$(BIN)/clang-format -i $(CXX_SOURCES))
	$(BIN)/python -m kernelbench.lineage_table

lock: setup-dev  ## record what every step's kernels compile to (needs nvcc)
	$(BIN)/python -m kernelbench.code_lock --update

setup:
	@$(PYTHON) tools/bootstrap.py

setup-dev:
	@$(PYTHON) tools/bootstrap.py --dev

clean:  ## remove caches; keep .venv and results
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find kernelbench kernels moe hopper tests tools -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf $(VENV) .venv.lock

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
