package cmd

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms says which of our packages each room may import; a room that ends in /... stands for every package below it. Nothing
// else of the module may be imported. ARCHITECTURE.md explains why.
var rooms = map[string][]string{
	"clock":              {},
	"measurement":        {},
	"generator/workload": {},
	"generator/wire":     {},
	"simulation/engine":  {"simulation/engine/..."},

	"simulation/engine/model":      {},
	"simulation/internal/scenario": {}, // of tests
	"simulation/engine/gpu":        {},
	"simulation/engine/gpu/fit":    {}, // a module of its own
	"simulation/engine/kv":         {},
	"simulation/engine/cost":       {"simulation/engine/model", "simulation/engine/gpu"},
	"simulation/fleet":             {"simulation/engine"},
	"generator":                    {"clock", "measurement", "generator/workload"},
	"generator/openai":             {"generator", "generator/wire", "generator/workload", "measurement", "clock"},
	"telemetry":                    {"measurement", "clock", "telemetry/names"},
	"telemetry/names":              {},
	"telemetry/page":               {"measurement", "clock", "telemetry/names"},
	"telemetry/web":                {"clock", "telemetry/names"},
	"telemetry/scrape":             {"measurement", "clock"},
	"analysis/export":              {"measurement", "telemetry/names"},
	"analysis":                     {"measurement"},
	"analysis/report":              {"measurement", "analysis"},
	"analysis/importer":            {"measurement", "analysis", "telemetry/names"},
	"simulation":                   {"generator", "generator/workload", "measurement", "clock", "simulation/..."},
	"simulation/anchor":            {"simulation/engine", "simulation/engine/...", "generator", "generator/workload", "measurement", "clock"},
	"simulation/mockserver":        {"simulation/engine", "simulation/fleet", "generator/wire", "clock"},
	"grafana":                      {"grafana/..."},
	"grafana/boards":               {"telemetry/names"},
	"grafana/queries":              {"telemetry/names"},
}

// elsewhere says which packages of others a room must never import, directly or by what it imports of ours.
var elsewhere = map[string][]string{
	"simulation/engine": {"net/http", "sync", "log", "log/slog", "github.com/prometheus/client_golang/prometheus"},
	"simulation/fleet":  {"net/http", "sync", "log", "log/slog", "github.com/prometheus/client_golang/prometheus"},
	"simulation":        {"net/http", "github.com/prometheus/client_golang/prometheus"},
	"analysis":          {"net", "net/http", "os"},
	"analysis/report":   {"net", "net/http", "os"},
	"generator":         {"net", "net/http"},
	"clock":             {"net/http"},
	"measurement":       {"net/http"},
}

// sources returns the imports of every non-test package of the module, ours without the module's name.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" || d.Name() == "results") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		room, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			return err
		}
		room = filepath.ToSlash(room)
		imports[room] = append(imports[room], []string{}...)
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[room] = append(imports[room], strings.TrimPrefix(name, "kneefinder/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

func TestImportsPointOneWay(t *testing.T) {
	imports := sources(t)
	ours := func(name string) bool { _, ok := imports[name]; return ok }
	if len(imports) < 12 {
		t.Fatalf("only %d packages found: %v", len(imports), imports)
	}
	for room, names := range imports {
		allowed, known := rooms[room]
		if !known && !strings.HasPrefix(room, "cmd") {
			t.Errorf("%s is no room of ARCHITECTURE.md: add it there and here, with what it may import", room)
		}
		for _, name := range names {
			if !ours(name) {
				continue
			}
			switch {
			case strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "cmd/internal/"):
				t.Errorf("%s imports the command %s", room, name)
			case strings.HasPrefix(room, "cmd"):
			case !slices.ContainsFunc(allowed, func(a string) bool {
				under, all := strings.CutSuffix(a, "...")
				return a == name || all && strings.HasPrefix(name, under)
			}):
				t.Errorf("%s imports %s; it may import only %v", room, name, allowed)
			}
		}
	}
}

func TestRoomsStayIgnorant(t *testing.T) {
	imports := sources(t)
	for room, banned := range elsewhere {
		seen := map[string]string{room: room}
		queue := []string{room}
		for len(queue) > 0 {
			at := queue[0]
			queue = queue[1:]
			for _, name := range imports[at] {
				if slices.Contains(banned, name) && !(name == "os" && at != room) && !(name == "net" && at != room) {
					t.Errorf("%s links %s, by %s", room, name, seen[at]+" -> "+name)
				}
				if _, ok := imports[name]; ok && seen[name] == "" {
					seen[name] = seen[at] + " -> " + name
					queue = append(queue, name)
				}
			}
		}
	}
}

// What a command links, libraries and all.
func TestCommandsLink(t *testing.T) {
	for command, banned := range map[string][]string{
		"kneesim":     {"kneefinder/simulation/mockserver", "kneefinder/telemetry", "go.opentelemetry.io/otel/sdk", "github.com/prometheus/client_golang/prometheus"},
		"kneeanalyze": {"go.opentelemetry.io/otel/sdk", "kneefinder/simulation", "kneefinder/generator/openai"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+command).Output()
		if err != nil {
			t.Fatalf("go list -deps ./%s: %v", command, err)
		}
		deps := strings.Fields(string(out))
		for _, name := range banned {
			if slices.Contains(deps, name) {
				t.Errorf("%s links %s", command, name)
			}
		}
	}
}
