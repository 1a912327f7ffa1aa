package anchor

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// nnls minimises |a*x - b| over x >= 0: Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23, with the normal
// equations, which do for the dozen columns here as they come scaled. It does not change a or b.
func nnls(a *mat.Dense, b []float64) []float64 {
	_, n := a.Dims()
	var gram mat.Dense
	gram.Mul(a.T(), a)
	var right mat.VecDense
	right.MulVec(a.T(), mat.NewVecDense(len(b), b))
	x := make([]float64, n)
	free := make([]bool, n)
	tolerance := 0.
	for j := range n {
		tolerance = max(tolerance, 1e-12*math.Abs(right.AtVec(j)))
	}
	for range 3 * n {
		// The bound variable whose growth helps most becomes free.
		best, most := -1, tolerance
		for j := range n {
			if free[j] || gram.At(j, j) == 0 {
				continue
			}
			slope := right.AtVec(j)
			for k := range n {
				slope -= gram.At(j, k) * x[k]
			}
			if slope > most {
				best, most = j, slope
			}
		}
		if best < 0 {
			break
		}
		free[best] = true
		for {
			y := solveFree(&gram, &right, free)
			step, bound := 1., -1
			for j := range n {
				if free[j] && y[j] <= 0 {
					if s := x[j] / (x[j] - y[j]); s < step || bound < 0 {
						step, bound = s, j
					}
				}
			}
			if bound < 0 {
				x = y
				break
			}
			for j := range n {
				if free[j] {
					x[j] += step * (y[j] - x[j])
					if x[j] <= 1e-15 || j == bound {
						x[j], free[j] = 0, false
					}
				}
			}
		}
	}
	return x
}

// solveFree solves the normal equations of the free variables; the others are 0.
func solveFree(gram *mat.Dense, right *mat.VecDense, free []bool) []float64 {
	var index []int
	for j, f := range free {
		if f {
			index = append(index, j)
		}
	}
	x := make([]float64, len(free))
	if len(index) == 0 {
		return x
	}
	sub, rhs := mat.NewSymDense(len(index), nil), mat.NewVecDense(len(index), nil)
	for i, j := range index {
		rhs.SetVec(i, right.AtVec(j))
		for k, l := range index {
			sub.SetSym(i, k, gram.At(j, l))
		}
		sub.SetSym(i, i, gram.At(j, j)*(1+1e-12)) // columns that are alike
	}
	var c mat.Cholesky
	var y mat.VecDense
	if !c.Factorize(sub) || c.SolveVecTo(&y, rhs) != nil && y.Len() != len(index) {
		return x
	}
	for i, j := range index {
		x[j] = y.AtVec(i)
	}
	return x
}
