package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"kneefinder/analysis"
	"kneefinder/measurement"
)

func ownResults(f File) (contents, error) {
	var r measurement.Results
	if err := json.Unmarshal(f.Data, &r); err != nil {
		return contents{}, refuse(f.Name, fmt.Sprintf("is no results file that can be read (%v)", err), "")
	}
	return contents{kind: OwnResults, own: []measurement.Results{r}}, nil
}

func ownLog(f File) (contents, error) {
	log, err := measurement.ReadLog(bytes.NewReader(f.Data), f.Name)
	if err != nil {
		if errors.Is(err, measurement.ErrNotLog) {
			return contents{}, refuse(f.Name, "begins as a turn log and is none that can be read", "")
		}
		return contents{}, err
	}
	return contents{kind: OwnLog, own: []measurement.Results{analysis.Analyze(log)}}, nil
}
