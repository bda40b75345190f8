# Everything a newcomer needs: `make demo` and `make test`. Both set up `.venv` by themselves, from nothing but Python and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: help demo test test-slow test-laws check docs faults site bench wheel clean

help:
	@echo "make demo    a policy governs a real run over HTTP, against a rehearsed model"
	@echo "make test    the test suite, but for what takes minutes"
	@echo "make test-slow   the rest of it"
	@echo "make test-laws   the laws again, on more than three times as many examples"
	@echo "make check   style, types, the import contract, the documentation, the wheel"
	@echo "make docs    rewrite what the documentation quotes from the code, then check all of it"
	@echo "make faults  look for all faults put in on purpose, and rewrite the page about them (minutes)"
	@echo "make site    the documentation as a site, in build/site"
	@echo "make bench   measure speed and memory, and print the table"
	@echo "make clean   remove what was built (the next command sets it up again)"

demo: $(VENV)/.run
	@$(BIN)/python scripts/demo.py

test: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.test
	@$(BIN)/python -m pytest -n auto --dist worksteal -m slow $(PYTEST_ARGS)

test-laws: $(VENV)/.test
	@LAWS_PROFILE=thorough $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" tests/laws $(PYTEST_ARGS)

check: $(VENV)/.check
	@scripts/check
	@scripts/check_wheel

docs: $(VENV)/.check
	@$(BIN)/python scripts/check_docs.py --write

faults: $(VENV)/.test
	@$(BIN)/python scripts/fault_table.py

site: $(VENV)/.docs
	@$(BIN)/python scripts/build_site.py

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks

wheel: $(VENV)/.check
	@scripts/check_wheel

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# One mark for each set of dependencies; a change of pyproject.toml installs anew.
$(VENV)/.run $(VENV)/.test $(VENV)/.check $(VENV)/.docs $(VENV)/.bench: pyproject.toml scripts/install
	@scripts/install "$(PYTHON)" "$(VENV)" "$(@F)"
