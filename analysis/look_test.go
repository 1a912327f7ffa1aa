package analysis
import ("testing";"os";"bytes";"fmt"; "kneefinder/measurement")
func TestLook(t *testing.T) {
	a := Analyze(pool("L40S", .85, .05,.1, .2, .3, .5, .7, .8, .9, 1.1, 1.5))
	b := Analyze(pool("H100", 1.9, .02,.05,.1, .2, .5, 1, 1.5,2,2.5))
	cl := pool("censored", .6, .3,.4,.5,.55,.6,.7)
	for i := range cl.Turns { if cl.Turns[i].Step>=5 && i%5==0 { cl.Turns[i]=failed(cl.Turns[i], measurement.TTFTTimeout) } }
	cl.Steps[1].HeldCalls=3
	c := Analyze(cl)
	d := Analyze(pool("all pass", 9, .3,.4,.5,.55,.6,.7))
	dl := pool("one", 9, .5)
	for i := range dl.Turns { dl.Turns[i].CachedTokens = -1 }
	e := Analyze(dl)
	var buf bytes.Buffer
	Summary(&buf, a); Summary(&buf,b); Summary(&buf,c);Summary(&buf,d);Summary(&buf,e); CompareSummary(&buf, []measurement.Results{a,b,c,d,e})
	fmt.Println(buf.String())
	for i,r := range []measurement.Results{a,b,c,d,e} {
	var p bytes.Buffer
	if err := Chart(&p, r); err != nil { t.Fatal(err) }
	os.WriteFile(fmt.Sprintf("/tmp/k%d.png",i), p.Bytes(), 0o666); p.Reset()
	}
	var p bytes.Buffer
	if err := ChartCompare(&p, []measurement.Results{a,b,c}); err != nil { t.Fatal(err) }
	os.WriteFile("/tmp/kc.png", p.Bytes(), 0o666)
}
