# One target per stage; MODEL names a file in models/. `make` alone lists them.
MODEL ?= smollm2-135m
PORT ?= 8393
INPUT ?= prompt=What is the capital of France?
COGSMITH = .venv/bin/cogsmith
DEMO_MODEL = weights/SmolLM2-135M-Instruct.Q4_1.gguf
PYTHON_FILES = cli runtime scripts tests benchmarks

.PHONY: help venv lock pack render predict serve demo check fix test pins schema golden bench-help bench-predictor bench-weights clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## .venv with cogsmith in it; installs what the system lacks
	@scripts/bootstrap

lock: venv ## read the checkpoint, write models/MODEL.lock
	$(COGSMITH) lock $(MODEL)

pack: venv ## pack the weights into the bucket, lock them
	$(COGSMITH) pack $(MODEL)

render: venv ## write build/MODEL/
	$(COGSMITH) render $(MODEL)

predict: venv ## one answer: make predict MODEL=x INPUT='prompt=Hello'
	$(COGSMITH) predict $(MODEL) --on local -i '$(INPUT)'

serve: venv ## serve MODEL on PORT until Ctrl-C
	$(COGSMITH) serve $(MODEL) --on local --port $(PORT)

demo: venv ## the whole path on a small real model: fetch, convert, pack, render, serve, ask
	@scripts/demo-model $(DEMO_MODEL)
	$(COGSMITH) pack smollm2-135m
	$(COGSMITH) predict smollm2-135m --on local -i temperature=0 -i max_tokens=40 -i prompt='What is the capital of France?'

check: venv ## format, lint, types, generated files, fast tests
	.venv/bin/ruff format --check $(PYTHON_FILES)
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/mypy
	.venv/bin/pytest -q tests --ignore tests/real

fix: venv ## format and lint, changing files
	.venv/bin/ruff format $(PYTHON_FILES)
	.venv/bin/ruff check --fix $(PYTHON_FILES)

test: check ## everything: `make check`, then the tests on the real engine
	@scripts/demo-model $(DEMO_MODEL)
	.venv/bin/pytest -v tests/real

schema: venv ## write models/spec.schema.json and the README's table of fields again
	.venv/bin/python scripts/spec_schema.py

golden: venv ## rewrite the golden files; read the diff
	.venv/bin/pytest -q tests --ignore tests/real --update-golden

bench-help: venv ## CPU time of --help against importing click
	.venv/bin/python benchmarks/help/measure.py

bench-predictor: venv ## what the predictor adds to an engine, on a stub and on vLLM; about 9 minutes, alone on the machine
	@scripts/demo-model $(DEMO_MODEL)
	$(COGSMITH) pack smollm2-135m
	.venv/bin/python benchmarks/predictor/measure.py

bench-weights: venv ## fetching weights against curl, aria2c and pget, packing against boto3 and s5cmd; about 20 minutes, alone on the machine
	.venv/bin/python benchmarks/weights/measure.py --out .cogsmith/bench-weights
	.venv/bin/python benchmarks/weights/pack.py --out .cogsmith/bench-weights

pins: venv ## compile the engines' exact requirements again
	.venv/bin/python scripts/compile_pins.py

clean: ## remove what can be made again in this folder (the user's cache stays)
	rm -rf build .cogsmith .pytest_cache .mypy_cache .ruff_cache
