// Generated from include/moe_c.h by bindings/generate.py; do not edit.
// SPDX-License-Identifier: MIT

/**
 * The `code` of this package's Errors. The message is one line that names the faulty item.
 */
export type ErrorCode =
  | 'MOE_ERR_ARGUMENT'
  | 'MOE_ERR_RANGE'
  | 'MOE_ERR_SHAPE'
  | 'MOE_ERR_NON_FINITE'
  | 'MOE_ERR_STATE'
  | 'MOE_ERR_TOO_LONG'
  | 'MOE_ERR_UNSUPPORTED'
  | 'MOE_ERR_IO'
  | 'MOE_ERR_NOT_FOUND'
  | 'MOE_ERR_FORMAT'
  | 'MOE_ERR_VERSION'
  | 'MOE_ERR_CORRUPT'
  | 'MOE_ERR_TEXT'
  | 'MOE_ERR_MEMORY'
  | 'MOE_ERR_BUDGET'
  | 'MOE_ERR_DEVICE'
  | 'MOE_ERR_CANCELLED'
  | 'MOE_ERR_INTERNAL';

/**
 * How important a message is.
 */
export type LogLevel =
  | 'error'
  | 'warning'
  | 'info'
  | 'debug';

/**
 * How a file is read.
 */
export type Io =
  | 'auto'
  | 'direct'
  | 'buffered';

/**
 * How keys and values are stored.
 */
export type KvType =
  | 'default'
  | 'f16'
  | 'int8'
  | 'f32'
  | 'latent';

/**
 * The rows of logits that a call writes, of vocab_size floats each.
 */
export type Rows =
  | 'none'
  | 'last'
  | 'all';

/**
 * Pooling to one vector per text.
 */
export type Pooling =
  | 'default'
  | 'mean'
  | 'first'
  | 'last';

/**
 * Length of a pooled vector.
 */
export type Normalize =
  | 'default'
  | 'off'
  | 'on';

/**
 * When a beam search ends, and which finished texts it returns.
 */
export type BeamStop =
  | 'count'
  | 'bound'
  | 'step';

/**
 * The score of a finished text.
 */
export type BeamScore =
  | 'power'
  | 'sum';

/**
 * The language of a grammar's text.
 */
export type GrammarKind =
  | 'json_schema'
  | 'gbnf'
  | 'regex';

/**
 * Why a generation ended.
 */
export type Finish =
  | 'length'
  | 'eos'
  | 'stop'
  | 'context'
  | 'callback';

/**
 * If a model thinks before it answers.
 */
export type Thinking =
  | 'default'
  | 'on'
  | 'off';

/**
 * Whether a reply must call a tool.
 */
export type ToolChoice =
  | 'auto'
  | 'required'
  | 'one';

/**
 * The purpose of a request.
 */
export type Endpoint =
  | 'chat'
  | 'completions'
  | 'tokenize'
  | 'messages'
  | 'count_tokens'
  | 'responses'
  | 'embeddings'
  | 'statistics'
  | 'rerank';
