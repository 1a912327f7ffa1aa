//go:build race

package anchor

const raceEnabled = true
