// SPDX-License-Identifier: MIT

// Layer: a single MoE layer as a kernel, over moe_layer_*.

package moe

// #include <moe_c.h>
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// ExpertWeights is one expert. Matrices are row-major (out, in); a plain FFN has no Gate.
type ExpertWeights struct {
	Gate     []float32 // (DFF, d_in) or nil
	Up       []float32 // (DFF, d_in)
	Down     []float32 // (d_in, DFF)
	GateBias []float32 // (DFF) or nil
	UpBias   []float32 // (DFF) or nil
	DownBias []float32 // (d_in) or nil
}

// LayerOptions are the options of a Layer. Set the sizes, the experts and RouterWeight; the rest may
// be zero. d_in is DModel / NSubheads. Everything is copied.
type LayerOptions struct {
	DModel, DFF  int
	NSubheads    int    // 0 or 1: ordinary; more: MH-MoE
	MaxRows      int    // most tokens of one pass; 0: 256
	Activation   string // "": "silu"
	Router       string // "": "topk:1"
	Weights      string // one of WeightFormats; "": "f32"
	Activations  string
	Experts      []ExpertWeights
	RouterWeight []float32 // (experts, d_in); cosine: (experts, DE)
	RouterBias   []float32 // (experts) or nil
	RouterProj   []float32 // cosine: (DE, d_in)
	DE           int
	SharedDFF    int
	Shared       *ExpertWeights
	SharedGate   []float32 // (DModel) or nil
	Head, Merge  []float32 // (DModel, DModel) or nil
	HeadBias     []float32 // (DModel) or nil
	MergeBias    []float32 // (DModel) or nil
}

// Layer is a single MoE layer: (n, DModel) to (n, DModel).
type Layer struct {
	h      *handle
	one    single
	dModel int
}

// sizes collects the first error of arrays and counts.
type sizes struct {
	a   arena
	err error
}

func (s *sizes) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *sizes) number(n int, what string) C.int32_t {
	result, err := count(n, what)
	if err != nil {
		s.fail(err)
	}
	return result
}

// array must have exactly n numbers, which the library will read.
func (s *sizes) array(values []float32, n int, what string) *C.float {
	if values != nil && len(values) != n {
		s.fail(failed(StatusShape, fmt.Sprintf("%s: expected %d numbers, found %d", what, n, len(values))))
	}
	if s.err != nil {
		return nil
	}
	return s.a.floats(values)
}

// times saturates: no slice is that long.
func times(a, b int) int {
	if a > 0 && b > math.MaxInt/a {
		return math.MaxInt
	}
	return a * b
}

func (s *sizes) expert(w ExpertWeights, dff, dIn int, what string) C.moe_expert_weights {
	n := times(dff, dIn)
	array := func(values []float32, n int, name string) *C.float { return s.array(values, n, what+"."+name) }
	var e C.moe_expert_weights
	e.struct_size = C.uint32_t(C.sizeof_moe_expert_weights)
	e.gate, e.up, e.down = array(w.Gate, n, "Gate"), array(w.Up, n, "Up"), array(w.Down, n, "Down")
	e.gate_bias, e.up_bias = array(w.GateBias, dff, "GateBias"), array(w.UpBias, dff, "UpBias")
	e.down_bias = array(w.DownBias, dIn, "DownBias")
	return e
}

func (s *sizes) layer(o *LayerOptions) (p C.moe_layer_params) {
	d, n, dIn := o.DModel, len(o.Experts), o.DModel
	if o.NSubheads > 1 {
		dIn /= o.NSubheads
	}
	width := dIn
	if o.RouterProj != nil { // cosine has both
		width = o.DE
	}
	p.struct_size = C.uint32_t(C.sizeof_moe_layer_params)
	p.d_model, p.d_ff, p.n_experts = s.number(d, "DModel"), s.number(o.DFF, "DFF"), s.number(n, "Experts")
	p.n_subheads, p.max_rows = s.number(o.NSubheads, "NSubheads"), s.number(o.MaxRows, "MaxRows")
	p.d_e, p.shared_d_ff = s.number(o.DE, "DE"), s.number(o.SharedDFF, "SharedDFF")
	if s.err != nil {
		return p
	}
	experts := make([]C.moe_expert_weights, n)
	for i, w := range o.Experts {
		experts[i] = s.expert(w, o.DFF, dIn, fmt.Sprintf("Experts[%d]", i))
	}
	p.experts = put(&s.a, experts...)
	p.router_weight = s.array(o.RouterWeight, times(n, width), "RouterWeight")
	p.router_bias = s.array(o.RouterBias, n, "RouterBias")
	p.router_proj = s.array(o.RouterProj, times(o.DE, dIn), "RouterProj")
	if o.Shared != nil {
		p.shared = put(&s.a, s.expert(*o.Shared, o.SharedDFF, d, "Shared"))
	}
	p.shared_gate = s.array(o.SharedGate, d, "SharedGate")
	p.head, p.head_bias = s.array(o.Head, times(d, d), "Head"), s.array(o.HeadBias, d, "HeadBias")
	p.merge, p.merge_bias = s.array(o.Merge, times(d, d), "Merge"), s.array(o.MergeBias, d, "MergeBias")
	err := s.a.texts(option{&p.activation, o.Activation, "Activation"},
		option{&p.weights, o.Weights, "Weights"}, option{&p.activations, o.Activations, "Activations"})
	if err == nil {
		p.router, err = parseRouter(&s.a, o.Router)
	}
	if err != nil {
		s.fail(err)
	}
	return p
}

// NewLayer packs the weights of a layer.
func NewLayer(env *Env, options LayerOptions) (*Layer, error) {
	p, release, err := env.use()
	if err != nil {
		return nil, err
	}
	defer release()
	var s sizes
	defer s.a.free()
	params := s.layer(&options)
	if s.err != nil {
		return nil, s.err
	}
	var layer *C.moe_layer
	var e C.moe_error
	if err := check(C.moe_layer_create(p, &params, &layer, &e), &e); err != nil {
		return nil, err
	}
	free := func(p unsafe.Pointer) { C.moe_layer_free((*C.moe_layer)(p)) }
	return collected(&Layer{h: newHandle("layer", unsafe.Pointer(layer), env.h, free), dModel: options.DModel}), nil
}

// Close frees the memory.
func (l *Layer) Close() { l.h.close() }

// Forward computes y from x, both (n, DModel); they may be the same slice.
func (l *Layer) Forward(x, y []float32) error {
	p, err := l.h.acquire()
	if err != nil {
		return err
	}
	defer l.h.release()
	if err := l.one.enter("layer"); err != nil {
		return err
	}
	defer l.one.leave()
	if len(x)%l.dModel != 0 || len(y) != len(x) {
		return failed(StatusShape, fmt.Sprintf("x and y: expected rows of %d numbers, found %d and %d numbers", l.dModel, len(x), len(y)))
	}
	var e C.moe_error
	return check(C.moe_layer_forward((*C.moe_layer)(p), floatsOf(x), C.size_t(len(x)/l.dModel), floatsOf(y), &e), &e)
}
