# Every chore of the project. `make run` and `make test` work on a fresh machine with Python 3.11 and Java 17.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
# Unit tests share nothing, so each processor that may be used takes some; whoever is done takes over what waits for another.
# Interop tests compute for two fifths of their time and wait for the rest, so two more than there are processors keep these
# busy. Each may run three nodes, or a JVM with Spark.
ifndef WORKERS
WORKERS := $(shell $(PYTHON) interop_tests/harness/processors.py --gigabytes-each 2)
INTEROP_WORKERS ?= $(shell $(PYTHON) interop_tests/harness/processors.py --extra 2 --gigabytes-each 4)
endif
INTEROP_WORKERS ?= $(WORKERS)
PARALLEL = -n $(WORKERS) --dist worksteal
# Tests start thousands of processes. In a clone without compiled modules each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test own behind fetch check lint unit browser prometheus kerberos interop wheel mutants branches bench soak compatibility site clean

run: $(VENV)/.runtime
	$(BIN)/kafkacompat start $(ARGS)

# Registries answer while lint and unit tests keep the processors busy. The wheel is built and tried while interop tests wait,
# and the unit tests that do nothing but compute are run.
test: $(VENV)/.dev
	$(MAKE) -j2 own fetch
	$(MAKE) -j3 interop behind wheel

# Each by a make of its own, in this order whatever runs beside it.
own:
	$(MAKE) lint
	$(PYTEST) kafkacompat -q $(PARALLEL) $(addprefix --ignore=,$(COMPUTING))

# They only compute, so they can take what others leave of the processors. What they say comes at their end, because the
# interop tests print at the same time.
COMPUTING = $(addprefix kafkacompat/,group partition raft records sim)
behind: $(VENV)/.dev
	@mkdir -p .cache
	@nice -n 19 $(PYTEST) $(COMPUTING) -q $(PARALLEL) >.cache/computing.txt 2>&1; status=$$?; cat .cache/computing.txt; exit $$status

# What the interop tests take from others. Whatever cannot be had, the tests that need it say so.
fetch: $(VENV)/.dev browser prometheus
	-nice $(BIN)/python -m interop_tests.harness.fetching
	$(MAKE) kerberos

# With a compiler (and Python's headers) four extension modules are built; without one the installation goes on.
COMPILED = $(wildcard kafkacompat/*/*.[ch])
$(VENV)/.runtime: requirements.lock pyproject.toml $(COMPILED)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-dev.lock
	touch $@

# The interop tests are collected too: a name that one of them misses would be noticed after all unit tests.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) interop_tests -q --collect-only >/dev/null

# Before a commit: everything but the costly unit tests, and one or two tests a client.
check: lint
	$(PYTEST) kafkacompat -q $(PARALLEL) -m "not costly"
	$(PYTEST) interop_tests/python_clients interop_tests/java_tools -q -m smoke

unit: $(VENV)/.dev
	$(PYTEST) kafkacompat -q $(PARALLEL)

wheel: $(VENV)/.dev
	$(BIN)/python interop_tests/wheel_check.py

# Says which careless changes of a module its tests would not notice: make mutants ARGS=kafkacompat/log/flush.py
mutants: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-mutants.lock
	$(BIN)/python -m kafkacompat._tests.mutants $(ARGS)

# Which branches of the packages that decide over data the unit tests take, and which the simulation: the table of docs/testing.md.
# What was measured is kept until the packages change: ARGS="--minutes 8" again and again comes to the end as well.
branches: $(VENV)/.dev
	$(BIN)/python -m kafkacompat._tests.branches --workers $(WORKERS) --folder $(VENV)/branches --document docs/testing.md $(ARGS)

# The page's tests drive a real Chromium, kcat is one of the clients, and shells complete commands. As root on a system with
# apt they are installed; elsewhere the tests say what is missing.
browser:
	@( for name in chromium chromedriver kcat zsh fish; do command -v $$name >/dev/null || exit 1; done ) || { \
		test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends chromium chromium-driver fonts-dejavu-core kcat zsh fish >/dev/null; \
	} || echo "chromium, chromedriver, kcat, zsh or fish is missing and could not be installed; the tests that need it will say so"

# The tests of metrics run a real Prometheus. It comes after the browser, because apt installs one thing at a time.
prometheus: browser
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || { \
		test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends prometheus >/dev/null; \
	} || echo "prometheus or promtool is missing and could not be installed; the tests that need it will say so"

# The tests of GSSAPI run a real key distribution center, and Python's gssapi (the extra kafkacompat[gssapi]), which is compiled.
kerberos: $(VENV)/.dev prometheus
	@( PATH="$$PATH:/usr/sbin"; for name in krb5kdc kadmin.local kinit krb5-config; do command -v $$name >/dev/null || exit 1; done ) || { \
		test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends krb5-kdc krb5-admin-server krb5-user libkrb5-dev libsasl2-modules-gssapi-mit >/dev/null; \
	} || echo "Kerberos is missing and could not be installed; the tests that need it will say so"
	@$(BIN)/python -c "import gssapi" 2>/dev/null || nice timeout 900 $(BIN)/python -m pip install -q --disable-pip-version-check \
		-r requirements-gssapi.lock || echo "gssapi is missing and could not be installed; the tests that need it will say so"

# What fails is run once more, alone. BOOTSTRAP=host:port runs the suite against any broker; without it kafkacompat is started by the tests, and
# `python -m interop_tests.report --write-only` shows the results in docs/reference/compatibility.md.
interop: $(VENV)/.dev browser prometheus kerberos
	$(BIN)/python -m interop_tests.rerun interop_tests -q -n $(INTEROP_WORKERS) $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP),--junitxml=.cache/interop/kafkacompat.xml)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --document docs/reference/measurements.md --readme README.md $(ARGS)

# The tables of docs/reference/compatibility.md, and the interop suite on both brokers side by side.
compatibility: $(VENV)/.dev
	$(BIN)/python -m kafkacompat.cli.reference
	$(BIN)/python -m kafkacompat.cli.compatibility
	$(BIN)/python -m interop_tests.report $(ARGS)

# The documents, to be read in ./site without a network.
site: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements-site.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

soak: $(VENV)/.dev browser prometheus kerberos
	KAFKACOMPAT_SOAK=1 $(MAKE) -k unit interop

clean:
	rm -rf $(VENV) .cache build dist *.egg-info kafkacompat/*/*.so
