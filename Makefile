# Everything the project does, by name. `make` or `make help` lists the targets.
#
# Environments are made once and kept: each has stamp files that depend on the locks in requirements/, and the wheel has
# one that depends on the sources, so that a second run of any target installs and builds only what has changed.

PYTHON      ?= python3
NEWEST_PYTHON ?= python3.12
WORKERS     ?= 2
PYTEST_ARGS ?=
RUNS        ?= 10
LOADS       ?= 4
LOADED      ?= test
ARROW_EXAMPLES ?= 5000
BENCH_ARGS  ?=
FUZZ_ARGS   ?=
FAST_PATHS  ?=
SHARD       ?=
QUICK       ?=
SANITIZERS  ?=
ALL         ?=
CARGO_FLAGS ?=
# Compiles the kernels, and runs Miri and ThreadSanitizer. Another date may compile the kernels to other text.
NIGHTLY     ?= nightly-2026-05-20

VENV        := .venv
OLDEST      := .venv-oldest
NEWEST      := .venv-newest
DEMO        := .venv-demo
DISTRIBUTED := .venv-distributed
LIBRARIES   := .venv-libraries
BUILD       := .venv-build
WHEELS      := target/wheels
# The oldest C library that the wheel runs on: that of PyTorch's wheel.
MANYLINUX   := manylinux_2_28
# Where the stand-in for the CUDA driver lies under the name of the real one, for tests alone.
DRIVER      := target/testdriver
# Tools that are compiled from source.
TOOLS       := $(abspath target/tools)
CARGO_DENY_VERSION := 0.20.2
CARGO_DENY  := $(TOOLS)/bin/cargo-deny
# The seconds that each GPU test takes.
GPU_DURATIONS := tests/gpu/durations.json
UV          := $(VENV)/bin/uv
UV_FLAGS    := --quiet
LOCKS       := requirements/test.lock requirements/tools.lock requirements/docs.lock

# The crates whose tests need no Python: the sanitizers run these, and Miri the one that makes no system calls.
PURE_CRATES := -p tensorferry -p tensorferry-arrow -p tensorferry-core -p tensorferry-cuda -p tensorferry-files -p tensorferry-share
MIRI_CRATES := -p tensorferry-core

# The crates with a stable interface, which public-api.txt of each lists.
PUBLIC_CRATES := crates/tensorferry crates/tensorferry-pyo3

# What goes into the wheel. The list itself is a dependency too, so that a deleted file is noticed.
SOURCES := $(sort $(wildcard Cargo.toml Cargo.lock pyproject.toml README.md LICENSE) \
           $(shell find crates python -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name '*.h' -o -name '*.css' -o -name '*.js' -o -name py.typed \) \
                   -not -path '*/tests/*' -not -path '*/benches/*' -not -path 'crates/tensorferry/*' -not -path 'crates/tensorferry-pyo3/*' -not -path 'crates/testdriver/*' 2>/dev/null) \
           crates/cuda/src/kernels.ptx)

# One interpreter for every build, so that cargo and maturin do not undo each other's work.
export PYO3_PYTHON := $(abspath $(VENV)/bin/python)
# As maturin sets it: nothing that is built here links libpython.
export PYO3_BUILD_EXTENSION_MODULE := 1
# TensorFlow's start-up notes about CPU instructions are no news here.
export TF_CPP_MIN_LOG_LEVEL ?= 2
unexport PYTHONPATH VIRTUAL_ENV
# Without bytecode, every process of a test would compile the frameworks: 13 seconds for TensorFlow instead of 5.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  variables: PYTHON=$(PYTHON)  WORKERS=$(WORKERS) (test processes)  PYTEST_ARGS  BENCH_ARGS  FUZZ_ARGS  CARGO_FLAGS"

##### use

.PHONY: demo
demo: $(if $(ALL),$(VENV),$(DEMO))/.stamp-wheel ## Carry one array around NumPy, PyTorch, JAX and TensorFlow and check each hop (ALL=1: every framework, in .venv)
	@$(<D)/bin/python examples/demo.py
	@echo "To go on: $(<D)/bin/python has tensorferry and these frameworks"

.PHONY: setup
setup: $(VENV)/.stamp-packages ## Make .venv with the frameworks and tools of the locks

.PHONY: wheel
wheel: $(WHEELS)/.stamp ## Build the wheel into target/wheels
	@ls $(WHEELS)/tensorferry-*.whl

# cargo takes a package of a version that it has unpacked or compiled before for the same one, also in a dry run.
.PHONY: package
package: $(VENV)/.stamp-uv ## Package the crates as for a registry, and compile each from its package; publishes nothing
	rm -rf target/packages $${CARGO_HOME:-$$HOME/.cargo}/registry/src/-*/tensorferry*
	cargo publish $(CARGO_FLAGS) --workspace --all-features --dry-run --target-dir target/packages

.PHONY: docs
docs: $(VENV)/.stamp-wheel ## Build the documentation site into target/site
	$(VENV)/bin/python docs/build.py

##### test

.PHONY: test
test: setup test-rust test-python test-public test-browser ## Set up everything and run all tests, Rust and Python (not the slow ones)

.PHONY: test-rust
test-rust: $(DRIVER)/libcuda.so.1 ## Run the Rust tests
	LD_LIBRARY_PATH=$(abspath $(DRIVER)) RUSTDOC=$(abspath lints/rustdoc_unstable.sh) cargo test $(CARGO_FLAGS) --workspace --exclude tensorferry-python

.PHONY: test-python
test-python: $(VENV)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run the Python tests against the installed wheel
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: test-load
test-load: $(VENV)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run `make test` RUNS times beside LOADS busy loops (10 and 4), and record the outcomes: none may depend on time
	PYTEST_ARGS="$(PYTEST_ARGS)" $(VENV)/bin/python tests/repeat_under_load.py --runs $(RUNS) --loads $(LOADS) $(LOADED)

.PHONY: test-public
test-public: $(VENV)/.stamp-wheel ## Run the matrix through the frameworks' public functions only
	TENSORFERRY_DISABLE=all $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) \
	    tests/matrix/test_cells.py tests/matrix/test_writes.py tests/matrix/test_lifetimes.py tests/test_front.py \
	    tests/sparse_tensors/test_matrix.py tests/test_fast_paths.py::test_each_is_active_after_trips_between_all_or_none_is

.PHONY: test-fast-paths
test-fast-paths: $(VENV)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run the matrix cells of each framework with each of its fast paths off (FAST_PATHS="torch.lazy_bits" for some)
	$(VENV)/bin/python tests/each_fast_path_off.py $(FAST_PATHS) -- -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: test-browser
test-browser: $(VENV)/.stamp-wheel browser ## Run the tests of the report and of the site in headless Chromium
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS) tests/browser

.PHONY: browser
browser: ## Install Chromium and its driver from Debian's packages, where they are missing
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	    echo "Chromium is missing: apt-get installs it now (as root; elsewhere install chromium and chromedriver yourself)"; \
	    { apt-get install -qq -y --no-install-recommends chromium chromium-driver || \
	      { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium chromium-driver; }; } >/dev/null; }

.PHONY: test-slow
test-slow: $(VENV)/.stamp-wheel ## Run the slow Python tests (tensors over 4 GiB), one at a time
	$(VENV)/bin/python -m pytest -m slow $(PYTEST_ARGS)

.PHONY: test-arrow
test-arrow: $(VENV)/.stamp-wheel ## Run 5,000 examples of each property of columns and tables of Arrow (ARROW_EXAMPLES=50000 for more)
	ARROW_EXAMPLES=$(ARROW_EXAMPLES) $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) tests/arrow/test_properties.py

.PHONY: test-extensions
test-extensions: $(VENV)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run all tests of extension modules, and those of the adapters for faer and candle
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(PYTEST_ARGS) tests/extensions
	CARGO_TARGET_DIR=$(abspath target/adapters) cargo clippy $(CARGO_FLAGS) --manifest-path adapters/Cargo.toml --all-targets -- -D warnings
	CARGO_TARGET_DIR=$(abspath target/adapters) cargo test $(CARGO_FLAGS) --manifest-path adapters/Cargo.toml

# Each engine has a run of its own, because its cluster serves one run, and none has the processes of pytest-xdist.
.PHONY: test-distributed
test-distributed: $(DISTRIBUTED)/.stamp-wheel ## Run the tests with clusters of Ray and Dask, and those of joblib (QUICK=1 for the quick set, which the gate runs)
	for engine in ray dask joblib; do \
	    $(DISTRIBUTED)/bin/python -m pytest --confcutdir=tests/distributed $(if $(QUICK),--quick) $(PYTEST_ARGS) tests/distributed/$$engine || exit 1; \
	done

.PHONY: test-libraries
test-libraries: $(LIBRARIES)/.stamp-wheel ## Run the tests with the libraries of the page "Works with" (PYTEST_ARGS="--record benches/records" writes a record)
	$(LIBRARIES)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) tests/libraries

.PHONY: test-oldest
test-oldest: $(OLDEST)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run the Python tests against the oldest supported frameworks (Python 3.11 or 3.12)
	$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: test-newest
test-newest: $(NEWEST)/.stamp-wheel $(DRIVER)/libcuda.so.1 ## Run the Python tests against the newest frameworks, on Python 3.12 or later
	$(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: test-gpu
test-gpu: $(VENV)/.stamp-wheel ## Run the tests that need a CUDA GPU, with whatever frameworks are there (SHARD=1/3 for a third by time, QUICK=1 for each test, pair and parameter once)
	$(VENV)/bin/python -m pytest --confcutdir=tests/gpu tests/gpu $(if $(QUICK),--quick) \
	    $(if $(SHARD),--splits $(word 2,$(subst /, ,$(SHARD))) --group $(word 1,$(subst /, ,$(SHARD))) \
	        --splitting-algorithm least_duration --durations-path $(GPU_DURATIONS)) $(PYTEST_ARGS)

.PHONY: time-gpu
time-gpu: $(VENV)/.stamp-wheel ## Run the tests that need a CUDA GPU, and store their times for SHARD
	$(VENV)/bin/python -m pytest --confcutdir=tests/gpu tests/gpu --store-durations --clean-durations --durations-path $(GPU_DURATIONS) $(PYTEST_ARGS)

# The order of `make sanitizers`: the cheapest first.
.PHONY: loom
loom: ## Model the helper threads and the drop queue, in the interleavings of up to three threads
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test $(CARGO_FLAGS) -p tensorferry-core --lib models

.PHONY: miri
miri: nightly ## Run the Rust tests that need neither Python nor the system under Miri
	MIRIFLAGS="$${MIRIFLAGS--Zmiri-disable-isolation}" PROPTEST_CASES=$${PROPTEST_CASES-4} \
	    cargo +$(NIGHTLY) miri test $(CARGO_FLAGS) $(MIRI_CRATES) --tests

.PHONY: asan
asan: HOST = $(shell rustc -vV | sed -n 's/^host: //p')
asan: $(DRIVER)/libcuda.so.1 ## Run the Rust tests that need no Python under AddressSanitizer, leaks included
	LD_LIBRARY_PATH=$(abspath $(DRIVER)) ASAN_OPTIONS=allocator_may_return_null=1 LSAN_OPTIONS=suppressions=$(abspath tests/lsan_suppressions.txt) \
	    RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
	    cargo test $(CARGO_FLAGS) $(PURE_CRATES) --tests --target $(HOST)

.PHONY: tsan
tsan: HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# Tests ask for impossible amounts of memory, and start threads in the child of a fork; ThreadSanitizer ends a program for both by
# default. They start hundreds of processes, each of which would sleep for a second at its end, and expect one to die of SIGSEGV.
# One ends between the start of a thread and the moment at which its creator detaches it, which is reported as a leaked thread.
# They count descriptors, two of which an external symbolizer would open; TSAN_SYMBOLIZER=llvm-symbolizer gives reports their lines.
tsan: TSAN_OPTIONS = allocator_may_return_null=1 die_after_fork=0 atexit_sleep_ms=0 handle_segv=0 report_thread_leaks=0 \
    suppressions=$(abspath tests/tsan_suppressions.txt) external_symbolizer_path=$(TSAN_SYMBOLIZER)
tsan: nightly $(DRIVER)/libcuda.so.1 ## Run the Rust tests that need no Python under ThreadSanitizer
	LD_LIBRARY_PATH=$(abspath $(DRIVER)) TSAN_OPTIONS="$(TSAN_OPTIONS)" PROPTEST_CASES=$${PROPTEST_CASES-32} \
	    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=target/tsan \
	    cargo +$(NIGHTLY) test $(CARGO_FLAGS) -Zbuild-std $(PURE_CRATES) --tests --target $(HOST)

.PHONY: sanitizers
sanitizers: $(VENV)/.stamp-wheel ## Run loom, miri, asan and tsan in this order, and record the results in benches/records (SANITIZERS="loom tsan" for some)
	NIGHTLY=$(NIGHTLY) $(VENV)/bin/python tests/record_sanitizers.py $(SANITIZERS)

.PHONY: nightly
nightly: # Adds Miri and the sources of the standard library to the nightly toolchain
	@cargo +$(NIGHTLY) miri --version >/dev/null 2>&1 && test -d "$$(rustc +$(NIGHTLY) --print sysroot)/lib/rustlib/src/rust/library" || { \
	    echo "The toolchain $(NIGHTLY) has no Miri or no rust-src: rustup installs them now"; \
	    if rustup run $(NIGHTLY) rustc --version >/dev/null 2>&1; \
	    then rustup component add miri rust-src --toolchain $(NIGHTLY); \
	    else rustup toolchain install $(NIGHTLY) --profile minimal -c miri -c rust-src; fi; }

STRESS_SECONDS ?= 600

.PHONY: stress
stress: $(VENV)/.stamp-wheel ## Look for hangs when memory is released on any thread (STRESS_SECONDS=3600 for longer, STRESS_ARGS=PROGRAM for one)
	TF_CPP_MIN_LOG_LEVEL=2 $(VENV)/bin/python tests/stress/run.py --seconds $(STRESS_SECONDS) $(STRESS_ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.stamp-wheel ## Fuzz the parsers of files, of data from other processes and of Arrow (FUZZ_ARGS="--seconds 720" for longer; needs cargo-fuzz and the nightly toolchain)
	NIGHTLY=$(NIGHTLY) $(VENV)/bin/python fuzz/run.py $(FUZZ_ARGS)

##### measure

.PHONY: bench
bench: $(VENV)/.stamp-wheel $(DISTRIBUTED)/.stamp-wheel ## Measure against the best native one-liners (BENCH_ARGS="--quick --only percall" for less)
	$(VENV)/bin/python benches/run.py $(BENCH_ARGS)

##### kernels

KERNELS := crates/cuda/kernels
KERNELS_TARGET := nvptx64-nvidia-cuda
KERNELS_PTX := crates/cuda/src/kernels.ptx
KERNELS_SOURCES := $(sort $(wildcard $(KERNELS)/src/*.rs)) crates/cuda/src/jobs.rs crates/core/src/pack/number.rs
# The first line of the PTX, for a file with the other lines: the compiler, and the digests of the sources and of the other lines.
kernels_header = // Generated by make kernels with $(NIGHTLY). SHA-256 of the sources: $$(cat $(KERNELS_SOURCES) | sha256sum | cut -c 1-64), of the lines below: $$(sha256sum < $(1) | cut -c 1-64)

.PHONY: kernels
kernels: target/kernels/kernels.ptx ## Compile the GPU kernels to crates/cuda/src/kernels.ptx (installs the nightly toolchain if it is missing)
	cp $< $(KERNELS_PTX)

.PHONY: check-kernels
check-kernels: target/kernels/kernels.ptx ## Compile the GPU kernels again, and compare them with crates/cuda/src/kernels.ptx
	cmp $< $(KERNELS_PTX)

target/kernels/kernels.ptx: FORCE
	@rustup run $(NIGHTLY) rustc --version >/dev/null 2>&1 || rustup toolchain install $(NIGHTLY) --profile minimal
	@rustup component add rust-src --toolchain $(NIGHTLY)
	touch $(KERNELS)/src/lib.rs
	cd $(KERNELS) && CARGO_TARGET_DIR=$(abspath target/kernels) RUSTFLAGS="-C target-cpu=sm_70" \
	    cargo +$(NIGHTLY) rustc --release -Zbuild-std=core --target $(KERNELS_TARGET) -- \
	    -C llvm-args=-unroll-threshold=1200 --emit=asm=$(abspath target/kernels/kernels.s)
	{ echo "$(call kernels_header,target/kernels/kernels.s)"; cat target/kernels/kernels.s; } > $@

##### check

.PHONY: lint
lint: lint-structure lint-names lint-unsafe lint-rust lint-docs lint-public-api lint-dependencies lint-kernels lint-python lint-workflows lint-wheel ## Check format, names, import cycles, unsafe code, lints, documentation, the public API of the crates, licences, types, workflows, stubs, the stable ABI and the oldest C library

.PHONY: lint-structure
lint-structure: $(VENV)/.stamp-uv
	$(VENV)/bin/python lints/module_cycles.py $(wildcard crates/*)
	$(VENV)/bin/python lints/unique_types.py
	$(VENV)/bin/python lints/inline_programs.py

.PHONY: lint-names
lint-names: $(VENV)/.stamp-uv
	$(VENV)/bin/python lints/discouraged_names.py

.PHONY: lint-rust
lint-rust: $(VENV)/.stamp-uv
	cargo fmt --all --check
	cargo fmt --manifest-path adapters/Cargo.toml --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	cargo clippy $(CARGO_FLAGS) -p tensorferry --no-default-features -- -D warnings

.PHONY: lint-unsafe
lint-unsafe: $(VENV)/.stamp-uv
	$(VENV)/bin/python lints/unsafe_counts.py $(wildcard crates/*)

.PHONY: lint-docs
lint-docs: $(VENV)/.stamp-uv
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --quiet --workspace --all-features --no-deps --document-private-items

.PHONY: lint-public-api
lint-public-api: $(VENV)/.stamp-uv
	$(VENV)/bin/python lints/public_api.py $(PUBLIC_CRATES)

.PHONY: lint-dependencies
lint-dependencies: $(CARGO_DENY)
	$(CARGO_DENY) $(CARGO_FLAGS) check --hide-inclusion-graph bans licenses sources
	@for crate in adapters benches/extension fuzz; do cargo metadata --locked --format-version 1 --manifest-path $$crate/Cargo.toml > /dev/null || \
	    { echo "error: $$crate/Cargo.lock is out of date: run cargo metadata --manifest-path $$crate/Cargo.toml" >&2; exit 1; }; done

.PHONY: lint-kernels
lint-kernels:
	@mkdir -p target/kernels
	@tail -n +2 $(KERNELS_PTX) > target/kernels/body
	@test "$(call kernels_header,target/kernels/body)" = "$$(head -n 1 $(KERNELS_PTX))" || \
	    { echo "error: $(KERNELS_PTX) was edited, or its sources were: run make kernels" >&2; exit 1; }

.PHONY: lint-python
lint-python: $(VENV)/.stamp-packages
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/python -m mypy
	PYTHONPATH=python $(VENV)/bin/lint-imports

.PHONY: lint-wheel
lint-wheel: $(VENV)/.stamp-wheel
	$(VENV)/bin/python -m mypy.stubtest --mypy-config-file pyproject.toml tensorferry._native
	$(VENV)/bin/abi3audit --strict --summary $(WHEELS)/tensorferry-*.whl
	$(VENV)/bin/python lints/wheel_symbols.py $(WHEELS)/tensorferry-*.whl

.PHONY: lint-workflows
lint-workflows: $(VENV)/.stamp-packages
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/zizmor --offline --quiet --persona auditor .github/workflows

.PHONY: fmt
fmt: $(VENV)/.stamp-packages ## Format the sources and apply the safe fixes
	cargo fmt --all
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

##### keep

COMPILE = $(UV) pip compile --quiet --python-platform x86_64-manylinux_2_35 \
          --no-header --no-emit-index-url --annotation-style line $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: $(VENV)/.stamp-uv ## Compile requirements/*.in to the locks (UPGRADE=1 takes the newest versions)
	$(COMPILE) --python-version 3.11 requirements/build.in -o requirements/build.lock
	$(COMPILE) --python-version 3.11 requirements/test.in -o requirements/test.lock
	$(COMPILE) --python-version 3.11 requirements/tools.in -c requirements/test.lock -o requirements/tools.lock
	$(COMPILE) --python-version 3.11 requirements/docs.in -c requirements/test.lock -c requirements/tools.lock -o requirements/docs.lock
	$(COMPILE) --python-version 3.11 requirements/distributed.in -c requirements/test.lock -o requirements/distributed.lock
	$(COMPILE) --python-version 3.11 requirements/libraries.in requirements/test.in -c requirements/test.lock -o requirements/libraries.lock
	$(COMPILE) --python-version 3.11 requirements/oldest.in -o requirements/oldest.lock
	$(COMPILE) --python-version 3.12 requirements/test.in requirements/tools.in requirements/docs.in -o requirements/newest.lock

.PHONY: clean
clean: ## Remove what was built; the environments stay
	rm -rf target .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find crates python tests examples benches docs lints -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: distclean
distclean: clean ## Remove the environments too
	rm -rf $(VENV) $(OLDEST) $(NEWEST) $(DEMO) $(DISTRIBUTED) $(LIBRARIES) $(BUILD)

##### how the environments and the wheel come about

$(VENV)/.stamp-uv: requirements/bootstrap.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "error: $(PYTHON) is not Python 3.11 or later; name one that is: make PYTHON=python3.12" >&2; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.stamp-packages: $(LOCKS) $(VENV)/.stamp-uv
	@echo "Installing every framework and the tools into $(VENV) (9 GB)"
	@$(UV) pip sync $(UV_FLAGS) --python $(VENV)/bin/python $(LOCKS)
	@touch $@

$(OLDEST)/.stamp-packages: requirements/oldest.lock | $(VENV)/.stamp-uv
	test -x $(OLDEST)/bin/python || $(UV) venv $(UV_FLAGS) --python $(VENV)/bin/python $(OLDEST)
	$(UV) pip sync $(UV_FLAGS) --python $(OLDEST)/bin/python $<
	@touch $@

$(BUILD)/.stamp-packages: requirements/build.lock | $(VENV)/.stamp-uv
	test -x $(BUILD)/bin/python || $(UV) venv $(UV_FLAGS) --python $(VENV)/bin/python $(BUILD)
	$(UV) pip sync $(UV_FLAGS) --python $(BUILD)/bin/python $<
	@touch $@

$(DISTRIBUTED)/.stamp-packages: requirements/distributed.lock | $(VENV)/.stamp-uv
	test -x $(DISTRIBUTED)/bin/python || $(UV) venv $(UV_FLAGS) --python $(VENV)/bin/python $(DISTRIBUTED)
	$(UV) pip sync $(UV_FLAGS) --python $(DISTRIBUTED)/bin/python $<
	@touch $@

$(LIBRARIES)/.stamp-packages: requirements/libraries.lock | $(VENV)/.stamp-uv
	test -x $(LIBRARIES)/bin/python || $(UV) venv $(UV_FLAGS) --python $(VENV)/bin/python $(LIBRARIES)
	$(UV) pip sync $(UV_FLAGS) --python $(LIBRARIES)/bin/python $<
	@touch $@

# PyTorch without CUDA is on PyTorch's own index alone. Where that cannot be reached, the build with CUDA does as well.
$(DEMO)/.stamp-packages: requirements/demo.in requirements/test.lock | $(VENV)/.stamp-uv
	@test -x $(DEMO)/bin/python || $(UV) venv $(UV_FLAGS) --python $(VENV)/bin/python $(DEMO)
	@echo "Installing NumPy, PyTorch, JAX and TensorFlow into $(DEMO) (about 3 GB)"
	@$(UV) pip install $(UV_FLAGS) --python $(DEMO)/bin/python --torch-backend cpu -r $< -c requirements/test.lock || { \
	    echo "PyTorch without CUDA could not be installed: taking PyTorch with CUDA (3 GB to download)"; \
	    $(UV) pip install $(UV_FLAGS) --python $(DEMO)/bin/python -r $< -c requirements/test.lock; }
	@touch $@

# Some frameworks no longer release for Python 3.11.
$(NEWEST)/.stamp-packages: requirements/newest.lock | $(VENV)/.stamp-uv
	@$(NEWEST_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || \
	    { echo "error: $(NEWEST_PYTHON) is not Python 3.12 or later; name one that is: make test-newest NEWEST_PYTHON=python3.13" >&2; exit 1; }
	test -x $(NEWEST)/bin/python || $(UV) venv $(UV_FLAGS) --python $(NEWEST_PYTHON) $(NEWEST)
	$(UV) pip sync $(UV_FLAGS) --python $(NEWEST)/bin/python $<
	@touch $@

# Not editable, and without resolving anything: the tests run what users get, with the versions of the lock.
%/.stamp-wheel: $(WHEELS)/.stamp %/.stamp-packages
	$(UV) pip install $(UV_FLAGS) --python $*/bin/python --no-deps --force-reinstall $(WHEELS)/tensorferry-*.whl
	@touch $@

# Zig links against the symbols of an old glibc. It would also link an unwinder of its own into the module, which ends the process
# where glibc unwinds a thread by that of libgcc (`pthread_exit`): the system's is named before it.
$(WHEELS)/.stamp: $(SOURCES) $(WHEELS)/.sources requirements/build.lock | $(BUILD)/.stamp-packages
	rm -f $(WHEELS)/tensorferry-*.whl
	CARGO_ZIGBUILD_ZIG_PATH=$$($(BUILD)/bin/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))') \
	    $(BUILD)/bin/maturin build $(CARGO_FLAGS) --release --zig --compatibility $(MANYLINUX) --interpreter $(VENV)/bin/python --out $(WHEELS) \
	    -- -C link-arg=$$($(CC) -print-file-name=libgcc_s.so.1)
	@touch $@

# Without optimisation: it compiles in half the time, and runs for a second.
$(CARGO_DENY):
	cargo install --quiet --locked --debug --root $(TOOLS) --target-dir $(TOOLS)/build cargo-deny@$(CARGO_DENY_VERSION)
	rm -rf $(TOOLS)/build

# Built anew each time it is asked for: cargo knows best whether there is anything to do.
$(DRIVER)/libcuda.so.1: FORCE
	cargo build $(CARGO_FLAGS) --quiet --package tensorferry-testdriver
	@mkdir -p $(@D)
	@cmp -s target/debug/libcuda.so $@ || cp target/debug/libcuda.so $@

$(WHEELS)/.sources: FORCE
	@mkdir -p $(@D)
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

.PHONY: FORCE
FORCE:
