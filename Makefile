# Every target sets up what it needs and can be repeated; stamp files remember what is done.
#   make demo | test | lint | typecheck | docs | check-all | zoo | speed | clean
PYTHON ?= python3
PIP_FLAGS ?=
PYTEST_ARGS ?= -n auto
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-torch test-jax test-tf test-vision lint typecheck docs docs-serve check-all zoo zoo-vision speed format clean

BIN := .venv/bin
TEST_ENV := OMP_NUM_THREADS=1

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

define environment
	@echo "==> $(1): installing $(2) (first run only; a few minutes)"
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(1)/bin/python -m pip install -qq --disable-pip-version-check $(PIP_FLAGS) -c $(3) -e '.[$(2)]'
	@touch $@
endef

.venv/.run: pyproject.toml constraints.txt
	$(call environment,.venv,torch$(comma)plot,constraints.txt)

.venv/.dev: pyproject.toml constraints.txt .venv/.run
	$(call environment,.venv,dev,constraints.txt)

.venv-jax/.dev: pyproject.toml constraints.txt
	$(call environment,.venv-jax,test-jax,constraints.txt)

.venv-tf/.dev: pyproject.toml constraints.txt
	$(call environment,.venv-tf,test-tf,constraints.txt)

.venv-vision/.dev: pyproject.toml constraints-vision.txt
	$(call environment,.venv-vision,test-vision,constraints-vision.txt)

.venv-docs/.dev: pyproject.toml constraints.txt
	$(call environment,.venv-docs,docs,constraints.txt)

.venv-peer/.dev: constraints.txt
	@echo "==> .venv-peer: installing torch and anyinit 0.4.0 (first run only)"
	@test -x .venv-peer/bin/python || $(PYTHON) -m venv .venv-peer
	@.venv-peer/bin/python -m pip install -qq --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt torch anyinit==0.4.0
	@touch $@

comma := ,

demo: .venv/.run ## the depth example: table on the screen, picture in examples/out/
	@echo "==> examples/depth_matters.py"
	@$(BIN)/python examples/depth_matters.py

test: test-torch test-jax test-tf ## all tests but those that need torchvision

test-torch: .venv/.dev ## core, report, house and PyTorch tests
	@echo "==> tests (core and PyTorch)"
	@$(TEST_ENV) ANYINIT_FRAMEWORKS=torch $(BIN)/python -m pytest $(PYTEST_ARGS) tests

test-jax: .venv-jax/.dev ## JAX tests, in an environment without PyTorch
	@echo "==> tests (JAX)"
	@$(TEST_ENV) ANYINIT_FRAMEWORKS=jax,keras KERAS_BACKEND=jax .venv-jax/bin/python -m pytest $(PYTEST_ARGS) tests/house $(wildcard tests/jax) tests/keras

test-tf: .venv-tf/.dev ## TensorFlow and Keras tests, in an environment without PyTorch and JAX
	@echo "==> tests (TensorFlow and Keras)"
	@$(TEST_ENV) ANYINIT_FRAMEWORKS=tensorflow,keras KERAS_BACKEND=tensorflow .venv-tf/bin/python -m pytest $(PYTEST_ARGS) tests/house tests/tensorflow tests/keras

test-vision: .venv-vision/.dev ## torchvision and timm tests, in their own environment
	@echo "==> tests (torchvision)"
	@$(TEST_ENV) ANYINIT_FRAMEWORKS=vision .venv-vision/bin/python -m pytest $(PYTEST_ARGS) tests/house $(wildcard tests/vision)

lint: .venv/.dev ## ruff: rules and formatting
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'."; exit 1; }

format: .venv/.dev ## let ruff repair what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: .venv/.dev ## pyright: strict in the core rooms
	@echo "==> pyright"
	@$(BIN)/pyright

docs: .venv-docs/.dev ## the site in site/; a broken link or an orphaned page is an error
	@echo "==> mkdocs"
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet

docs-serve: .venv-docs/.dev ## the site on localhost, rebuilt on every change
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs serve

check-all: lint typecheck docs test test-vision ## everything

speed: .venv/.dev .venv-peer/.dev .venv-jax/.dev ## time a call, beside published anyinit 0.4.0
	@echo "==> benchmarks/speed.py"
	@$(BIN)/python benchmarks/speed.py --peer .venv-peer/bin/python --jax .venv-jax/bin/python

zoo: .venv/.dev ## place and predict a zoo of models, one line each
	@echo "==> benchmarks/zoo.py"
	@$(BIN)/python benchmarks/zoo.py

zoo-vision: .venv/.dev ## the same for light shapes of vision models
	@echo "==> benchmarks/zoo.py --file benchmarks/models_vision.py"
	@$(TEST_ENV) $(BIN)/python benchmarks/zoo.py --file benchmarks/models_vision.py

clean: ## remove environments and everything generated
	rm -rf .venv .venv-jax .venv-tf .venv-vision .venv-docs .venv-peer examples/out site .pytest_cache .ruff_cache .hypothesis build dist
