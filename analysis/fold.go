package analysis

import (
	"fmt"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// mostListed is how many of a list stand in a sentence; of a longer one the first stand there, and the last.
const mostListed = 5

// listed joins a list, and folds a long one: "1, 2, 3, 4 and 6 more up to 20".
func listed(list []string) string {
	n := len(list)
	if n <= mostListed {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more up to %s", strings.Join(list[:mostListed-1], ", "), n-mostListed, list[n-1])
}

// reasoned lists the loads of steps with the reasons of their verdicts, those with one reason together.
func reasoned(u unit, steps []measurement.StepResult) string {
	var whys []string
	of := map[string][]float64{}
	for _, s := range steps {
		why := reason(u, s)
		if !slices.Contains(whys, why) {
			whys = append(whys, why)
		}
		if !slices.Contains(of[why], s.Rate) {
			of[why] = append(of[why], s.Rate)
		}
	}
	var out []string
	for _, why := range whys {
		var all []string
		for _, load := range of[why] {
			all = append(all, rate(load))
		}
		text := listed(all) + " " + string(u)
		if len(all) == 1 {
			text = u.of(of[why][0])
		}
		if why != "" {
			text += " (" + why + ")"
		}
		out = append(out, text)
	}
	return listed(out)
}
