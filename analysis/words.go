package analysis

import "kneefinder/measurement"

// MechanismMeaning says in plain words what binds, by the name that Mechanism gives it; the name itself of one that is not known
// here.
func MechanismMeaning(name string) string { return humanMechanism(name) }

// CallGaps are the gaps between the calls of a log as Certify tests them, in units of the mean gap asked for, in the order they
// were sent. Of a Poisson process they are exponential with mean 1.
func CallGaps(log measurement.Log) []float64 { return rescaled(sentCalls(log)) }
