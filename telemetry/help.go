package telemetry

import (
	"strings"

	"kneefinder/telemetry/names"
)

// help says of each metric what counts, and when.
func help(name string) string {
	if text := names.Help(name); text != "" {
		return text
	}
	return genHelp[name]
}

var genHelp = map[string]string{
	genDuration:  "Time from when a request was sent to its end.",
	genFirst:     "Time from when a request was sent to its first chunk.",
	genPerChunk:  "Time between the chunks of an answer, after the first.",
	genInput:     "Tokens of prompts.",
	genOutput:    "Tokens of answers.",
	genCacheRead: "Tokens of prompts that were read from the server's cache.",
}

// unit is that of a name, as OpenTelemetry writes it. The exporter adds no ending that a name has already.
func unit(name string) string {
	base := strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasPrefix(name, "gen_ai.") && strings.HasSuffix(base, "_tokens"):
		return "{token}"
	case strings.HasPrefix(name, "gen_ai."), strings.HasSuffix(base, "_seconds"):
		return "s"
	case strings.HasSuffix(base, "_ratio"):
		return "1"
	}
	return ""
}
