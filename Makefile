# Perigee. Every target sets up what it needs; `make` alone says what there is.
#
#   make run    opens the app (with no display: the scripted tour of the same window)
#   make test   lint, types, import contracts, tests

PYTHON_IN := .venv/bin/python
STAMP := .venv/.perigee-ready
DEMO := resources/demo-model

.PHONY: help setup run test lint format bench clean
.DEFAULT_GOAL := help

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything in it, and check the system libraries

# The stamp holds the folder's own path, since a virtual environment does not survive being moved.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): pyproject.toml scripts/setup.sh scripts/system_libraries.py
	@sh scripts/setup.sh
	@pwd -P > $@

run: $(STAMP) ## open the app; with no display, run the scripted tour offscreen
	@if [ "$$(uname)" != Darwin ] && [ -z "$$DISPLAY$$WAYLAND_DISPLAY" ]; then \
		echo "No display: the tour runs the same window offscreen."; \
		QT_QPA_PLATFORM=offscreen exec $(PYTHON_IN) -m app --tour; \
	else \
		exec $(PYTHON_IN) -m app; \
	fi

test: lint ## lint, types, import contracts, tests
	@$(PYTHON_IN) -m pytest -q

lint: $(STAMP) ## ruff, pyright, import contracts
	@$(PYTHON_IN) -m ruff check .
	@$(PYTHON_IN) -m ruff format --check .
	@$(PYTHON_IN) -m pyright
	@.venv/bin/lint-imports --no-cache

format: $(STAMP) ## let ruff put the code in order
	@$(PYTHON_IN) -m ruff check --fix .
	@$(PYTHON_IN) -m ruff format .

bench: $(STAMP) ## measure reading and writing on the demo model, against mlx-lm
	@$(PYTHON_IN) -m engine bench -m $(DEMO) --lengths 2k,8k --generate 64 --runs 3 --against mlx-lm

clean: ## remove what was built, but not .venv
	rm -rf build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
