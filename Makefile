# Programs that are missing are installed with apt, if this is root and INSTALL is not "no". Everything else comes
# through the Go module proxy, pinned in go.mod or here.
GO        ?= go
# Tests are compiled as the program is: each package once, and in a second clone not again.
export CGO_ENABLED := 0
export GOFLAGS     := $(shell $(GO) env GOFLAGS) -trimpath
LINT      := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PURE      := ./model/... ./nft/compile ./nft/batch ./nft/nftsim ./legacy/userspace ./legacy/iptables/iptsim ./sync/kube ./sync/kube/slim ./sync/reconcile ./sync/health ./sync/events ./cmd/vmapd/internal/metrics ./cmd/vmapd/internal/httpserver
# Tests of the program, by what they try.
ROOMS     := $(addprefix ./cmd/vmapd/tests/,scenarios traffic cluster neighbours conntrack takeover diagnosis cli pages)
NETNS     := ./nft/kernel ./nft/others ./legacy/iptables ./legacy/ipvs ./legacy/host ./sync/conntrack ./sync/hostaddr ./cmd/internal/testbed/lab ./cmd/internal/testbed/scale ./cmd/internal/testbed/cluster/life ./cmd/internal/testbed/browser ./cmd/internal/testbed/chaos ./cmd/internal/testbed/demo $(ROOMS)
# These are pure and long: other targets play them, and the race detector takes five times as long for them.
RACESKIP  := TestTheRulesDoWhatIsDecided|TestEachPieceOfABatchIsSafe|TestSmallWorlds
# make test leaves these to make test-slow, with the race detector: they take minutes, and wait for rare things or play much at
# random, where quick tests look at the same rules. An element is PACKAGE=TESTS, and TESTS are names joined by |. In the name of a
# subtest, the dot stands for all of that level.
SLOW      := nft/batch=TestEachPieceOfABatchIsSafe legacy/ipvs=TestEveryPrefixOfAThousandPlansIsSafe 'nft/kernel=TestSixtyThousandClientsArePurged|TestClientsTimeOutDuringAPurge' 'cmd/vmapd/tests/scenarios=TestScenariosByUserspace|TestScenariosForReal/./as_text,_by_nft_-f|TestScenariosForReal/./by_iptables-nft' 'cmd/vmapd/tests/diagnosis=TestTraceBesideAThousandConnectionsASecond' 'cmd/vmapd/tests/cluster=TestAHostileServiceCostsOthersLittle|TestAHostileServiceCostsOthersLittleWithIPTables' 'cmd/vmapd/tests/takeover=TestAnotherProxyIsNoticed' 'cmd/vmapd/tests/traffic=TestNoConnectionIsLostInAThousandChanges'
SLOWTESTS := ^$(subst |,$$|^,$(subst $() ,|,$(foreach t,$(subst ',,$(SLOW)),$(lastword $(subst =, ,$(t))))))$$
# More tests at a time than processors: those that may run beside others mostly wait.
ATATIME   := 5
FUZZTIME  ?= 30s

# Network namespaces need root, or root in a user namespace. The loopback interface of a new
# network namespace is down.
ISROOT := $(shell test "$$(id -u)" = 0 && echo yes)
INSTALL ?= yes
MAYINSTALL := $(if $(filter no,$(INSTALL)),,$(ISROOT))
ifeq ($(ISROOT),yes)
IN_NAMESPACE :=
else
IN_NAMESPACE := unshare -rn sh -c 'ip link set lo up && exec "$$@"' sh
endif

# Emulated machines boot a kernel of Debian's suites VMSUITES on a processor VMARCH, with the programs
# (nft, iptables, ...) of VMTOOLS. They are 15 times slower: tests with tens of thousands of
# clients, or with limits of milliseconds, are left out; of packages that are mostly pure, only the
# named tests run, and on other processors also those that read or write bytes. Output stays in
# VMRESULTS, of which test-vm prints a table. So the tests can run in parts, whose results add up: for
# one, VMTESTS='cmd/vmapd/tests/scenarios=TestScenariosForReal/^[a-d]'. VMTIME is the time limit of each part.
# With one processor, a machine needs the least of its host's time.
VMARCH     ?= amd64
VMSUITES   ?= bookworm,bookworm-security
VMTOOLS    ?= bookworm
VMBYTES    := nft/compile=. nft/batch=. sync/conntrack=. sync/hostaddr=. legacy/ipvs=.
VMTESTS    ?= nft/kernel=. 'cmd/vmapd/tests/cli=TestTheRunningDaemonTells|TestTheDaemonExplains' 'cmd/vmapd/tests/scenarios=TestScenarios|TestListings' 'cmd/vmapd/tests/diagnosis=ByIPVS' 'cmd/vmapd/tests/takeover=ByIPVS|TestSwitching' 'cmd/vmapd/tests/conntrack=TestFastPath' 'cmd/vmapd/tests/neighbours=TestNeighbours' legacy/iptables=TestThePrograms $(addsuffix =.,$(wildcard legacy/host)) $(if $(filter-out amd64,$(VMARCH)),$(VMBYTES))
VMTIME     ?= 3h
VMCPUS     ?= 1
VMRESULTS  ?= bin/vm-results
VMSKIP     := TestSixtyThousandClientsArePurged|TestClientsTimeOutDuringAPurge|TestAClientWhoConnectsBetweenBatchAndPurge
VMPACKAGES := dash,iproute2,ipset,iptables,ipvsadm,netbase,nftables,util-linux
VM          = bin/vm --init bin/vm-$(VMARCH) --suites $(VMSUITES) --packages-suites $(VMTOOLS) --packages $(VMPACKAGES) --cpus $(VMCPUS) --timeout $(VMTIME)
KERNELS    ?= bullseye bookworm,bookworm-security trixie,trixie-security trixie,trixie-backports
ARCHES     := arm64 s390x

.DEFAULT_GOAL := help
.PHONY: help build demo test test-slow test-chart test-upgrade notice unit vet race netns simulate mutations test-page pagetools test-ipvs test-kernels test-arch test-nft test-vm test-cluster build-all images images-lock test-images test-images-vm vmtools clustertools golden bench bench-compare chaos bench-scale bench-slopes fuzz lint fmt tidy ci tools

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# The go command writes version, commit and the commit's date into programs. It fails where git can't read the
# repository, such as one of another user.
VCS   = $(shell git status --porcelain >/dev/null 2>&1 && echo auto || echo false)
BUILD = $(GO) build -buildvcs=$(VCS)

build: ## build bin/vmapd, a static binary
	$(BUILD) -o bin/vmapd ./cmd/vmapd

PROCESSORS := amd64 arm64 ppc64le riscv64 s390x
build-all: ## build and check for every processor that Kubernetes has nodes for
	@for a in $(PROCESSORS); do \
		echo "GOARCH=$$a"; \
		GOARCH=$$a $(BUILD) -o bin/vmapd-$$a ./cmd/vmapd && GOARCH=$$a $(GO) vet ./... || exit 1; \
	done

RELEASE := bin/release
images: ## images without Docker, their SBOMs and checksums in bin/release, for every processor
	@for a in $(PROCESSORS); do echo "GOARCH=$$a"; GOARCH=$$a $(BUILD) -o bin/vmapd-$$a ./cmd/vmapd || exit 1; done
	@cd cmd/internal/release && $(GO) build -o ../../../bin/releaser .
	@bin/releaser --programs bin --out $(RELEASE) --processors $$(echo $(PROCESSORS) | tr ' ' ,)

# Needs apt, with Debian's keys, to verify a suite's signature; "make images" needs only the file.
images-lock: ## the newest packages of Debian's for the image
	$(GO) run ./cmd/internal/testbed/debian/lock iptables ipset kmod >bin/packages.lock
	mv bin/packages.lock cmd/internal/release/

test-images: images ## images of the last commit run, and are the same when built in another folder
	@rm -rf bin/again && git clone -q --shared . bin/again && $(MAKE) --no-print-directory -C bin/again images
	@diff bin/release/SHA256SUMS bin/again/bin/release/SHA256SUMS || { echo "two builds differ (are there changes that are not committed?)" >&2; exit 1; }
	@rm -rf bin/again; echo "two builds in two folders: the same $$(wc -l <bin/release/SHA256SUMS) checksums"
	cd cmd/internal/release && $(GO) test -count=1 -v -run 'OfThisRelease|Checksums' . -args -release $(CURDIR)/bin/release

# Each image runs by its own configuration in a root of its own, in a machine that has nothing else for its program. The same
# commit gives the same image, so that of the one processor is made anew.
test-images-vm: SHELL := /bin/bash
test-images-vm: .SHELLFLAGS := -o pipefail -c
test-images-vm: PROCESSORS = $(VMARCH)
test-images-vm: RELEASE = bin/release-$(VMARCH)
test-images-vm: VMSUITES = bookworm
test-images-vm: images vmtools ## the image of processor VMARCH programs scenarios, in an emulated machine
	@$(GO) build -o bin/vm ./cmd/internal/testbed/vm
	@GOARCH=$(VMARCH) $(GO) build -o bin/vm-$(VMARCH) ./cmd/internal/testbed/vm
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@GOARCH=$(VMARCH) $(GO) test -c -vet=off -ldflags='-s -w' -o bin/vm.test ./cmd/vmapd/tests/scenarios
	@for i in nftables iptables; do \
		echo "the image for $(VMARCH), backend $$i"; \
		rm -rf bin/image && bin/releaser --unpack $(RELEASE)/vmapd --processors $(VMARCH) --out bin/image && \
		$(VM) --dir /src/cmd/vmapd/tests/scenarios --file bin/vm.test:/src/cmd/vmapd/tests/scenarios/vm.test --file testdata:/src/testdata --file bin/image:/image \
			-- ./vm.test -test.v=test2json -test.timeout=$(VMTIME) -test.run=TestTheImageProgramsScenarios -image /image -image-backend $$i | \
			tee bin/image.log | bin/skipcheck || exit 1; \
		grep -E '^ +image_netns_test.go' bin/image.log; \
	done
	@rm -rf bin/image $(RELEASE)

# The names of packages, as they are compiled, replace one another in one line of a terminal.
demo: SHELL := /bin/bash
demo: .SHELLFLAGS := -o pipefail -c
demo: ## show it at work: a small world, real connections
	@echo "Compiling bin/vmapd and bin/demo: one to three minutes at first, seconds when it was compiled before."
	@$(BUILD) -v -o bin/ ./cmd/vmapd ./cmd/internal/testbed/demo 2>&1 | (n=0; while IFS= read -r line; do \
		case "$$line" in \
		"go: downloading "*) text="$$line" ;; \
		"#"* | *" "* | *:*) echo "$$line"; continue ;; \
		*) n=$$((n+1)); text="$$n packages compiled: $$line" ;; \
		esac; \
		if test -t 1; then printf '\r\033[K%.78s' "$$text"; fi; \
	done; if test $$n -gt 0; then test -t 1 && printf '\r\033[K'; echo "$$n packages compiled."; fi)
	@bin/demo

# Tests with real packets mostly wait: all others run meanwhile. When a part fails, the others go on to their ends.
test: notice tools ## all tests but those of test-slow
	@$(MAKE) --no-print-directory -j3 netns unit test-chart

# It says what the target tools does before that does it.
notice:
	@echo "make test needs some eight minutes of processor time, five on two processors once each package is compiled, and prints a line for each package. It leaves to make test-slow:"
	@for t in $(SLOW) 'vet=all packages' 'race=all tests of pure packages'; do echo "  $${t%%=*}: $${t#*=}" | tr '|' ' '; done
	@missing="$(strip $(call missing,$(TESTTOOLS) promtool:promtool))"; \
	if [ -z "$$missing" ]; then echo "All programs that it needs are installed."; \
	elif [ "$(MAYINSTALL)" ]; then echo "apt now installs $$missing (promtool only into bin); make test INSTALL=no prevents that, and ends."; \
	else echo "Missing, and not installed:" $$missing; fi

unit: ## tests that need no privilege
	cd cmd/internal/release && $(GO) test -count=1 .
	nice -n 2 $(GO) test -p 4 -count=1 -shuffle=on -skip '$(SLOWTESTS)' $$($(GO) list ./... | grep -vE '/(nft/(kernel|others)|legacy/(iptables|ipvs|host)|cmd/(vmapd/tests/.*|internal/testbed/(browser|chaos|demo|lab|scale|cluster/life))|sync/(conntrack|hostaddr|informer))$$')

# A module of its own: the libraries of Helm and kustomize are large. The go command does not notice changes of files
# outside of a module, so nothing is cached.
CHARTTEST := cmd/internal/testbed/charttest
test-chart: ## the Helm chart and the base of kustomize make the manifest's objects
	cd $(CHARTTEST) && $(GO) test -count=1 .

# The go command vets a little by itself before it tests; all of it takes half a minute.
vet: ## go vet of all modules
	$(GO) vet ./...
	cd cmd/internal/release && $(GO) vet .
	cd $(CHARTTEST) && $(GO) vet .

race: ## the pure packages and the sources, with the race detector
	CGO_ENABLED=1 $(GO) test -count=1 -race -skip '$(RACESKIP)' $(PURE) ./sync/informer/... ./sync/manifest ./cmd/internal/testbed/simulate

# $(PLAY) defines commands for the shell: play PACKAGE FLAGS runs a package's tests with real packets, and prints one
# line with its time when they have ended; plays PACKAGE... does so for several until one fails.
PLAY = play() { p=$$1; shift; bin=$(CURDIR)/bin/netns/$$(echo $$p | cut -c3- | tr / -).test; $$NICE $(GO) test -c -ldflags=-w -o $$bin $$p && \
	(cd $$p && ($(IN_NAMESPACE) $$NICE $$bin -test.v -test.parallel=$(ATATIME) -test.timeout=40m "$$@" 2>&1 || echo "--- FAIL: exit code $$?") | \
	$(CURDIR)/bin/skipcheck -package $$p); }; \
	plays() { for p; do play $$p -test.skip='$(SLOWTESTS)' || return 1; done; }

# Most tests of vmapd wait, and those of the testbed, too: all others run meanwhile. The tests of vmapd would end last, so
# what is beside them is nicer.
netns: tools ## tests with real packets in network namespaces; fails if one is skipped
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@$(PLAY); (NICE='nice -n 2'; plays $(filter ./nft/%,$(NETNS))) & nft=$$!; \
	(NICE='nice -n 2'; plays $(filter-out ./nft/% $(ROOMS),$(NETNS))) & others=$$!; \
	plays $(ROOMS); vmapd=$$?; wait $$others && wait $$nft && exit $$vmapd

test-slow: tools vet race ## what make test leaves out: go vet, the race detector, and tests that take minutes
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@$(PLAY); for t in $(SLOW); do echo "./$${t%%=*}: $${t#*=}"; \
		play ./$${t%%=*} -test.run="^$$(echo "$${t#*=}" | sed 's/|/$$|^/g')$$" || exit 1; done

# A failure prints its seed, and a short life that fails, too. STEPS is of all lives, whose seeds are SEED and those
# after it; SIMFLAGS may be -life N (steps of one life), -shrink=false.
SEED  ?= 1
STEPS ?= 100000
simulate: ## a node in which all that can fail does, from SEED on for STEPS steps
	$(GO) test -c -o bin/simulate.test ./cmd/internal/testbed/simulate
	GOGC=800 bin/simulate.test -test.v -test.timeout=0 -test.run='^TestSimulate$$' -seed $(SEED) -steps $(STEPS) $(SIMFLAGS)

mutations: ## plant faults, and see what finds each: the simulation or the small worlds
	$(GO) build -o bin/mutate ./cmd/internal/testbed/mutate
	nice bin/mutate $(MUTATEFLAGS)

# CHAOSFLAGS may be -lasts 30s and -patience 5m; the command's doc.go says what the columns of the table are.
FAULTS ?= .
ROUNDS ?= 1
chaos: tools build ## faults FAULTS of a node under load, ROUNDS times: a table of what clients lose
	@$(GO) build -o bin/chaos ./cmd/internal/testbed/chaos
	@bin/chaos -faults '$(FAULTS)' -rounds $(ROUNDS) $(CHAOSFLAGS)

# A clone and no worktree: the go command does not read the commit of a worktree.
test-upgrade: tools ## this version and the one of commit BASE in turn, under load: nothing is lost
	@test -n "$(BASE)" || { echo "BASE is missing: the commit or tag of the other version" >&2; exit 1; }
	@rm -rf bin/base && git clone -q --shared . bin/base && git -C bin/base checkout -q --detach "$$(git rev-parse --verify "$(BASE)^{commit}")"
	@cd bin/base && $(BUILD) -o ../vmapd-base ./cmd/vmapd; result=$$?; rm -rf $(CURDIR)/bin/base; exit $$result
	@bin/vmapd-base version
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@$(GO) test -c -o bin/netns.test ./cmd/vmapd/tests/takeover
	@cd cmd/vmapd/tests/takeover && ($(IN_NAMESPACE) $(CURDIR)/bin/netns.test -test.v -test.run='TestUpgradeAndDowngrade' \
		-base $(CURDIR)/bin/vmapd-base $(UPGRADEFLAGS) 2>&1 || echo "--- FAIL: exit code $$?") | tee $(CURDIR)/bin/upgrade.log | $(CURDIR)/bin/skipcheck
	@grep -E '=== RUN|kept, asked' bin/upgrade.log

# A part of netns, too, where chromium is installed. It takes 350 MB with its libraries: this target alone
# installs it.
test-page: pagetools ## the page of vmapd ui in a real browser, with 10,000 Services
	$(GO) test -v -count=1 ./cmd/internal/testbed/browser $(if $(PAGEARGS),-args $(PAGEARGS))

test-kernels: ## tests with real packets on Debian's kernels from 5.10 on, in emulated machines
	@for s in $(KERNELS); do $(MAKE) --no-print-directory test-vm VMSUITES=$$s || exit 1; done

# On Debian's 6.1, unless VMSUITES is given.
test-arch: ## tests with real packets on processors arm64 and s390x, in emulated machines
	@for a in $(ARCHES); do $(MAKE) --no-print-directory test-vm VMARCH=$$a VMSUITES=$(if $(filter file,$(origin VMSUITES)),bookworm,$(VMSUITES)) || exit 1; done

test-nft: ## nft of Debian's releases lists the rules of each scenario
	@$(GO) build -o bin/vm ./cmd/internal/testbed/vm
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@$(GO) test -c -o bin/netns.test ./cmd/vmapd/tests/scenarios
	@for s in bullseye bookworm trixie sid; do \
		bin/vm --packages-suites $$s --packages nftables --here nft --timeout 20m \
			-- sh -c 'nft --version >&2; cd cmd/vmapd/tests/scenarios && exec "$$@"' sh \
			$(IN_NAMESPACE) $(CURDIR)/bin/netns.test -test.v -test.parallel=$(ATATIME) -test.run=TestListings | bin/skipcheck || exit 1; \
	done

test-vm: SHELL := /bin/bash
test-vm: .SHELLFLAGS := -o pipefail -c
test-vm: vmtools ## tests VMTESTS with kernel VMSUITES, programs VMTOOLS, processor VMARCH
	@$(GO) build -o bin/vm ./cmd/internal/testbed/vm
	@GOARCH=$(VMARCH) $(GO) build -o bin/vm-$(VMARCH) ./cmd/internal/testbed/vm
	@$(GO) build -o bin/skipcheck ./cmd/internal/testbed/skipcheck
	@mkdir -p $(VMRESULTS)
	@for t in $(VMTESTS); do \
		p=$${t%%=*}; \
		echo "go test ./$$p -run '$${t#*=}'"; \
		GOARCH=$(VMARCH) $(GO) test -c -ldflags='-s -w' -o bin/vm.test ./$$p && \
		$(VM) --dir /src/$$p --file bin/vm.test:/src/$$p/vm.test $$(find . '(' -name testdata -o -path ./cmd/vmapd/deploy ')' -type d -printf ' --file %p:/src/%P') \
			-- sh -c 'read -r a b release rest </proc/version; echo "Linux $$release on $(VMARCH), $$(nft --version)"; echo "$$0"; exec "$$@"' \
			"go test ./$$p" ./vm.test -test.v=test2json -test.timeout=$(VMTIME) -test.run="$${t#*=}" -test.skip='$(VMSKIP)' $(VMARGS) | \
			tee $(VMRESULTS)/$(VMARCH)-$(VMSUITES)-$(VMTOOLS)-$$(echo "$$p" | tr / -)-$$(date +%s) | bin/skipcheck || exit 1; \
	done
	@bin/skipcheck $(VMRESULTS)/*

test-ipvs: SHELL := /bin/bash
test-ipvs: .SHELLFLAGS := -o pipefail -c
test-ipvs: test-vm ## tests on another kernel, with all its modules, in an emulated machine
	VMAPD_TEST_BOOT=1 $(GO) test -count=1 ./cmd/internal/testbed/vm
	@$(GO) test -c -ldflags='-s -w' -o bin/vm.test ./cmd/vmapd/tests/takeover
	@for t in nf_tables=ipvs nf_tables,ip_vs=iptables; do \
		echo "--backend=auto without $${t%%=*}"; \
		$(VM) --without $${t%%=*} --iptables legacy --dir /src/cmd/vmapd/tests/takeover \
			--file bin/vm.test:/src/cmd/vmapd/tests/takeover/vm.test --file testdata:/src/testdata \
			-- ./vm.test -test.v -test.run=TestAuto -want-backend=$${t#*=} | bin/skipcheck || exit 1; \
	done

# The programs that a Kubernetes release has, in KUBE; without them, the command says where they are.
CLUSTER_PROXIES ?= vmapd,vmapd:iptables,kube-proxy,kube-proxy:iptables
test-cluster: clustertools ## Kubernetes' own tests, in a real cluster of the programs in KUBE
	$(GO) build -o bin/cluster ./cmd/internal/testbed/cluster
	bin/cluster test --kube "$(KUBE)" --nodes 3 --proxies "$(CLUSTER_PROXIES)"

golden: build ## rewrite what tests expect as text, and show what changed
	$(GO) test ./cmd/vmapd/tests/scenarios ./cmd/vmapd/tests/cli ./cmd/vmapd/tests/pages ./cmd/vmapd/internal/config ./cmd/vmapd/internal/metrics ./nft/batch ./legacy/iptables ./legacy/ipvs -run 'TestScenarios$$|TestScript|Golden|Text|Kubeadm|UpToDate' -update
	git diff --stat -- testdata nft legacy cmd

# For a release, BENCHTO=testdata/bench/VERSION.txt keeps the figures in benchstat's format, with BENCHCOUNT=6 or more. BENCH is
# the command, and the arguments of each line are those of go test.
BENCHCOUNT ?= 1
BENCH       = $(GO) test -run '^$$' -count $(BENCHCOUNT)
bench: SHELL := /bin/bash
bench: .SHELLFLAGS := -eo pipefail -c
bench: ## benchmarks: compile, difference, apply; cold and for one endpoint
	@$(if $(BENCHTO),mkdir -p $(dir $(BENCHTO)))
	@{ echo "commit: $$(git describe --always --dirty --abbrev=12)"; set -x; \
	$(BENCH) -bench 'Cold|OneEndpoint|Memory' -benchtime 10x -benchmem ./model; \
	$(BENCH) -bench 'Compile|Split' -benchtime 10x ./nft/batch; \
	$(BENCH) -bench 'Object' -benchmem ./sync/kube/slim; \
	$(IN_NAMESPACE) $(BENCH) -bench 'Build|Cold|Restart' -benchtime 10x ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'OneEndpoint$$' -benchtime 500x ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'OneEndpointWithAffinity' -benchtime 20x ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'LookupTable' -benchtime 50x ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'OthersBesideAPurge' -benchtime 5x ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'NewConnection' ./nft/kernel; \
	$(IN_NAMESPACE) $(BENCH) -bench 'Round' -benchtime 3s ./cmd/vmapd/tests/traffic; \
	$(IN_NAMESPACE) $(BENCH) -bench 'FirstPacket' ./cmd/vmapd/tests/traffic; \
	} $(if $(BENCHTO),| tee /dev/stderr | grep -E '^(commit|goos|goarch|pkg|cpu|Benchmark)' >$(BENCHTO))

# PACKAGE=BENCHMARKS that bench-compare plays: a start, a change and what arrives from the API server. Machines differ, and one
# machine from minute to minute: so both versions are played in turns, BENCHROUNDS times. The figures stay in bin/bench.
COMPARE     ?= 'model=^Benchmark(Cold|OneEndpoint)$$/^5000x50$$' 'nft/batch=^Benchmark(Compile|OneEndpoint)$$/^10000_' 'sync/kube/slim=Object/slice-100/slim' 'nft/kernel=^BenchmarkApplyCold$$/^1000x10$$|^BenchmarkOneEndpoint$$/^replaced$$/^1000x10$$'
BENCHROUNDS ?= 10
BENCHSTAT   := $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
bench-compare: BASE ?= HEAD^
bench-compare: ## speed against commit BASE, in turns, as benchstat prints it
	@rm -rf bin/base bin/bench && mkdir -p bin/bench/base bin/bench/head
	@git clone -q --shared . bin/base && git -C bin/base checkout -q --detach "$$(git rev-parse --verify "$(BASE)^{commit}")"
	@for side in base head; do for b in $(COMPARE); do p=$${b%%=*}; \
		(test $$side = head || cd bin/base; $(GO) test -c -o $(CURDIR)/bin/bench/$$side/$$(echo $$p | tr / -) ./$$p) || exit 1; \
	done; done
	@for round in $$(seq $(BENCHROUNDS)); do echo "round $$round of $(BENCHROUNDS)"; sides="head base"; test $$((round%2)) = 0 || sides="base head"; \
	for side in $$sides; do for b in $(COMPARE); do p=$${b%%=*}; \
		(test $$side = head || cd bin/base; cd $$p; $(IN_NAMESPACE) $(CURDIR)/bin/bench/$$side/$$(echo $$p | tr / -) -test.run='^$$' \
			-test.bench="$${b#*=}" -test.benchmem -test.benchtime=100ms) >>bin/bench/$$side.txt || exit 1; \
	done; done; done
	@rm -rf bin/base
	@$(BENCHSTAT) base=bin/bench/base.txt head=bin/bench/head.txt

bench-scale: build ## the daemon in clusters of up to 1,000,000 endpoints: time, memory, latency
	$(GO) run ./cmd/internal/testbed/scale $(SCALEFLAGS)

# With KUBE, as for test-cluster, kube-proxy's start is measured in the clusters that it programs in minutes.
SLOPES    ?= 10x100,100x10,1000x1,100x100,1000x10,10000x1,1000x100,10000x10,100000x1,10000x100,100000x10
KUBESLOPES ?= 10x100,100x10,1000x1,100x100,1000x10,10000x1
SLOPESTO  := -results cmd/internal/testbed/scale/results.json -plot cmd/internal/testbed/scale/results.svg
bench-slopes: build ## the same from 1,000 endpoints to 1,000,000, as a file of results and a plot
	$(GO) run ./cmd/internal/testbed/scale -shapes $(SLOPES) -settle 3s -churn 6s -probes 150 $(SLOPESTO) $(SCALEFLAGS)
	$(if $(KUBE),$(GO) run ./cmd/internal/testbed/scale -shapes $(KUBESLOPES) -kube-proxy $(KUBE)/kube-proxy -settle 3s $(SLOPESTO))

# Several packages may have a target of the same name; -fuzz takes one target of one package.
fuzz: ## every fuzz target, for FUZZTIME each
	@grep -roE '^func Fuzz\w+' --include=*_test.go . | sed -E 's#/[^/]*:func # #' | sort | while read -r p t; do \
		echo "go test $$p -fuzz $$t"; \
		$(GO) test $$p -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s || exit 1; \
	done

lint: ## golangci-lint, pinned
	$(LINT) run
	cd $(CHARTTEST) && $(LINT) run
	cd cmd/internal/release && $(LINT) run

fmt: ## format the sources
	$(LINT) fmt
	cd $(CHARTTEST) && $(LINT) fmt
	cd cmd/internal/release && $(LINT) fmt

tidy: ## go mod tidy; fails if that changes something
	$(GO) mod tidy -diff
	cd $(CHARTTEST) && $(GO) mod tidy -diff
	cd cmd/internal/release && $(GO) mod tidy -diff

ci: tidy build lint test test-slow ## what must pass before a change lands

# $(call missing,PROGRAM:PACKAGE ...) are Debian's packages of the programs that are not here.
missing = $(strip $(shell for t in $(1); do \
	command -v $${t%%:*} >/dev/null 2>&1 || test -x /usr/sbin/$${t%%:*} || test -x bin/$${t%%:*} || echo $$t | cut -d: -f2; done))

# $(call install,PACKAGES,FLAGS) is a command that installs them with apt, or fails where it may not.
install = if [ -n "$(strip $(1))" ]; then \
	if [ -z "$(MAYINSTALL)" ]; then echo "missing, install with apt: $(strip $(1))" >&2; exit 1; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(2) $(1) >/dev/null; fi

TESTTOOLS := nft:nftables iptables:iptables ipset:ipset ip:iproute2 unshare:util-linux gcc:gcc curl:curl
tools:
	@$(call install,$(call missing,$(TESTTOOLS)))
	@$(if $(call missing,promtool:promtool),$(MAKE) --no-print-directory bin/promtool)

# Of a package of Debian's that is not installed: it would start a server.
bin/promtool: PACKAGE = prometheus
bin/promtool: FILE = usr/bin/promtool
bin/promtool:
	@if [ "$(INSTALL)" = no ]; then echo "missing: $(notdir $@), of Debian's package $(PACKAGE)" >&2; exit 1; fi
	@mkdir -p bin/$(PACKAGE)
	@if [ -n "$(ISROOT)" ]; then apt-get update -qq; fi
	@cd bin/$(PACKAGE) && apt-get download -qq $(PACKAGE) 2>/dev/null && dpkg-deb --fsys-tarfile $(PACKAGE)_*.deb | tar -xO ./$(FILE) >../$(notdir $@).new
	@chmod +x $@.new && mv $@.new $@ && rm -r bin/$(PACKAGE)

pagetools: tools
	@$(call install,$(call missing,chromium:chromium),--no-install-recommends)

CLUSTERTOOLS := containerd:containerd runc:runc iptables:iptables nft:nftables
clustertools:
	@$(if $(and $(KUBE),$(MAYINSTALL)),$(call install,$(call missing,$(CLUSTERTOOLS)) $(if $(wildcard /usr/lib/cni/ptp),,containernetworking-plugins),--no-install-recommends))

VMPROGRAMS := qemu-system-x86_64:qemu-system-x86 qemu-system-aarch64:qemu-system-arm qemu-system-s390x:qemu-system-misc xz:xz-utils
vmtools:
	@$(call install,$(call missing,$(VMPROGRAMS)),--no-install-recommends)
