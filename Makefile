# Two commands on a fresh Debian 12 or Ubuntu 24.04: `make demo` and `make test`. Both install what they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BUILD := build/release

# As .ci/setup decides: PyPI's NVRTC only where there is no other. PyTorch, which the Python tests want, brings one along too.
NVRTC_INSTALLED := $(or $(wildcard /usr/local/cuda/lib64/libnvrtc.so*),$(shell /sbin/ldconfig -p | grep 'libnvrtc\.so'))
NVRTC_FROM_PYPI := $(firstword $(wildcard .venv/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1*))
ifeq ($(NVRTC_INSTALLED),)
ifneq ($(NVRTC_FROM_PYPI),)
export SACCADE_NVRTC ?= $(abspath $(NVRTC_FROM_PYPI))
endif
endif

.PHONY: help setup build python wheels demo test asan lint fuzz portable install clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## Install the packages that the build needs
	@.ci/setup

build: setup ## Build everything, optimised, in build/release
	@cmake --preset release >/dev/null
	@cmake --build --preset release

python: build ## The Python package, in .venv
	@.ci/setup --python
	@.venv/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -C build-dir=$(BUILD) \
	  -C cmake.define.SACCADE_TESTS=ON -C cmake.define.SACCADE_BENCH=ON .

wheels: ## Wheels for other machines in dist: saccade (no LLVM, no CUDA) and saccade-cpu (its CPU compiler)
	@.ci/setup --python
	@.ci/wheels

demo: python ## Real attention problems: chosen, compiled, verified, timed
	@$(MAKE) --no-print-directory run-demo

.PHONY: run-demo
run-demo: # A second make, so that an NVRTC that setup has just installed is seen
	@.venv/bin/python -m saccade.demo
	@$(BUILD)/cli/saccade demo

test: python ## All tests; those that need a GPU are skipped, visibly, where there is none
	@$(MAKE) --no-print-directory run-test

.PHONY: run-test
run-test:
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error
	@.ci/setup --python-tests
	@.venv/bin/python -m pytest -q tests/python

# Left out: two tests that are minutes of NVRTC, which the sanitizers do not see.
asan: setup ## The CPU tests under AddressSanitizer and UBSan
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan
	@ctest --test-dir build/asan --output-on-failure --no-tests=error -LE 'gpu|install|slow' -E 'test_support_table|test_gpu_grid_compiles'

lint: ## clang-format and clang-tidy
	@.ci/setup --lint
	@.ci/lint

fuzz: ## Fuzz each reader for FUZZ_SECONDS (default 600)
	@.ci/setup --fuzz
	@.ci/fuzz

portable: setup ## A folder that runs on any x86-64 Linux box with a GPU: build/portable
	@cmake --preset portable >/dev/null
	@cmake --build --preset portable

install: build ## Install to PREFIX (default /usr/local)
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean: ## Remove all builds
	@rm -rf build
