# make check runs what a commit must pass; make bench what docs/performance.md shows, make coverage what
# docs/coverage.md does.
.PHONY: check test bench coverage build

build:
	go build -o bin/ ./cmd/...

check:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt: the files above are not formatted"; exit 1; }
	go vet ./...
	go vet -tags nodemo ./cmd/kneeload
	go tool -modfile=.ci/tools/go.mod staticcheck ./...
	go test -race ./...
	cd grafana && go vet ./... && go test -short ./...

test:
	go test ./...

bench:
	go test -run '^$$' -bench . -benchmem -timeout 30m ./...
	go test -count=1 -run Memory -v ./cmd

coverage:
	KNEE_COVERAGE=$${KNEE_COVERAGE:-200} nice go test -count=1 -run TestCoverage -v -timeout 60m ./analysis
	KNEE_COVERAGE=$${KNEE_COVERAGE:-60} nice go test -tags coverage -count=1 -run TestCoverage -v -timeout 60m ./cmd/kneesim
