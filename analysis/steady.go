package analysis

import (
	"fmt"
	"io"

	"kneefinder/measurement"
)

// SteadySummary prints what a steady load at one rate was like. Nothing is said of a knee: one rate has none.
func SteadySummary(w io.Writer, r measurement.Results) {
	fmt.Fprintf(w, "%s\n\nObjectives: %s; errors under 2 %%.\n\n", title(r), objectives(r.Config.SLO))
	u := unitOf(r.Config)
	stepTable(w, u, r.Steps)
	fmt.Fprintln(w)
	engineTable(w, u, r.Steps)
}
