// moe_c.h documents each number under its C name (maxTokens is max_tokens).

/** Text, or token ids. */
export type Tokens = string | Int32Array | readonly number[];

/** `code` of the Errors of this package; the message is one line that names the faulty item. */
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

/** Every model and layer has its own threads and device. */
export interface EnvOptions {
  /** Compute threads; 0: as many as this process may use. */
  threads?: number;
  isa?: string;
  /** "auto", "cpu", "cuda" or "cuda:N". */
  device?: string;
  gpuMemoryBytes?: number;
}

export interface SessionOptions {
  /** Positions; 0: the model's, at most 4096. */
  context?: number;
  chunk?: number;
  kv?: 'default' | 'f16' | 'int8' | 'f32' | 'latent';
}

/** `context`, `chunk` and `kv` are of the session that must fit under `memoryBytes`. */
export interface ModelOptions extends EnvOptions, SessionOptions {
  /** The file must not change while the model is open. */
  mapWeights?: boolean;
  skipChecksums?: boolean;
  /** Cap on weights, caches and scratch memory; 0: none. */
  memoryBytes?: number;
  io?: 'auto' | 'direct' | 'buffered';
}

export interface ModelInfo {
  name: string;
  head: string;
  isEncoder: boolean;
  isEncoderDecoder: boolean;
  eosTokens: Int32Array;
  vocabSize: number;
  dModel: number;
  nLayers: number;
  nMoeLayers: number;
  nEncoderLayers: number;
  contextLength: number;
  sourceLength: number;
  /** -1: none; the next two as well. */
  bosToken: number;
  maskToken: number;
  startToken: number;
  nOutputs: number;
  nParameters: number;
  nActiveParameters: number;
  weightBytes: number;
  bytesPerToken: number;
  fileBytes: number;
}

export interface TokenLogprob {
  token: number;
  logprob: number;
}

export interface Piece extends TokenLogprob {
  /** Whole characters; may be empty while a character is incomplete. `token` -1: no new one. */
  text: string;
  /** In a chat: not part of the answer. */
  thinking: boolean;
  /** The best `nTop` candidates. */
  top: TokenLogprob[];
}

export interface GenerateOptions {
  /** 0: until the context is full. */
  maxTokens?: number;
  /** 0: greedy. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  repetitionWindow?: number;
  /** The same seed gives the same text. A BigInt if it exceeds Number.MAX_SAFE_INTEGER. */
  seed?: number | bigint;
  bias?: readonly { token: number; bias: number }[];
  stop?: readonly string[];
  ignoreEos?: boolean;
  nTop?: number;
  /** Once aborted, the call ends within one layer's time, and its `reason` is thrown. */
  signal?: AbortSignal;
}

export interface GenerateResult {
  finish: 'length' | 'eos' | 'stop' | 'context' | 'callback';
  nPrompt: number;
  nGenerated: number;
  promptSeconds: number;
  generateSeconds: number;
}

export interface ChatResult extends GenerateResult {
  /** Tokens already in the session. */
  nReused: number;
  nThinking: number;
}

/** Begins when it is first asked for a piece, and goes on ahead of its reader. A reader that leaves ends it. */
export interface Generation<Result = GenerateResult> extends AsyncIterable<Piece> {
  [Symbol.asyncIterator](): AsyncGenerator<Piece, void, void>;
  /** The rest of the text, without thinking. */
  text(): Promise<string>;
  /** null until the end. */
  readonly result: Result | null;
}

/** What is made from it keeps what it needs: any order, any number of times. A call in progress ends undisturbed. */
export interface Closable {
  close(): void;
}

export interface Model extends Closable {
  readonly info: ModelInfo;
  encode(text: string, options?: { noSpecial?: boolean; parseSpecial?: boolean }): Int32Array;
  decode(tokens: Int32Array | readonly number[], options?: { skipSpecial?: boolean }): string;
  /** The vocabulary's spelling. */
  piece(token: number): string;
  session(options?: SessionOptions): Promise<Session>;
}

export interface ActivationStats {
  /** 0 for a layer without an FFN. */
  nActivations: number;
  /** Of these, above zero. */
  nPositive: number;
}

/** One call at a time: another gets MOE_ERR_STATE. Text that begins a session is encoded with what stands in front of it. */
export interface Session extends Closable {
  readonly model: Model;
  readonly position: number;
  readonly context: number;
  rewind(position: number): void;
  /** Starts counting at zero, or stops it. */
  countRouting(on?: boolean): void;
  /** What was counted inside a layer, dense or of experts. */
  activations(layer: number): ActivationStats;
  /** Ends the call in progress, or one that waits for a thread, with MOE_ERR_CANCELLED. */
  cancel(): void;
  /** Appends tokens; returns the logits of the next token. */
  eval(tokens: Tokens, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  /** Appends tokens; the log-probability of each, but of the first in an empty session. */
  score(text: Tokens, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  /**
   * A vector of a text, which does not become part of the session. Text is always encoded with the special tokens;
   * a decoder reads it behind what the session holds.
   */
  embed(text: Tokens, options?: { pooling?: 'mean' | 'first' | 'last'; signal?: AbortSignal }): Promise<Float32Array>;
  /** Without a prompt it continues from the session's position. */
  generate(prompt?: Tokens, options?: GenerateOptions): Generation;
  chat(options?: ChatOptions): Chat;
}

export interface ChatOptions {
  thinking?: boolean;
  /** "chatml", "llama3", "mistral", "plain" or Jinja; else the model's own. */
  template?: string;
  system?: string;
  /** "NAME=VALUE" */
  variables?: readonly string[];
  /** "YYYY-MM-DD" */
  date?: string;
}

export interface ChatMessage {
  role: string;
  content: string;
  thinking: string;
}

export interface Chat extends Closable {
  readonly messages: ChatMessage[];
  add(role: string, content: string): this;
  /** Removes all but the first `n` messages. */
  truncate(n: number): void;
  render(options?: { beginReply?: boolean }): string;
  /** Becomes a message at its end. */
  reply(options?: GenerateOptions): Generation<ChatResult>;
}

/** Row-major (out, in). A plain FFN has no gate. */
export interface ExpertWeights {
  gate?: Float32Array;
  up: Float32Array;
  down: Float32Array;
  gateBias?: Float32Array;
  upBias?: Float32Array;
  downBias?: Float32Array;
}

/** Everything is copied. */
export interface LayerOptions extends EnvOptions {
  dModel: number;
  dFF: number;
  nSubheads?: number;
  maxRows?: number;
  activation?: string;
  router?: string;
  weights?: string;
  activations?: string;
  experts: readonly ExpertWeights[];
  routerWeight: Float32Array;
  routerBias?: Float32Array;
  routerProj?: Float32Array;
  dE?: number;
  sharedDFF?: number;
  shared?: ExpertWeights;
  sharedGate?: Float32Array;
  head?: Float32Array;
  headBias?: Float32Array;
  merge?: Float32Array;
  mergeBias?: Float32Array;
}

export interface Layer extends Closable {
  /** (n, dModel) to (n, dModel). */
  forward(x: Float32Array): Promise<Float32Array>;
}

export function open(path: string, options?: ModelOptions): Promise<Model>;
/**
 * Appends a piece to each of several sessions of one model in a single pass: slices of long texts beside texts that are
 * continued token by token. A piece has at most the first session's `chunk` of tokens. The logits (sessions, vocabSize)
 * are those after the last token of each piece; on failure no session has moved.
 */
export function evalEach(
  sessions: readonly Session[], pieces: readonly Tokens[], options?: { signal?: AbortSignal }): Promise<Float32Array>;
export function layer(options: LayerOptions): Promise<Layer>;
export const version: string;
