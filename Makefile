# Two commands are all a newcomer needs: `make demo` and `make test`. Both make their own virtual environment.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
CLIS   ?= .clis
WORKERS ?= 4
SECONDS ?= 600
# Where it is set, every process of the tests reads and compiles our sources again.
export PYTHONDONTWRITEBYTECODE :=
# The make of macOS (3.81) knows less than the one of Linux.
TIDY   := $(if $(filter output-sync,$(.FEATURES)),--output-sync)
# Whatever stops, kills, interrupts or leaves orphans.
KILLS  := tests/transports tests/machine tests/test_lost_guard.py tests/test_session.py tests/test_parallel.py tests/agents \
          tests/understudy tests/shadow_git/test_killed.py tests/service/test_killed.py tests/service/test_sessions.py \
          tests/service/test_store_faults.py tests/remote/test_killed.py tests/server/test_kill.py \
          tests/server/test_jsonrpc_stdio.py tests/cli/test_serve.py tests/cli/test_terminal.py tests/web/test_trouble.py
LIVE_KILLS := tests/live/contract/test_stopping.py tests/live/test_acp_native.py tests/live/test_claude_native.py \
          tests/live/test_codex_native.py tests/live/test_gemini_native.py tests/live/test_opencode_native.py

.PHONY: help demo postgres quick test coverage check mypy pyright fix fuzz hostile bench bless pictures record compatibility contract drift confinement portable torture clis browser sandbox page clean chaos

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime  ## run the embedded agent in a scratch repository: no key, no CLI, seconds
	@$(BIN)/stagedoor demo

quick: $(VENV)/.dev  ## what to run all day: lint, types and the fast tests, under two minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -q -m "not slow" -n 2

test: $(VENV)/.dev clis browser sandbox check  ## everything CI runs: static checks, all tests, the real CLIs on the scripted model
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

check: $(VENV)/.dev  ## lint, types, layers, and the page's own checks, two at a time
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory $(TIDY) -j 2 pyright mypy page

mypy pyright: $(VENV)/.dev
	$(BIN)/$@

coverage: $(VENV)/.dev browser sandbox  ## run all tests that need no CLI under coverage; show lines and branches by room
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q -m "not live" -n $(WORKERS) --dist worksteal
	$(BIN)/coverage combine -q
	$(BIN)/python -m tools.coverage_by_room

fix: $(VENV)/.dev  ## let the machine fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(VENV)/.dev  ## hold the shell judge against a real bash: make fuzz SECONDS=3600 (prints rows for tricks.yaml)
	$(BIN)/python -m tools.shell_fuzz --seconds $(SECONDS)

hostile: $(VENV)/.dev sandbox  ## try every verb of ours on every hostile repository, with each started process recorded
	STAGEDOOR_ALL_GROUNDS=1 $(BIN)/pytest -q tests/shadow_git/test_hostile.py

bench: $(VENV)/.dev  ## print the ratios
	$(BIN)/python -m bench

bless: $(VENV)/.dev  ## rewrite the goldens from the transcripts, and the pages made from code (review the diff)
	STAGEDOOR_BLESS=1 $(BIN)/pytest -q tests/contract tests/server/test_jsonrpc_reference.py tests/server/test_rest_docs.py tests/web/test_unit.py -k "golden or reference_page or tables_are or types_of_events"
	git diff --stat tests/goldens docs src/stagedoor/web

pictures: $(VENV)/.dev clis browser  ## draw the pictures of the docs again, of the page and of the terminal (look at them)
	STAGEDOOR_BLESS=1 $(BIN)/pytest -q tests/web/test_pictures.py
	$(BIN)/python -m tools.terminal_pictures

record: $(VENV)/.dev clis  ## capture fresh transcripts from the installed CLIs: make record AGENT=codex
	$(BIN)/python -m tools.record $(AGENT)

confinement: $(VENV)/.dev clis sandbox  ## let every agent try to get out of the sandbox, by every driver, level and means (15 minutes)
	STAGEDOOR_CONTRACT=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/transports/test_confinement.py tests/live/test_confine.py

chaos: $(VENV)/.dev  ## kill, freeze and cut off doors, workers and their database, and check what became of it (10 minutes; SECONDS=1800 for longer)
	STAGEDOOR_CHAOS_SECONDS=$(SECONDS) $(BIN)/pytest -q -s tests/machines/test_chaos.py

portable: $(VENV)/.dev clis browser sandbox  ## run all that stops, kills and orphans again, with guards that may use nothing of Linux's own (25 minutes)
	STAGEDOOR_GUARD=portable STAGEDOOR_TORTURE=1 STAGEDOOR_KILLS=100 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal $(KILLS) $(LIVE_KILLS)

torture: $(VENV)/.dev  ## start a thousand daemons under each strategy of the guard and count what is left (writes the table of docs/platforms.md)
	$(BIN)/python -m tools.torture --daemons 1000

postgres: $(VENV)/.dev  ## run the tests of the service and the server on a log in PostgreSQL, and all that is about it (20 minutes)
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/service/conformance tests/service/test_postgres.py tests/service/test_log_copy.py tests/server/test_database_away.py
	STAGEDOOR_CHAOS=short $(BIN)/pytest -q -s tests/machines/test_chaos.py
	STAGEDOOR_TEST_ENGINE=postgres $(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/service/test_*sessions.py tests/service/test_questions.py tests/service/test_waking.py tests/service/test_branches.py tests/service/test_policies.py tests/server/test_rest*.py tests/server/test_streams*.py tests/server/test_jsonrpc*.py

compatibility: $(VENV)/.dev clis  ## run the live suite and write docs/compatibility.md
	rm -rf .pytest_cache/d/compatibility
	$(BIN)/python -m tools.acp_agents $(CLIS)
	STAGEDOOR_CONTRACT=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/live/contract tests/live/test_network.py tests/live/test_other_acp_agents.py
	$(BIN)/python -m tools.compatibility

contract: $(VENV)/.dev clis  ## play every kind of call in every tier, mode, policy and list with the oldest and newest CLIs; write the tables of docs/permissions.md
	$(BIN)/python -m tools.contract --clis $(CLIS)
	$(BIN)/python -m tools.own_tools
	STAGEDOOR_CONTRACT=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal tests/live/contract tests/live/test_untrusted_projects.py tests/live/test_resumed_rules.py tests/live/test_protected.py tests/live/test_hidden_commands.py

drift: $(VENV)/.dev clis  ## install the newest of every agent, compare its schema, play the core of the contract; write docs/versions.md
	$(BIN)/python -m tools.drift --clis $(CLIS)

clis: $(VENV)/.runtime  ## install the pinned real CLIs into $(CLIS)
	@if $(BIN)/python -m tools.clis $(CLIS); then :; \
	elif [ "$$CI" = true ]; then echo "the real CLIs could not be installed, and under CI=true they must be" >&2; exit 1; \
	else echo "the real CLIs could not be installed: the live tests will be skipped" >&2; fi

browser: $(VENV)/.runtime  ## find the system's Chromium for the tests of the page, or install it
	@$(BIN)/python -m tools.browser

sandbox: $(VENV)/.runtime  ## find bubblewrap, socat and strace for the tests of sandboxes and hostile repositories, or install them
	@$(BIN)/python -m tools.packages bubblewrap socat strace

page: $(VENV)/.runtime  ## lint and type-check the page's modules, and run their unit tests in Node
	@$(BIN)/python -m tools.page $(CLIS)

clean:  ## remove what make made
	rm -rf $(VENV) $(CLIS) tools/web/node_modules

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Stagedoor needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[server]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
