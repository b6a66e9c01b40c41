# repld: build, check and test. Needs Go, make and git; what else the tests
# need, scripts/deps.sh installs.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: build deps check test explore chaos demo bench

VERSION ?= $(shell git describe --tags --dirty --match 'v*' 2>/dev/null | sed 's/^v//' | grep . || echo dev)
COMMIT  ?= $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
DATE    ?= $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null | grep . || echo unknown)

pkg     := github.com/repld/repld/internal/version
ldflags := -s -w -X $(pkg).Version=$(VERSION) -X $(pkg).Commit=$(COMMIT) -X $(pkg).Date=$(DATE)

# Packages whose tests run at the same time, and tests of one package. Most of
# them start servers, which want a core now and then.
TEST_PARALLEL ?= 2
TEST_TOGETHER ?= 3
TEST_TIMEOUT  ?= 45m

build: ## static bin/repld and bin/replctl
	CGO_ENABLED=0 go build -trimpath -ldflags '$(ldflags)' -o bin/ ./cmd/repld ./cmd/replctl

deps: ## install what the tests and the demo need and this machine lacks
	scripts/deps.sh

check: ## format, vet, staticcheck, direction of imports, go.mod
	@echo 'gofmt'; files=$$(gofmt -l $$(git ls-files -co --exclude-standard -- '*.go')); \
		if [ -n "$$files" ]; then echo "not formatted, run gofmt -w on:"; echo "$$files"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go test ./test/imports
	go mod tidy -diff
	@echo 'make check: passed'

test: deps ## all tests, on real servers, with the race detector
	go test -race -count=1 -p $(TEST_PARALLEL) -parallel $(TEST_TOGETHER) -timeout $(TEST_TIMEOUT) ./...
	go test -count=1 -timeout $(TEST_TIMEOUT) -v -run 'Faults|Crashes|Writes|Orders|Switchovers|Chains|Rule' ./test/explorer | grep -E 'states|^(---|ok|FAIL)' ; exit $${PIPESTATUS[0]}
	@echo 'make test: passed'

# servers,writes,faults,crashes of repld: minutes to hours
EXPLORE ?= 3,2,2,1

explore: ## search more states of the model cluster: make explore EXPLORE=3,3,3,1
	EXPLORE=$(EXPLORE) go test -count=1 -timeout 24h -v -run 'TestBounds|TestSwitchovers' ./test/explorer

# How long there are random faults, in rounds or in minutes, and the seed of a
# run to be repeated.
MINUTES ?=
ROUNDS  ?= $(if $(MINUTES),0,20)
SEED    ?=

chaos: deps ## random faults under load on real servers and networks, nothing may be lost: make chaos MINUTES=10 SEED=1
	REPLD_NO_RACE=1 REPLD_CHAOS_ROUNDS=$(ROUNDS) REPLD_CHAOS_MINUTES=$(MINUTES) REPLD_CHAOS_SEED=$(SEED) go test -count=1 -timeout 24h -v -run TestRandomFaults ./test/e2e

demo: deps build ## the main job, live: set-up, failover, rejoin, comparison
	go run ./test/demo

bench: deps build ## the benchmarks of docs/performance.md
	go run ./test/bench
