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

export type KvType =
  | 'default'
  | 'f16'
  | 'int8'
  | 'f32'
  | 'latent';

/**
 * Pooling to one vector per text: the mean over all tokens, including special ones, or the first
 * or last token's vector. MODEL: as the model file says, the mean if it says nothing; for texts of
 * at most moe_model_info.vector_tokens tokens.
 */
export type Pooling =
  | 'mean'
  | 'first'
  | 'last'
  | 'model';

/**
 * Length of a pooled vector.
 */
export type Normalize =
  | 'off'
  | 'on'
  | 'model';

/**
 * When a beam search ends, and which finished texts it returns.
 */
export type BeamStop =
  | 'count'
  | 'bound'
  | 'step';

export type Finish =
  | 'length'
  | 'eos'
  | 'stop'
  | 'context'
  | 'callback';

export type Thinking =
  | 'default'
  | 'on'
  | 'off';
