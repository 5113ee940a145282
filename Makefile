# `make` alone prints what there is.
.DEFAULT_GOAL := help
.PHONY: help setup browser orchestrators demo test check faults faults-spark faults-4.0 chaos model bench lock lock-jars clean
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
# A Spark application of the tests keeps about one core busy. Each worker has a broker and a Spark of its own (about 3 GB);
# the files are taken in their order, the longest first. A third worker gained nothing on two cores (16:15 in place of 16:29).
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
CORE := $(addprefix tests/integration/test_,$(addsuffix .py,batch commit conflict decode_property decode_records decode_sample \
	decode_values epoch event_ids ledger look_back payload platform recover recover_topic)) \
	$(addprefix tests/faults/test_,$(addsuffix .py,killed_at killed_at_a_start two_drivers))

help:  ## print these verbs
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/setup.stamp  ## make .venv from requirements.lock and fetch the pinned jars

.venv/setup.stamp: requirements.lock pyproject.toml ingest/runtime/jars.lock
	@scripts/setup

browser:  ## install the Chromium in which tests look at the Data Docs (root on Debian; without it they are skipped)
	@scripts/browser

orchestrators: .venv-orchestrators/setup.stamp  ## install Airflow and Dagster, in which a test imports the files of docs/how-to (else it is skipped)

.venv-orchestrators/setup.stamp: .venv/setup.stamp scripts/setup_orchestrators scripts/orchestrators.lock
	@scripts/setup_orchestrators

demo: setup  ## ingest sample events into Delta tables with an embedded broker, crash, resume, verify
	@$(BIN)/ingest demo

test: setup  ## lint, types and the tests, less those marked slow
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/pytest -m "not slow" $(WORKERS)

check: setup  ## lint, types and the unit tests (about three minutes)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/pytest -q tests/unit $(WORKERS)

faults: setup  ## the tests marked slow (refusals, mutants, kills at random), and those of faults-spark and faults-4.0 (some hours)
	@$(BIN)/pytest -m slow $(WORKERS)
	@$(MAKE) faults-spark faults-4.0

faults-spark: setup  ## the tests of batch, commit, start and kills with Delta in Spark as the writer (INGEST_WRITER=spark)
	@INGEST_WRITER=spark $(BIN)/pytest $(WORKERS) $(CORE)

faults-4.0: .venv-4.0/setup.stamp  ## the tests of batch, commit, start and kills on Spark 4.0, the line of Databricks Runtime 17.3
	@INGEST_WRITER=spark .venv-4.0/bin/python -m pytest $(WORKERS) $(CORE)

.venv-4.0/setup.stamp: .venv/setup.stamp scripts/setup_4.0
	@scripts/setup_4.0

chaos: setup  ## random faults against a scratch lake, judged; a line in docs/explanation/chaos.md (MINUTES=2 SEED=1 FAULTS=kill-jvm,clock RATE=4000)
	@PYTHONPATH=. $(BIN)/python scripts/chaos.py --minutes $(or $(MINUTES),2) --seed $(or $(SEED),1) --rate $(or $(RATE),4000) \
		$(if $(FAULTS),--faults $(FAULTS)) --project .

model: setup  ## a million random schedules of faults against the engine's decisions; a line in docs/explanation/model.md (SEED=1 SCHEDULES=1000000)
	@PYTHONPATH=. $(BIN)/python scripts/model.py --seed $(or $(SEED),1) --schedules $(or $(SCHEDULES),1000000)

bench: setup  ## how fast is it, beside Delta's own sink and a MERGE by hand (about an hour and a half; writes docs/benchmarks/)
	@$(BIN)/python -m bench.throughput --json docs/benchmarks/throughput.json
	@$(BIN)/python -m bench.throughput --orders --only "native Delta,MERGE,oncelake" --json docs/benchmarks/throughput-orders.json
	@$(BIN)/python -m bench.decoders --json docs/benchmarks/decoders.json
	@$(BIN)/python -m bench.verify --json docs/benchmarks/verify.json
	@$(BIN)/python -m bench.start --json docs/benchmarks/start.json
	@$(BIN)/python -m bench.latency --json docs/benchmarks/latency.json
	@$(BIN)/python -m bench.scale --json docs/benchmarks/scale.json
	@$(BIN)/python -m bench.growth --json docs/benchmarks/growth.json
	@$(BIN)/python -m bench.quality --json docs/benchmarks/quality.json
	@$(BIN)/python -m bench.producer --json docs/benchmarks/producer.json
	@$(BIN)/python -m bench.relay --json docs/benchmarks/relay.json
	@$(BIN)/python -m bench.sink --json docs/benchmarks/sink.json

lock:  ## pin the newest fitting packages with their sums in requirements.lock
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra lab --extra lineage --extra dev --upgrade \
		--custom-compile-command "make lock" pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --constraint requirements.lock \
		--custom-compile-command "make lock" pyproject.toml -o resources/requirements.txt
	@cp resources/requirements.txt ingest/scaffold/templates/requirements.txt.j2

lock-jars: setup  ## download the jars named in ingest/runtime/jars.lock and pin their sums
	@PYTHONPATH=. $(BIN)/python scripts/lock_jars.py

clean:  ## remove the virtual environment, caches and what demos left; lake, checkpoints and the broker's data stay
	@rm -rf demo .venv .venv-4.0 .venv-orchestrators .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	@find ingest tests scripts -name __pycache__ -prune -exec rm -rf {} +
