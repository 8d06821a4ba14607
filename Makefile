# What people run. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := bash
CARGO ?= cargo
# The tests that need a control plane; `CONTROL_PLANE=skip make test` leaves them out and says so.
export CONTROL_PLANE

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

.PHONY: test
test: ## Everything: format, lints, unit and property tests, tests on a real control plane; all failures at the end
	@dev/each \
	  '&$(MAKE) --no-print-directory control-planes' \
	  '$(MAKE) --no-print-directory check' \
	  wait \
	  '$(CARGO) test --workspace --no-fail-fast $(ON_A_CONTROL_PLANE)' \
	  'dev/sim/truth/run' \
	  '$(MAKE) --no-print-directory docs' \
	  '$(MAKE) --no-print-directory demo DEMO_ARGS=--once'

ON_A_CONTROL_PLANE := $(addprefix --test ,admission bed certs controller deploy docs faults monitoring plugin)

.PHONY: check
check: fmt lint ## What needs no control plane
	$(CARGO) test --workspace --no-fail-fast --lib --bins --test manifests --test properties --test scenarios --test review --test wire --test conformance --test proxy
	$(CARGO) test --workspace --doc

.PHONY: fmt
fmt: ## Fails if the code is not formatted
	$(CARGO) fmt --all --check

.PHONY: lint
lint: ## Clippy, warnings denied
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: control-plane
control-plane: ## Gets etcd, kube-apiserver & co. into the cache (minutes, the first time)
	@[ "$(CONTROL_PLANE)" = skip ] || dev/cluster/control-plane/ensure

.PHONY: control-planes
control-planes: ## The same, with the API server of the oldest version that is tested
	@[ "$(CONTROL_PLANE)" = skip ] || dev/cluster/control-plane/ensure v1.33

.PHONY: prometheus
prometheus: ## Gets Prometheus and promtool into the cache (Debian's package, not installed)
	@dev/prometheus/ensure

.PHONY: docs
docs: ## The documentation as a searchable site, in site/; fails on broken links
	@docs/site/build

.PHONY: demo
demo: control-plane ## An installation's life, played and told; DEMO_ARGS="--stay --provider aws --speed 2"
	@dev/demo/build
	@"$${CARGO_TARGET_DIR:-target}/debug/demo" $(DEMO_ARGS)

.PHONY: cluster
cluster: control-plane ## A cluster to play with: real control plane, 5 simulated nodes, our CRDs
	$(CARGO) build --quiet --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/debug/cluster" up --nodes 5

.PHONY: generate
generate: ## Writes the generated files anew
	GENERATE=1 $(CARGO) test --workspace --quiet --test manifests generated_files_are_up_to_date

.PHONY: bench-cluster
bench-cluster: control-plane ## How fast the simulated nodes are: 1,000 nodes, 10,000 pods
	$(CARGO) run --quiet --package cluster -- bench

.PHONY: sim
sim: ## The three simulated clouds on ports 8081 to 8083, their admin port on 8084
	$(CARGO) run --quiet --package sim -- --gcp 8081 --aws 8082 --azure 8083 --admin 8084

.PHONY: bench-sim
bench-sim: ## How fast the simulated clouds are: 10,000 addresses, 5,000 instances
	$(CARGO) run --quiet --release --package sim --example bench

MUTANTS := cargo-mutants mutants --package plan --jobs 2
SOME_GOT_THROUGH := { code=$$?; [ $$code -eq 2 ] || [ $$code -eq 3 ]; }
.PHONY: mutants
mutants: ## Mutation testing of the planner (half an hour; installs cargo-mutants if it is missing)
	command -v cargo-mutants >/dev/null || $(CARGO) install --locked cargo-mutants
	# The scenarios first, which are quick; the properties for what they let through.
	$(MUTANTS) -- --test scenarios || $(SOME_GOT_THROUGH)
	PLAN_CASES=$${PLAN_CASES:-1000} $(MUTANTS) --iterate -- --test properties || $(SOME_GOT_THROUGH)
	@echo "Survivors, if any, are in mutants.out/missed.txt; docs/mutation-testing.md has those that may."

.PHONY: bench-plan
bench-plan: ## How long a plan takes for 50 to 5,000 nodes, and what it allocates
	$(CARGO) run --quiet --release --package plan --example bench

.PHONY: bench-controller
bench-controller: control-plane ## How fast the controller reacts, beside a bare watch (minutes: 10,000 pods)
	BENCH=1 $(CARGO) test --release --workspace --test controller

.PHONY: bench-isolation
bench-isolation: control-plane ## What a refusing account or 1,000 new allocations cost those who have nothing to do with it
	BENCH=isolation $(CARGO) test --release --workspace --test controller

.PHONY: bench-webhook
bench-webhook: control-plane ## What an admission request costs, beside a server of fixed bytes on the same TLS stack
	$(CARGO) bench --workspace --bench webhook
	$(CARGO) bench --workspace --bench webhook -- --cluster

.PHONY: fuzz
fuzz: ## Fuzzes review bytes and the affinity patch, a minute each (nightly; installs cargo-fuzz if it is missing)
	command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	for target in review affinity; do \
	  mkdir -p fuzz/target/found/$$target; \
	  RUSTUP_TOOLCHAIN=nightly cargo fuzz run -s none $$target fuzz/target/found/$$target fuzz/corpus/$$target -- -max_total_time=60 -max_len=16384 || exit 1; \
	done

.PHONY: deny
deny: ## Licences, bans and sources of dependencies (installs cargo-deny if it is missing)
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	cargo-deny check bans licenses sources
