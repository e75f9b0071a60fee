// SPDX-License-Identifier: MIT

// Tokenizer: text to ids and back, over moe_tokenizer_*.

package moe

// #include <moe_c.h>
import "C"

import (
	"fmt"
	"unsafe"
)

// EncodeText selects how a text is encoded. Zero: as the beginning of a sequence, without special
// tokens that the text itself spells out.
type EncodeText struct {
	NoSpecial    bool // nothing in front of the text or behind it: for a text that goes on
	ParseSpecial bool // special tokens spelled out in the text become their ids
}

// Tokenizer belongs to a model, and is closed with it.
type Tokenizer struct {
	model   *Model
	pointer *C.moe_tokenizer
}

// Tokenizer returns StatusUnsupported for a model of token ids only.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	p, release, err := m.use()
	if err != nil {
		return nil, err
	}
	defer release()
	found := C.moe_model_tokenizer(p)
	if found == nil {
		return nil, failed(StatusUnsupported, "the model has no tokenizer")
	}
	return &Tokenizer{m, found}, nil
}

// Encode returns the ids of a text that begins a sequence.
func (t *Tokenizer) Encode(text string) ([]int32, error) { return t.EncodeWith(text, EncodeText{}) }

// EncodeWith returns the ids of a text.
func (t *Tokenizer) EncodeWith(text string, how EncodeText) ([]int32, error) {
	var flags C.uint32_t
	if how.NoSpecial {
		flags |= C.MOE_ENCODE_NO_SPECIAL
	}
	if how.ParseSpecial {
		flags |= C.MOE_ENCODE_PARSE_SPECIAL
	}
	data := append([]byte(text), 0)
	return filled(len(text), 0, func(buffer *int32, capacity C.size_t, n *C.size_t) error {
		return t.model.ask(func(_ *C.moe_model, e *C.moe_error) C.moe_status {
			return C.moe_tokenizer_encode(t.pointer, (*C.char)(unsafe.Pointer(&data[0])), C.size_t(len(text)), flags,
				(*C.int32_t)(buffer), capacity, n, e)
		})
	})
}

// Decode returns the text of some ids.
func (t *Tokenizer) Decode(tokens []int32, skipSpecial bool) (string, error) {
	var flags C.uint32_t
	if skipSpecial {
		flags = C.MOE_DECODE_SKIP_SPECIAL
	}
	return filledText(func(buffer *C.char, capacity C.size_t, n *C.size_t) error {
		return t.model.ask(func(_ *C.moe_model, e *C.moe_error) C.moe_status {
			return C.moe_tokenizer_decode(t.pointer, tokensOf(tokens), C.size_t(len(tokens)), flags, buffer, capacity, n, e)
		})
	})
}

// Piece is the vocabulary's spelling of a token.
func (t *Tokenizer) Piece(token int32) (string, error) {
	_, release, err := t.model.use()
	if err != nil {
		return "", err
	}
	defer release()
	text := C.moe_tokenizer_piece(t.pointer, C.int32_t(token))
	if text == nil {
		return "", failed(StatusRange, fmt.Sprintf("token %d: not in the vocabulary", token))
	}
	return C.GoString(text), nil
}
