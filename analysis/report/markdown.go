package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"kneefinder/measurement"
)

// What fits a comment on a pull request, which holds 65,536 characters.
const (
	mostMarkdownRows  = 60
	mostMarkdownWarns = 15
)

// Markdown writes the run for a pull request: the sentence, the steps, the knees, what binds and the warnings.
func (r Run) Markdown(w io.Writer) error {
	res := &r.Results
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", plainText(clip(res.Label, 120)))
	about := plainText(who(res))
	if about != "" {
		about += ", "
	}
	fmt.Fprintf(&b, "%s%s. %s\n\n", about, plainText(fidelity(res)), plainText(load(res.Config)))
	fmt.Fprintf(&b, "**%s** %s\n\n", plainText(headline(res)), plainText(binds(res.Mechanism)))
	if s := howSure(res); s != "" {
		fmt.Fprintf(&b, "%s\n\n", plainText(s))
	}
	for _, e := range sentences(res.Mechanism.Evidence) {
		fmt.Fprintf(&b, "- %s\n", plainText(e))
	}
	if len(res.Mechanism.Evidence) > 0 {
		b.WriteString("\n")
	}

	if len(res.Steps) > 0 {
		fmt.Fprintf(&b, "| %s, %s | came | %s | TTFT P50, ms | P95, ms | 95 %% interval | ITL P95, ms | hit rate, %% | %s | errors, %% | verdict | flags |\n", asked(res.Config), unit(res.Config), answers(res.Config), live(res.Config))
		b.WriteString("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|:--|\n")
	} else {
		b.WriteString("The run has no step.\n")
	}
	for _, s := range res.Steps[:min(len(res.Steps), mostMarkdownRows)] {
		var flags []string
		for _, f := range s.Flags[:min(len(s.Flags), 15)] {
			flags = append(flags, "`"+word(f)+"`")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join([]string{digits(s.Rate), figure(s.ArrivedRate, 1), thousands(s.MeasuredTurns), figure(s.TTFTP50, 1), "**" + p95Cell(&s) + "**", interval(s.TTFTP95CI), figure(s.ITLP95, 1),
			share(s.CacheHitRate), figure(s.LiveCallsMean, 1), share(s.ErrorRate), emblem(s.Verdict) + " " + plainText(clip(string(s.Verdict), 20)), strings.Join(flags, " ")}, " | "))
	}
	b.WriteString("\n")
	if n := len(res.Steps) - mostMarkdownRows; n > 0 {
		fmt.Fprintf(&b, "%d more steps are left out.\n\n", n)
	}
	for _, m := range flagMeanings(res) {
		fmt.Fprintf(&b, "`%s`: %s  \n", m.Name, plainText(m.Meaning))
	}
	if slices.ContainsFunc(res.Steps, func(s measurement.StepResult) bool { return s.ITLBasis == "chunk" }) {
		b.WriteString("ITL is the gap between chunks of several tokens in this run, not between tokens.\n")
	}

	fmt.Fprintf(&b, "\n| knee | at, %s | estimate | 95 %% interval |\n|:--|--:|--:|--:|\n", unit(res.Config))
	for _, row := range kneeTable(res).Rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.Cells[0].Text, row.Cells[1].Text, row.Cells[2].Text, row.Cells[3].Text)
	}
	fmt.Fprintf(&b, "\n%s\n", plainText(certificate(res.Arrivals)))

	if n := len(res.Warnings); n > 0 {
		open := ""
		if n <= 3 {
			open = " open"
		}
		fmt.Fprintf(&b, "\n<details%s><summary>%s</summary>\n\n", open, plural(n, "warning"))
		for _, s := range sentences(res.Warnings)[:min(n, mostMarkdownWarns)] {
			fmt.Fprintf(&b, "- %s\n", plainText(s))
		}
		if n > mostMarkdownWarns {
			fmt.Fprintf(&b, "- and %d more\n", n-mostMarkdownWarns)
		}
		b.WriteString("\n</details>\n")
	}
	var notes []string
	for _, k := range []struct{ name, note string }{{"SLO knee", res.Knees.SLO.Note}, {"Curvature", res.Knees.Curvature.Note}, {"Saturation", res.Knees.Saturation.Note}} {
		if k.note != "" {
			notes = append(notes, "- "+k.name+": "+plainText(clip(k.note, mostRunes)))
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>The knees in words</summary>\n\n%s\n\n</details>\n", strings.Join(notes, "\n"))
	}
	var from []string
	for _, s := range []string{clip(r.Source, 120), clip(res.Tool, 80)} {
		if s != "" {
			from = append(from, plainText(s))
		}
	}
	if len(from) > 0 {
		fmt.Fprintf(&b, "\n<sub>%s</sub>\n", strings.Join(from, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// word is the name of a flag: small letters, digits and low lines.
func word(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return -1
	}, clip(s, 40))
}

func emblem(v measurement.Verdict) string {
	switch v {
	case measurement.Pass:
		return "✅"
	case measurement.Fail:
		return "❌"
	}
	return "⚪"
}

// plainText is a text that Markdown shows as it is: no markup, no link, and nobody is called by name.
func plainText(s string) string {
	var b strings.Builder
	for _, c := range clip(s, 2000) {
		switch c {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '\\', '`', '*', '_', '[', ']', '|', '~', '!', '$':
			b.WriteByte('\\')
			b.WriteRune(c)
		case '@', '#':
			b.WriteRune(c)
			b.WriteRune('\u200b') // so that it names no person and no issue
		default:
			b.WriteRune(c)
		}
	}
	return strings.NewReplacer("://", ":\u200b//", "www.", "www\u200b.").Replace(b.String())
}
