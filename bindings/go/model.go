// SPDX-License-Identifier: MIT

// Model: opening model files and what they say of themselves, over moe_model_*.

package moe

/*
#include <stdlib.h>
#include <moe_c.h>
bool moeGoRead(void* user, uint64_t offset, void* buffer, size_t bytes);
*/
import "C"

import (
	"io"
	"unsafe"
)

// ModelOptions are the options for opening a Model.
type ModelOptions struct {
	// MapWeights maps uncompressed weights instead of reading them. The file must then not change
	// while the model is open: a truncated mapped file kills the process.
	MapWeights    bool
	SkipChecksums bool           // trust the bytes of weights
	MemoryBytes   uint64         // cap over weights, KV caches and scratch; 0: none
	Session       SessionOptions // with a cap: the session that must fit
	IO            IO
	// LazyExperts: with a cap, read experts only when a token needs them; otherwise free room for
	// experts is filled while nothing else is read.
	LazyExperts bool
}

// ModelInfo describes a model file.
type ModelInfo struct {
	Name                                   string
	VocabSize, DModel, NLayers, NMoeLayers int
	ContextLength                          int
	BOSToken                               int32 // -1: none
	EOSTokens                              []int32
	NParameters, NActiveParameters         uint64
	WeightBytes, BytesPerToken, FileBytes  uint64
	Head                                   string // "tokens", of an encoder "classes", "tags", "span" or "none"
	NOutputs                               int
	IsEncoder                              bool  // for Session.Encode alone; it generates nothing
	MaskToken                              int32 // -1: none
	IsEncoderDecoder                       bool  // for Session.Translate; the next three are then set
	NEncoderLayers                         int
	SourceLength                           int    // the most tokens of a source
	StartToken                             int32  // in front of each text of the decoder; -1: none
	Pooling                                string // of vectors of texts; "": the file says nothing of them
	Normalized                             bool   // vectors have the length 1
	VectorTokens                           int    // the most tokens of a text; 0: as many as the context holds
	DefaultPrompt                          int    // an index of Prompts; -1: none
	FileHash                               uint64 // tells model files apart
	Device                                 string // that runs it
	NPredictions                           int    // 1: a layer beside the others guesses further tokens, which drafts use
}

// LayerInfo is one layer; the meaning of each number is in moe_c.h.
type LayerInfo struct {
	NHeads, NKVHeads, HeadDim, Window            int
	DFF, NExperts, NActive, NSubheads, SharedDFF int
	Router                                       string // as Session.SetRouter takes it, "topk:2"; "": dense
	Kind, Weights, Gate                          string // of the router
	Activation                                   string
	NSublayers, K                                int
	Threshold, Tau, Gamma                        float32
	HasHead, HasMerge                            bool
	NCrossHeads                                  int    // of attention to an encoder's output
	KVLatent                                     int    // numbers of a position under KVLatent; 0: there is no latent
	Mixer                                        string // in place of attention or beside it, "short_conv"; "": none
	StateBytes                                   uint64 // of a layer with a mixer, at one position of a session
}

// TensorInfo is one stored matrix or vector.
type TensorInfo struct {
	Layer, Expert                                 int // -1: none
	Rows, Cols                                    int
	Part, Role, Format, Scale, Activations, Codec string
	Bytes, FileOffset                             uint64
}

// MemoryLine is one line of the memory account.
type MemoryLine struct {
	What  string
	Bytes uint64
}

// MemoryPlan is a session's share of memory under the model's cap.
type MemoryPlan struct {
	Chunk                             int
	CapBytes, NeededBytes, LeastBytes uint64
	ExpertBytes, NExperts, NInMemory  uint64
	SessionBytes                      uint64 // what each further session adds to LeastBytes
}

// Model is an open model file.
type Model struct{ h *handle }

type opener func(env *C.moe_env, params *C.moe_model_params, out **C.moe_model, e *C.moe_error) C.moe_status

// open retains the model's source until the model is freed.
func open(env *Env, options *ModelOptions, kept *arena, call opener) (*Model, error) {
	model, err := opened(env, orDefault(options), kept, call)
	if err != nil {
		kept.free()
	}
	return model, err
}

func opened(env *Env, o ModelOptions, kept *arena, call opener) (*Model, error) {
	p, release, err := env.use()
	if err != nil {
		return nil, err
	}
	defer release()
	var a arena
	defer a.free()
	session, err := o.Session.params(&a)
	if err != nil {
		return nil, err
	}
	var params C.moe_model_params
	params.struct_size = C.uint32_t(C.sizeof_moe_model_params)
	params.map_weights = flag(o.MapWeights)
	params.skip_checksums = flag(o.SkipChecksums)
	params.memory_bytes = C.uint64_t(o.MemoryBytes)
	params.session = session
	params.io = C.moe_io(o.IO)
	params.lazy_experts = flag(o.LazyExperts)
	var model *C.moe_model
	var e C.moe_error
	if err := check(call(p, &params, &model, &e), &e); err != nil {
		return nil, err
	}
	free := func(p unsafe.Pointer) { C.moe_model_free((*C.moe_model)(p)); kept.free() }
	return collected(&Model{newHandle("model", unsafe.Pointer(model), env.h, free)}), nil
}

// Open opens a model file; nil: default options.
func Open(env *Env, path string, options *ModelOptions) (*Model, error) {
	kept := new(arena)
	name, err := kept.given(path, "path")
	if err != nil {
		return nil, err
	}
	return open(env, options, kept, func(env *C.moe_env, params *C.moe_model_params, out **C.moe_model, e *C.moe_error) C.moe_status {
		return C.moe_model_open(env, name, params, out, e)
	})
}

// OpenBytes opens a model file in memory, which it copies.
func OpenBytes(env *Env, data []byte, options *ModelOptions) (*Model, error) {
	const line = 64 // what is so aligned is not copied again
	kept := new(arena)
	room := C.aligned_alloc(line, C.size_t((len(data)+line)/line*line))
	if room == nil {
		return nil, failed(StatusMemory, "no memory for the model's bytes")
	}
	kept.blocks = append(kept.blocks, room)
	copy(unsafe.Slice((*byte)(room), len(data)), data)
	return open(env, options, kept, func(env *C.moe_env, params *C.moe_model_params, out **C.moe_model, e *C.moe_error) C.moe_status {
		return C.moe_model_open_memory(env, room, C.size_t(len(data)), params, out, e)
	})
}

// OpenReader opens a model that is read from source, in any thread, until it is closed. The source
// must not call this package: the model may be locked. What it fails with before OpenReader returns
// is the error's cause, and a panic continues; a later failure is a StatusIO without a cause in the
// call that needed the bytes. A negative size counts as 0.
func OpenReader(env *Env, source io.ReaderAt, size int64, options *ModelOptions) (*Model, error) {
	kept := new(arena)
	var reader C.moe_reader
	reader.struct_size = C.uint32_t(C.sizeof_moe_reader)
	if size > 0 {
		reader.size = C.uint64_t(size)
	}
	reader.read = (*[0]byte)(C.moeGoRead)
	call := &readCall{source: source}
	reader.user = kept.ref(call)
	model, err := open(env, options, kept, func(env *C.moe_env, params *C.moe_model_params, out **C.moe_model, e *C.moe_error) C.moe_status {
		return C.moe_model_open_reader(env, &reader, params, out, e)
	})
	return model, call.outcome(err)
}

// Close frees the memory once its sessions are closed too.
func (m *Model) Close() { m.h.close() }

func (m *Model) use() (*C.moe_model, func(), error) {
	p, err := m.h.acquire()
	return (*C.moe_model)(p), m.h.release, err
}

// ask makes one call about the model.
func (m *Model) ask(call func(model *C.moe_model, e *C.moe_error) C.moe_status) error {
	p, release, err := m.use()
	if err != nil {
		return err
	}
	defer release()
	var e C.moe_error
	return check(call(p, &e), &e)
}

// Info describes the file.
func (m *Model) Info() (info ModelInfo, err error) {
	var i C.moe_model_info
	i.struct_size = C.uint32_t(C.sizeof_moe_model_info)
	err = m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status {
		status := C.moe_model_get_info(model, &i, e)
		if status == C.MOE_OK { // its texts and arrays are the model's
			info = modelInfoOf(&i)
		}
		return status
	})
	return info, err
}

func modelInfoOf(i *C.moe_model_info) ModelInfo {
	eos := unsafe.Slice((*int32)(i.eos_tokens), int(i.n_eos_tokens))
	return ModelInfo{
		Name: C.GoString(i.name), VocabSize: int(i.vocab_size), DModel: int(i.d_model),
		NLayers: int(i.n_layers), NMoeLayers: int(i.n_moe_layers), ContextLength: int(i.context_length),
		BOSToken: int32(i.bos_token), EOSTokens: append([]int32(nil), eos...),
		NParameters: uint64(i.n_parameters), NActiveParameters: uint64(i.n_active_parameters),
		WeightBytes: uint64(i.weight_bytes), BytesPerToken: uint64(i.bytes_per_token),
		FileBytes: uint64(i.file_bytes), Head: C.GoString(i.head), NOutputs: int(i.n_outputs),
		IsEncoder: i.is_encoder != 0, MaskToken: int32(i.mask_token),
		IsEncoderDecoder: i.is_encoder_decoder != 0, NEncoderLayers: int(i.n_encoder_layers),
		SourceLength: int(i.source_length), StartToken: int32(i.start_token),
		Pooling: C.GoString(i.pooling), Normalized: i.normalized != 0,
		VectorTokens: int(i.vector_tokens), DefaultPrompt: int(i.default_prompt),
		FileHash: uint64(i.file_hash), Device: C.GoString(i.device),
		NPredictions: int(i.n_predictions),
	}
}

// Prompt is a text to put before those that become vectors.
type Prompt struct {
	Name, Text string
}

// Prompts are those of the model file.
func (m *Model) Prompts() (prompts []Prompt, err error) {
	var i C.moe_model_info
	i.struct_size = C.uint32_t(C.sizeof_moe_model_info)
	err = m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status {
		status := C.moe_model_get_info(model, &i, e)
		for n := C.int32_t(0); status == C.MOE_OK && n < i.n_prompts; n++ {
			var name, text *C.char
			status = C.moe_model_get_prompt(model, n, &name, &text, e)
			if status == C.MOE_OK { // its texts are the model's
				prompts = append(prompts, Prompt{C.GoString(name), C.GoString(text)})
			}
		}
		return status
	})
	return prompts, err
}

// LayerInfo describes a layer.
func (m *Model) LayerInfo(layer int) (info LayerInfo, err error) {
	index, err := count(layer, "layer")
	if err != nil {
		return info, err
	}
	var i C.moe_model_layer_info
	i.struct_size = C.uint32_t(C.sizeof_moe_model_layer_info)
	var r C.moe_router
	r.struct_size = C.uint32_t(C.sizeof_moe_router)
	err = m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status {
		status := C.moe_model_get_layer_info(model, index, &i, e)
		if status == C.MOE_OK && i.n_experts > 0 {
			status = C.moe_model_get_router(model, index, &r, e)
		}
		if status == C.MOE_OK {
			info = layerInfoOf(&i, &r)
		}
		return status
	})
	if err == nil && i.n_experts > 0 {
		info.Router, err = routerText(&r)
	}
	return info, err
}

// layerInfoOf: r is zero for a dense layer.
func layerInfoOf(i *C.moe_model_layer_info, r *C.moe_router) LayerInfo {
	return LayerInfo{
		NHeads: int(i.n_heads), NKVHeads: int(i.n_kv_heads), HeadDim: int(i.head_dim),
		Window: int(i.window), DFF: int(i.d_ff), NExperts: int(i.n_experts), NActive: int(i.n_active),
		NSubheads: int(i.n_subheads), SharedDFF: int(i.shared_d_ff), Kind: C.GoString(r.kind),
		Activation: C.GoString(i.activation), Weights: C.GoString(r.weights), Gate: C.GoString(r.gate),
		NSublayers: int(i.n_sublayers), K: int(r.k),
		Threshold: float32(r.threshold), Tau: float32(r.tau), Gamma: float32(r.gamma),
		HasHead: i.has_head != 0, HasMerge: i.has_merge != 0,
		NCrossHeads: int(i.n_cross_heads), KVLatent: int(i.kv_latent),
		Mixer: C.GoString(i.mixer), StateBytes: uint64(i.state_bytes),
	}
}

// Tensors are all stored matrices and vectors.
func (m *Model) Tensors() ([]TensorInfo, error) {
	p, release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	tensors := make([]TensorInfo, C.moe_model_tensor_count(p))
	for index := range tensors {
		var i C.moe_tensor_info
		i.struct_size = C.uint32_t(C.sizeof_moe_tensor_info)
		var e C.moe_error
		if err := check(C.moe_model_get_tensor_info(p, C.size_t(index), &i, &e), &e); err != nil {
			return nil, err
		}
		tensors[index] = tensorInfoOf(&i)
	}
	return tensors, nil
}

func tensorInfoOf(i *C.moe_tensor_info) TensorInfo {
	return TensorInfo{
		Layer: int(i.layer), Expert: int(i.expert), Rows: int(i.rows), Cols: int(i.cols),
		Part: C.GoString(i.part), Role: C.GoString(i.role), Format: C.GoString(i.format),
		Scale: C.GoString(i.scale), Activations: C.GoString(i.activations), Codec: C.GoString(i.codec),
		Bytes: uint64(i.bytes), FileOffset: uint64(i.file_offset),
	}
}

// withSession makes a call that takes the parameters of a session.
func (m *Model) withSession(o SessionOptions, call func(model *C.moe_model, params *C.moe_session_params, e *C.moe_error) C.moe_status) error {
	var a arena
	defer a.free()
	params, err := o.params(&a)
	if err != nil {
		return err
	}
	return m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status { return call(model, params, e) })
}

// Memory is the account of this model with one such session, whether allocated yet or not.
func (m *Model) Memory(session SessionOptions) ([]MemoryLine, error) {
	lines, err := filled(0, 0, func(buffer *C.moe_memory_line, capacity C.size_t, n *C.size_t) error {
		return m.withSession(session, func(model *C.moe_model, params *C.moe_session_params, e *C.moe_error) C.moe_status {
			return C.moe_model_get_memory(model, params, 1, buffer, capacity, n, e)
		})
	})
	account := make([]MemoryLine, len(lines))
	for i, line := range lines {
		account[i] = MemoryLine{C.GoString(line.what), uint64(line.bytes)}
	}
	return account, err
}

// MemoryPlan is what so many such sessions get under the model's cap.
func (m *Model) MemoryPlan(session SessionOptions, sessions int) (MemoryPlan, error) {
	n, err := count(sessions, "sessions")
	if err != nil {
		return MemoryPlan{}, err
	}
	var p C.moe_memory_plan
	p.struct_size = C.uint32_t(C.sizeof_moe_memory_plan)
	err = m.withSession(session, func(model *C.moe_model, params *C.moe_session_params, e *C.moe_error) C.moe_status {
		return C.moe_model_get_memory_plan(model, params, n, &p, e)
	})
	return MemoryPlan{
		Chunk: int(p.chunk), CapBytes: uint64(p.cap_bytes), NeededBytes: uint64(p.needed_bytes),
		LeastBytes: uint64(p.least_bytes), ExpertBytes: uint64(p.expert_bytes),
		NExperts: uint64(p.n_experts), NInMemory: uint64(p.n_in_memory),
		SessionBytes: uint64(p.session_bytes),
	}, err
}

// SuggestMemory is the MemoryBytes to open this model with for so many such sessions; 0 if everything fits.
func (m *Model) SuggestMemory(session SessionOptions, sessions int) (uint64, error) {
	n, err := count(sessions, "sessions")
	if err != nil {
		return 0, err
	}
	var bytes C.uint64_t
	err = m.withSession(session, func(model *C.moe_model, params *C.moe_session_params, e *C.moe_error) C.moe_status {
		return C.moe_model_suggest_memory(model, params, n, &bytes, e)
	})
	return uint64(bytes), err
}

// Verify reads every weight once and verifies checksums, codes and scales.
func (m *Model) Verify() error {
	return m.ask(func(model *C.moe_model, e *C.moe_error) C.moe_status { return C.moe_model_verify(model, e) })
}

// ChatTemplate is the model file's Jinja template; "": none.
func (m *Model) ChatTemplate() (string, error) {
	p, release, err := m.use()
	if err != nil {
		return "", err
	}
	defer release()
	return C.GoString(C.moe_model_chat_template(p)), nil
}
