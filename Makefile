# One-step tasks. `make help` lists them. PYTHON chooses the interpreter (3.11 or newer) that the environment is made with.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
# pytest's workers, each with brokers of its own: 4 are quicker on two cores (18 minutes in place of 33), and now and then too slow for a broker
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help serve test test-rabbitmq lint format brokers bench soak docs image wheel sbom audit check-constraints constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/.serve ## Serve the in-memory backend on 127.0.0.1:8080 (ARGS="--server granian ..." for more)
	$(BIN)/oms-bridge serve $(ARGS)

test: $(VENV)/.test lint ## Everything CI runs: lint, types, all tests (ARGS="-k name" for some); docs/decisions/0019
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --reruns 1 $(ARGS)

test-rabbitmq: $(VENV)/.test ## What concerns RabbitMQ, against 4.0 or that of another Debian (RELEASE=sid)
	OMS_TEST_RABBITMQ_RELEASE=$(RELEASE) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -k rabbitmq \
		tests/rabbitmq tests/conformance $(ARGS)

lint: $(VENV)/.test ## ruff and mypy, strict, over everything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test ## Format and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

brokers: $(VENV)/.test ## Fetch what the tests' own brokers need (the first test that wants one does the same)
	$(BIN)/python -m tests.brokers

bench: $(VENV)/.test ## Measure, each figure beside its ceiling; writes benchmarks/results/
	$(BIN)/python benchmarks/run.py $(ARGS)

soak: $(VENV)/.test ## The longer runs of the same tests: more examples, more kills
	OMS_TEST_SOAK=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

docs: $(VENV)/.test ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

image: $(VENV)/.serve ## Build both images with the Docker that is there (BASE=name for another base)
	version=$$($(BIN)/python -c 'import bridge; print(bridge.__version__)') && \
	docker build --build-arg VERSION=$$version $(if $(BASE),--build-arg BASE=$(BASE)) --target bridge -t openmessaging-bridge . && \
	docker build --build-arg VERSION=$$version $(if $(BASE),--build-arg BASE=$(BASE)) --target mirror -t openmessaging-bridge-mirror .

wheel: ## Build the wheel into dist/
	rm -rf build/lib build/bdist.* # setuptools would take what is no longer in the tree
	$(PYTHON) -m pip wheel --no-deps --quiet --disable-pip-version-check --wheel-dir dist .

sbom: build/tools/.installed ## An installation with every extra, as CycloneDX: build/sbom.json
	rm -rf build/lib build/release && $(PYTHON) -m venv --without-pip build/release
	build/tools/bin/pip --python build/release/bin/python install --quiet -c constraints.txt '.[kafka,rabbitmq,fast,mirror]'
	build/tools/bin/cyclonedx-py environment build/release/bin/python --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json

audit: build/tools/.installed ## Known vulnerabilities of what is pinned; needs an index that tells of them
	build/tools/bin/pip-audit -r constraints.txt --no-deps --disable-pip --strict

constraints: ## Pin anew what the environment resolves to (then read the diff)
	rm -rf build/pins && $(PYTHON) -m venv build/pins
	build/pins/bin/pip install --quiet --disable-pip-version-check '.[test]'
	build/pins/bin/pip freeze --exclude openmessaging-bridge --exclude pip --exclude setuptools > constraints.txt

clean: ## Remove the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[kafka,rabbitmq,fast]'
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.serve

build/tools/.installed:
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	touch $@
