// SPDX-License-Identifier: MIT

// Tests of a single layer against a reference in Go.

package moe

import (
	"math"
	"sort"
	"testing"
	"unsafe"
)

type unsafePointer = unsafe.Pointer

const smallD, smallF, smallN = 24, 40, 5

// numbers returns n pseudorandom values in -1..1, the same on every machine.
func numbers(n int, seed uint64) []float32 {
	values := make([]float32, n)
	for i := range values {
		seed = seed*6364136223846793005 + 1442695040888963407
		values[i] = float32(seed>>40)/(1<<23) - 1
	}
	return values
}

func smallLayer() LayerOptions {
	o := LayerOptions{DModel: smallD, DFF: smallF, Router: "topk:2", RouterWeight: numbers(smallN*smallD, 77)}
	for i := uint64(0); i < smallN; i++ {
		n := smallF * smallD
		o.Experts = append(o.Experts, ExpertWeights{Gate: numbers(n, i*3+1), Up: numbers(n, i*3+2), Down: numbers(n, i*3+3)})
	}
	return o
}

func product(w, x []float32) []float64 {
	y := make([]float64, len(w)/len(x))
	for i := range w {
		y[i/len(x)] += float64(w[i]) * float64(x[i%len(x)])
	}
	return y
}

// reference computes top-k of a softmax over all experts, without renormalization, and SiLU.
func reference(o LayerOptions, x []float32, k int) []float64 {
	logits, sum, order := product(o.RouterWeight, x), 0.0, make([]int, smallN)
	for i, logit := range logits {
		sum += math.Exp(logit)
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	y := make([]float64, smallD)
	for _, i := range order[:k] {
		gate, up := product(o.Experts[i].Gate, x), product(o.Experts[i].Up, x)
		inner := make([]float32, smallF)
		for j := range inner {
			inner[j] = float32(gate[j] / (1 + math.Exp(-gate[j])) * up[j])
		}
		for j, value := range product(o.Experts[i].Down, inner) {
			y[j] += math.Exp(logits[i]) / sum * value
		}
	}
	return y
}

func TestLayer(t *testing.T) {
	o, x := smallLayer(), numbers(7*smallD, 99)
	layer := must(NewLayer(testEnv(t), o))
	y := make([]float32, len(x))
	check0(t, layer.Forward(x, y))
	for row := 0; row < 7; row++ {
		for j, expected := range reference(o, x[row*smallD:(row+1)*smallD], 2) {
			if found := float64(y[row*smallD+j]); math.Abs(found-expected) > 1e-4 {
				t.Fatal(row, j, expected, found)
			}
		}
	}
	fails(t, layer.Forward(x, y[1:]), StatusShape)
	fails(t, layer.Forward(x[1:], y[1:]), StatusShape)
	check0(t, layer.Forward(nil, nil))
	check0(t, layer.Forward(x, x))
	for i := range x {
		if x[i] != y[i] {
			t.Fatal("in place differs")
		}
	}
	x[3] = float32(math.NaN())
	fails(t, layer.Forward(x, y), StatusNonFinite)
}

func TestLayerErrorsNameTheArray(t *testing.T) {
	env := testEnv(t)
	for expected, change := range map[string]func(o *LayerOptions){
		"Experts[3].Up: expected 960 numbers, found 959": func(o *LayerOptions) { o.Experts[3].Up = o.Experts[3].Up[1:] },
		"Experts[1].DownBias: expected 24 numbers, found 1": func(o *LayerOptions) {
			o.Experts[1].DownBias = make([]float32, 1)
		},
		"Shared.Up: expected 0 numbers, found 960": func(o *LayerOptions) { o.Shared = &ExpertWeights{Up: o.Experts[0].Up} },
		`Weights: contains a zero byte: "f\x0032"`: func(o *LayerOptions) { o.Weights = "f\x0032" },
	} {
		o := smallLayer()
		change(&o)
		if _, err := NewLayer(env, o); err == nil || err.(*Error).Text != expected {
			t.Errorf("expected %s, found %v", expected, err)
		}
	}
}

func TestLayerSizes(t *testing.T) {
	env := testEnv(t)
	for name, c := range map[string]struct {
		change   func(o *LayerOptions)
		expected Status
	}{
		"nothing":          {func(o *LayerOptions) {}, StatusOK},
		"packed":           {func(o *LayerOptions) { o.Weights, o.Activation = "ternary2", "relu2" }, StatusOK},
		"DFF":              {func(o *LayerOptions) { o.DFF-- }, StatusShape},
		"DModel":           {func(o *LayerOptions) { o.DModel++ }, StatusShape},
		"negative":         {func(o *LayerOptions) { o.DFF = -1 }, StatusRange},
		"RouterWeight":     {func(o *LayerOptions) { o.RouterWeight = o.RouterWeight[1:] }, StatusShape},
		"no RouterWeight":  {func(o *LayerOptions) { o.RouterWeight = nil }, StatusArgument},
		"DE, not a cosine": {func(o *LayerOptions) { o.DE, o.RouterWeight = 1, make([]float32, smallN) }, StatusShape},
		"Head":             {func(o *LayerOptions) { o.Head = make([]float32, smallD) }, StatusShape},
		"no Up":            {func(o *LayerOptions) { o.Experts[1].Up = nil }, StatusArgument},
		"no Experts":       {func(o *LayerOptions) { o.Experts = nil }, StatusShape},
		"Router":           {func(o *LayerOptions) { o.Router = "topk:99" }, StatusRange},
		"Weights":          {func(o *LayerOptions) { o.Weights = "int77" }, StatusArgument},
		"MaxRows":          {func(o *LayerOptions) { o.MaxRows = math.MaxInt }, StatusRange},
		"Shared": {func(o *LayerOptions) {
			o.SharedDFF, o.SharedGate = smallF, numbers(smallD, 5)
			o.Shared = &ExpertWeights{Gate: o.Experts[0].Gate, Up: o.Experts[0].Up, Down: o.Experts[0].Down}
		}, StatusOK},
	} {
		o := smallLayer()
		c.change(&o)
		if _, err := NewLayer(env, o); StatusOf(err) != c.expected {
			t.Errorf("%s: expected %v, found %v", name, c.expected, err)
		}
	}
}
