# SPDX-License-Identifier: Apache-2.0
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

include hack/tools.env

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
RESULTS := build/results
TAGS := kubeapi,live
# Systems that some packages have files of their own for.
OTHER_SYSTEMS := darwin windows
KVMHOST := test/kvmhost
# The live tests that run under -race: what they import is small.
RACE_PACKAGE := live/link
# What needs a host, and the fault matrix, whose many cases would take minutes under -race.
LIVE_PACKAGES = $(filter-out %/$(RACE_PACKAGE),$(shell go list -tags live ./live/... ./internal/cloudinit/... ./test/kvmhost/... ./internal/provider/kvm2/... ./internal/provider/local/... ./internal/iso9660/... ./test/faults))
KUBEAPI_PACKAGES := ./test/kubeapi/... ./internal/controller/... ./internal/cluster/... ./internal/cli/... ./api/...
UNIT_PACKAGES ?= ./...
# With the real API server these packages run all their tests: `make test` does not run them twice.
ELSEWHERE = $(shell go list -tags kubeapi $(KUBEAPI_PACKAGES))
TESTRUN = go run ./hack/testrun
# Programs and live tests are built in one way, so that they share what the compiler made.
export CGO_ENABLED = 0
RACE = CGO_ENABLED=1
# A live test's own deadline comes from its steps; this bounds the binary as a whole.
LIVE_TIMEOUT ?= 45m
RUN ?= .

##@ Everyday

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-zA-Z0-9_-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the operator and the agent into bin/.
	go build -ldflags "-s -w -X github.com/egress-proxies/egress-proxies-operator/internal/cli.Version=$(VERSION)" -o bin/egress-proxies ./cmd/egress-proxies
	for arch in amd64 arm64; do \
	  GOOS=linux GOARCH=$$arch go build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/egress-agent-linux-$$arch ./cmd/egress-agent; \
	done

.PHONY: standalone
standalone: ## Build the API server for tests (minutes the first time; cached outside the clone) and print its path.
	@hack/build-standalone.sh

.PHONY: demo-kvm2
demo-kvm2: build ## Make one Proxy a working exit on a real libvirt host of its own, and take everything down again (root).
	$(KVMHOST)/check
	$(KVMHOST)/images >/dev/null
	hack/build-standalone.sh >/dev/null
	go run -tags live ./live/demo

.PHONY: up
up: ## Start the standalone with three working Proxies of this machine (the first build takes minutes), and say how to use them.
	@hack/up.sh up

.PHONY: down
down: ## Stop the standalone; WIPE=1 deletes all Proxies and the data first.
	@hack/up.sh down $(if $(WIPE),--wipe)

##@ Tests

.PHONY: test
test: ## Run every test: unit and contract under -race, real API server, real libvirt host (root; drills at reduced counts).
	$(KVMHOST)/check
	rm -rf $(RESULTS)
	status=0; \
	$(MAKE) --no-print-directory suite-unit UNIT_PACKAGES='$(filter-out $(ELSEWHERE),$(shell go list ./...))' || status=1; \
	$(MAKE) --no-print-directory suite-kubeapi || status=1; \
	$(MAKE) --no-print-directory suite-standalone >$(RESULTS)/standalone.log 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory suite-live || status=1; \
	wait $$beside || status=1; cat $(RESULTS)/standalone.log; \
	$(KVMHOST)/sweep; \
	go run ./hack/trace docs/required-behaviour.md $(RESULTS) | tail -n 1; \
	$(TESTRUN) summary $(RESULTS) unit kubeapi standalone live live-race || status=1; exit $$status

.PHONY: test-unit
test-unit: suite-unit ## Run the tests that need nothing but Go.

.PHONY: suite-unit
suite-unit:
	$(RACE) $(TESTRUN) run $(RESULTS) unit -- -race $(UNIT_PACKAGES)

.PHONY: suite-kubeapi
suite-kubeapi:
	server=$$(hack/build-standalone.sh); $(RACE) EGRESS_STANDALONE=$$server $(TESTRUN) run $(RESULTS) kubeapi -- -race -tags kubeapi -p 2 $(KUBEAPI_PACKAGES)

.PHONY: suite-standalone
suite-standalone:
	server=$$(hack/build-standalone.sh); EGRESS_STANDALONE=$$server $(TESTRUN) run $(RESULTS) standalone -C standalone -- ./...

.PHONY: suite-live
suite-live: build
	$(KVMHOST)/check
	$(KVMHOST)/images >/dev/null
	server=$$(hack/build-standalone.sh); EGRESS_STANDALONE=$$server $(TESTRUN) run $(RESULTS) live -- -tags live -p 1 -timeout $(LIVE_TIMEOUT) $(LIVE_PACKAGES) || status=1; \
	$(RACE) $(TESTRUN) run $(RESULTS) live-race -- -race -tags live -p 1 -timeout $(LIVE_TIMEOUT) ./$(RACE_PACKAGE) || status=1; exit $${status:-0}

.PHONY: live
live: build ## Run chosen live tests with their output: make live RUN=regexp (root).
	$(KVMHOST)/check
	$(KVMHOST)/images >/dev/null
	server=$$(hack/build-standalone.sh); EGRESS_STANDALONE=$$server go test -tags live -p 1 -count 1 -v -timeout $(LIVE_TIMEOUT) -run '$(RUN)' $(LIVE_PACKAGES)
	$(RACE) go test -race -tags live -p 1 -count 1 -v -timeout $(LIVE_TIMEOUT) -run '$(RUN)' ./$(RACE_PACKAGE)

.PHONY: drills
drills: ## Run what repeats (crashes, cycles, faults) at its full count (root; long).
	EGRESS_DRILLS=full $(MAKE) --no-print-directory live RUN=Drill LIVE_TIMEOUT=3h

.PHONY: crash
crash: build ## Kill the whole standalone at random moments, on real and simulated hosts: make crash KILLS=20 SEED=n (root).
	$(KVMHOST)/check
	$(KVMHOST)/images >/dev/null
	hack/build-standalone.sh >/dev/null
	go run -tags live ./live/crash -kills $(or $(KILLS),20) -seed $(or $(SEED),0)

.PHONY: faults
faults: ## Fail each call of each operation in each way, and check that nothing is lost, leaked or touched.
	@mkdir -p build
	@go test -c -o build/faults.test ./test/faults
	@cd test/faults && ../../build/faults.test -all-kinds $(if $(filter-out .,$(RUN)),-test.run '$(RUN)')

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each (default 5000x: that many inputs; or 5m).
	hack/fuzz.sh $(or $(FUZZTIME),5000x)

.PHONY: trace
trace: ## Say which rows of docs/required-behaviour.md no passed subtest of the last run names.
	@go run ./hack/trace docs/required-behaviour.md $(RESULTS)

.PHONY: sweep
sweep: ## Remove what earlier test runs left on this machine (namespaces, links, folders, by prefix).
	$(KVMHOST)/sweep
	rm -rf $${TMPDIR:-/tmp}/egress-{kubeapi,live,demo}-*

.PHONY: bench
bench: ## Run the benchmarks in bench/.
	go test -run '^$$' -bench . ./bench/...

.PHONY: bench-upload
bench-upload: ## Compare our upload of an image to a real libvirt host with virsh's and ssh's: make bench-upload ROUNDS=5 (root).
	$(KVMHOST)/check
	go run -tags live ./bench/upload -rounds $(or $(ROUNDS),5)

.PHONY: bench-create
bench-create: build ## Compare our Create on a real libvirt host with a script of genisoimage, qemu-img and virsh: make bench-create ROUNDS=3 (root).
	$(KVMHOST)/check
	$(KVMHOST)/images >/dev/null
	hack/build-standalone.sh >/dev/null
	go run -tags live ./bench/create -rounds $(or $(ROUNDS),3)

##@ Code

.PHONY: generate
generate: ## Write the generated files anew: deep copies, CRDs, RBAC, the keys of the providers file.
	go tool controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	go tool controller-gen crd:maxDescLen=1024 paths=./api/... output:crd:dir=config/crd
	go tool controller-gen rbac:roleName=egress-proxies-operator,headerFile=hack/boilerplate.yaml.txt paths=./internal/... output:rbac:dir=config/rbac
	go run ./hack/keys internal/config/types.go docs/providers-file.md internal/config/providers.schema.json

.PHONY: check-generated
check-generated: generate ## Fail when a generated file in the tree is not current.
	@changed=$$(git status --porcelain -- api config docs/providers-file.md internal/config/providers.schema.json); \
	if [ -n "$$changed" ]; then echo "generated files are not current: run \`make generate\` and commit"; echo "$$changed"; git --no-pager diff -- api config docs/providers-file.md internal/config/providers.schema.json; exit 1; fi

.PHONY: lint
lint: ## Lint the tree, every build tag included, and check that go.mod is tidy.
	go mod tidy -diff
	$$(hack/tool.sh golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)) run --build-tags $(TAGS)
	cd standalone && go vet ./...
	for os in $(OTHER_SYSTEMS); do GOOS=$$os go vet ./internal/agent/... ./internal/proxyproto/... ./internal/provider/local/...; done

.PHONY: format
format: ## Format the Go code.
	gofmt -s -w api cmd internal hack live test bench
