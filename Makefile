# .ci/run lists the programs that tests use, with Debian's packages; the race detector needs gcc. A test whose program is
# missing is skipped, and fails where the environment has CI.
GO        ?= go
# Tests are compiled as the program is: each package once, and in a second clone not again.
export CGO_ENABLED := 0
export GOFLAGS     := $(shell $(GO) env GOFLAGS) -trimpath
LINT      := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# A module of its own: the libraries of Helm and kustomize are large.
MODULES   := cmd/internal/testbed/charttest
# The race detector takes five times as long. Tests with real packets mostly wait, and are left out.
RACE      := ./model/... ./nft/compile ./nft/nftsim ./legacy/userspace ./legacy/iptables/iptsim ./sync/kube/... ./sync/reconcile ./sync/health ./sync/events ./sync/informer/... ./sync/manifest ./cmd/vmapd/internal/metrics ./sync/httpserver ./cmd/vmapd/internal/metricsport ./cmd/internal/testbed/simulate
# test-slow and the linter vet.
TEST      := $(GO) test -count=1 -vet=off

.DEFAULT_GOAL := help
.PHONY: help build demo test test-slow golden bench images lint linter vulncheck fmt tidy ci

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'
	@echo "The bench (emulated machines, clusters, faults, speed): make -C cmd/internal/testbed help"

# The go command writes version, commit and the commit's date into programs. It fails where git can't read the
# repository, such as one of another user.
VCS   = $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)
BUILD = $(GO) build -buildvcs=$(VCS)

build: ## build bin/vmapd, a static binary
	$(BUILD) -o bin/vmapd ./cmd/vmapd

demo: ## show it at work: a small world, real connections
	@echo "Compiling bin/vmapd and bin/demo: one to three minutes at first, seconds when it was compiled before."
	@$(BUILD) -o bin/ ./cmd/vmapd ./cmd/internal/testbed/demo
	@bin/demo

# More packages at a time than processors: tests with real packets mostly wait.
test: ## all tests but those that take minutes
	@bad=; for m in . $(MODULES); do (cd $$m && $(TEST) -short -p 4 ./...) || bad=1; done; test -z "$$bad"

# Long tests are about time and load: one package at a time. The other packages have nothing that -short leaves out.
LONG = $(shell grep -rl 'testing\.Short()' --include=*_test.go . | xargs -n1 dirname | sort -u)
test-slow: ## the long tests, go vet and the race detector
	@for m in . $(MODULES); do (cd $$m && $(GO) vet ./...) || exit 1; done
	CGO_ENABLED=1 $(TEST) -short -p 4 -race -shuffle=on $(RACE)
	$(TEST) -timeout 40m -p 1 $(LONG)

golden: build ## rewrite what tests expect as text, and show what changed
	$(GO) test ./cmd/vmapd/tests/scenarios ./cmd/vmapd/tests/cli ./cmd/vmapd/tests/pages ./cmd/vmapd/internal/config ./cmd/vmapd/internal/metrics ./nft/compile ./legacy/iptables ./legacy/ipvs -short -update
	git diff --stat -- testdata nft legacy cmd

bench: ## benchmarks; for whole clusters, see bench-scale of the bench
	@$(MAKE) --no-print-directory -C cmd/internal/testbed bench

PROCESSORS := amd64 arm64 ppc64le riscv64 s390x
RELEASE    := bin/release
images: ## images without Docker, their SBOMs and checksums in bin/release, for every processor
	@for a in $(PROCESSORS); do echo "GOARCH=$$a"; GOARCH=$$a $(BUILD) -o bin/vmapd-$$a ./cmd/vmapd || exit 1; done
	@cmd/internal/release/release.sh make bin $(RELEASE) $(PROCESSORS)

lint: ## golangci-lint, pinned
	@sh -n cmd/vmapd/deploy/try-one-node.sh
	@for m in . $(MODULES); do (cd $$m && $(LINT) run) || exit 1; done

linter: ## download and compile golangci-lint, which takes three minutes at first
	@$(LINT) version

vulncheck: ## known vulnerabilities of the libraries; asks the Go project's database on the internet
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/vmapd

fmt: ## format the sources
	@for m in . $(MODULES); do (cd $$m && $(LINT) fmt) || exit 1; done

tidy: ## go mod tidy; fails if that changes something
	@for m in . $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

ci: tidy test test-slow lint ## what must pass before a change lands
