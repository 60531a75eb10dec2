# One-step tasks. `make help` lists them. PYTHON chooses the interpreter (3.11 or newer) that the environment is made with.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
# pytest's workers, three for two cores because tests wait half of their time. Each starts its own Kafka, RabbitMQ and Spark, and takes whole files, the slowest first
JOBS   ?= 3
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help serve test test-all test-k8s preflight coverage mutants seconds lint format brokers bench soak docs image wheel sbom audit check-constraints constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/.serve ## Serve the in-memory backend on 127.0.0.1:8080 (ARGS="--backend ..." for more)
	$(BIN)/oms-bridge serve $(ARGS)

test: preflight lint ## Lint, types and the tests that a change is likely to break, in under 15 minutes (ARGS="-k name" for some)
	$(PYTEST) -m "not extended and not soak" $(ARGS)

test-all: PREFLIGHT := --all
test-all: $(if $(SHARD),preflight $(VENV)/.test,test) ## The rest of the tests as well (SHARD=2/3: only the second third of that rest, without test-k8s)
	$(PYTEST) -m "extended and not soak and not k8s" --reruns 1 $(if $(SHARD),--shard $(SHARD)) $(ARGS)
	$(if $(SHARD),,$(MAKE) test-k8s)

test-k8s: $(VENV)/.test ## The charts on the Kubernetes of KUBECONFIG, else on one that is built once (20 minutes) and ends with the tests
	$(BIN)/python -m pytest -m k8s tests/k8s $(ARGS)

preflight: # the parts that the tests need on this machine, before anything is installed
	@$(PYTHON) -m tests.brokers.preflight $(PREFLIGHT) || [ "$${CI:-}" != true ]

coverage: $(VENV)/.test ## Lines and branches that `make test` runs (TIER=all: with `make test-all`); docs/testing.md
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "$(if $(TIER),not soak and not k8s,not extended and not soak)" $(ARGS)
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report

mutants: $(VENV)/.test ## Change the code in 300 places and count what the tests detect (ARGS="--seed 2"); docs/testing.md
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt mutmut==3.8.1
	$(BIN)/python -m tests.mutants $(ARGS)

seconds: $(VENV)/.test ## Measure every test file again: tests/seconds.json, which orders and shards the tests
	$(PYTEST) -m "not soak and not k8s" --record-seconds $(ARGS)

test-rabbitmq: $(VENV)/.test ## The tests of RabbitMQ, against 4.0 or the version of another Debian (RELEASE=sid)
	OMS_TEST_RABBITMQ_RELEASE=$(or $(RELEASE),trixie) $(PYTEST) -m "not soak" -k rabbitmq tests/rabbitmq tests/conformance $(ARGS)

lint: $(VENV)/.test ## ruff, mypy (strict), and the words that we do not use
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.words
	$(BIN)/mypy

format: $(VENV)/.test ## Format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

brokers: $(VENV)/.test ## Download the brokers for the tests (otherwise the first test that needs one does)
	$(BIN)/python -m tests.brokers

bench: $(VENV)/.test ## Measure, each figure beside its ceiling; writes benchmarks/results/
	$(BIN)/python benchmarks/run.py $(ARGS)

soak: $(VENV)/.test ## The longer runs of the same tests: more examples, more kills
	OMS_TEST_SOAK=1 $(PYTEST) -m "not k8s" $(ARGS)

docs: $(VENV)/.test ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

image: $(VENV)/.serve ## Build both images with Docker (BASE=name for another base)
	version=$$($(BIN)/python -c 'import bridge; print(bridge.__version__)') && \
	docker build --build-arg VERSION=$$version $(if $(BASE),--build-arg BASE=$(BASE)) --target bridge -t openmessaging-bridge -t openmessaging-bridge:$$version . && \
	docker build --build-arg VERSION=$$version $(if $(BASE),--build-arg BASE=$(BASE)) --target mirror -t openmessaging-bridge-mirror -t openmessaging-bridge-mirror:$$version .

wheel: $(VENV)/.test ## Build the sdist, and the wheel from it, into dist/, with the mirror's jars (needs Maven)
	rm -rf bridge/mirror/java # setuptools would include what an earlier state of the files has made
	env -u OMS_MIRROR_JARS $(BIN)/python -c 'import shutil; from bridge.mirror import jars; shutil.copytree(jars.spark_jars()[0].parent, jars.IN_WHEEL)'
	$(BIN)/python -m build --quiet --outdir dist

sbom: build/tools/.installed ## An installation with every extra, as CycloneDX: build/sbom.json
	rm -rf build/lib build/release && $(PYTHON) -m venv --without-pip build/release
	build/tools/bin/pip --python build/release/bin/python install --quiet -c constraints.txt '.[kafka,rabbitmq,fast,jwt,otel,mirror]'
	build/tools/bin/cyclonedx-py environment build/release/bin/python --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.json

audit: build/tools/.installed ## Known vulnerabilities of the pinned packages; needs an index that reports them
	build/tools/bin/pip-audit -r constraints.txt --no-deps --disable-pip --strict

constraints: ## Pin the versions that the environment resolves to (then read the diff)
	rm -rf build/pins && $(PYTHON) -m venv build/pins
	build/pins/bin/pip install --quiet --disable-pip-version-check '.[test]'
	build/pins/bin/pip freeze --exclude openmessaging-bridge --exclude pip --exclude setuptools > constraints.txt

clean: ## Remove the environment and every cache
	rm -rf $(VENV) build dist bridge/mirror/java *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[kafka,rabbitmq,fast,jwt,otel]'
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@ $(VENV)/.serve

build/tools/.installed:
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1
	touch $@
