// SPDX-License-Identifier: MIT
// moe_c.h documents every value under its C name (maxTokens is max_tokens).

import type { Endpoint, Finish, Io, KvType, Pooling, ToolChoice } from './names';

export type { Endpoint, ErrorCode, Finish, Io, KvType, Pooling, ToolChoice } from './names';

/** A text or token ids. */
export type Tokens = string | Int32Array | readonly number[];

/** Each model and each layer has its own threads and device. */
export interface EnvOptions {
  /** Compute threads; 0: as many as this process may use. */
  threads?: number;
  isa?: string;
  /** "auto" (default; the CPU, also beside a GPU), "cpu", "cuda" or "cuda:N". */
  device?: string;
  gpuMemoryBytes?: number;
}

export interface SessionOptions {
  /** Maximum number of tokens; 0: the model's, at most 4096. */
  context?: number;
  chunk?: number;
  kv?: KvType;
}

/** `context`, `chunk` and `kv` describe the session that must fit within `memoryBytes`. */
export interface ModelOptions extends EnvOptions, SessionOptions {
  /** The file must not change while the model is open. */
  mapWeights?: boolean;
  skipChecksums?: boolean;
  /** Cap on weights, KV caches and scratch memory in bytes; 0: none. */
  memoryBytes?: number;
  io?: Io;
  /** With a cap, read experts only when a token needs them, not ahead into free memory. */
  lazyExperts?: boolean;
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
  /** -1: none. */
  bosToken: number;
  /** -1: none. */
  maskToken: number;
  /** First token of an encoder-decoder's output; -1: none. */
  startToken: number;
  /** How vectors of texts are pooled: "mean", "first" or "last"; "": the file says nothing of them. */
  pooling: string;
  /** Vectors have the length 1. */
  normalized: boolean;
  /** Maximum tokens of a text that becomes a vector; 0: as many as the context holds. */
  vectorTokens: number;
  nOutputs: number;
  nParameters: number;
  nActiveParameters: number;
  weightBytes: number;
  bytesPerToken: number;
  fileBytes: number;
  /** Tells model files apart: 16 hexadecimal digits. */
  fileHash: string;
  /** That runs it. */
  device: string;
  /** 1: a layer beside the others guesses further tokens, which drafts use. */
  nPredictions: number;
}

export interface TokenLogprob {
  token: number;
  logprob: number;
}

export interface Piece extends TokenLogprob {
  /** Whole characters; may be empty while a character is incomplete. `token` is -1 for withheld text without a new token. */
  text: string;
  /** In a chat: part of the thinking, not of the answer. */
  thinking: boolean;
  /** In a chat with tools: a whole call of one. `text` is empty then. */
  toolCall: ToolCall | undefined;
  /** The best `nTop` candidates. */
  top: TokenLogprob[];
}

/** A tool that the model may call, as in OpenAI's chat completions. */
export interface Tool {
  type: 'function';
  function: {
    name: string;
    description?: string;
    /** A JSON schema. */
    parameters?: object;
    /** Holds calls to a form while they are generated: the arguments satisfy `parameters`. */
    strict?: boolean;
  };
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
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
  /**
   * 0 to 16: up to this many tokens at once are drafted from earlier text and checked together. The
   * result is the same; text that repeats is generated faster. Not with an expert capacity or a router
   * with `resident`.
   */
  maxDraft?: number;
  /** After abort(), the call ends within one layer's time and throws the signal's `reason`. */
  signal?: AbortSignal;
}

export interface GenerateResult {
  finish: Finish;
  nPrompt: number;
  nGenerated: number;
  promptSeconds: number;
  generateSeconds: number;
  /** Tokens drafted (`maxDraft`). */
  nDrafted: number;
  /** Drafted tokens that were generated. */
  nAccepted: number;
}

export interface ChatResult extends GenerateResult {
  /** Prompt tokens that were already in the session. */
  nReused: number;
  nThinking: number;
  /** In a chat with tools: calls in the reply. */
  nToolCalls: number;
}

/** Starts with the first read and does not wait for its reader. Leaving the loop cancels it. */
export interface Generation<Result = GenerateResult> extends AsyncIterable<Piece> {
  [Symbol.asyncIterator](): AsyncGenerator<Piece, void, void>;
  /** The rest of the text, without thinking and calls of tools. */
  text(): Promise<string>;
  /** null until the generation has ended. */
  readonly result: Result | null;
}

/** close() frees the memory once all objects created from this one are closed too; a call in progress completes normally. Repeated calls do nothing. */
export interface Closable {
  close(): void;
}

/** Settings as in GenerateOptions. */
export interface ModelSampling {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  repetitionWindow: number;
  /** The model file has them, as it stores what the checkpoint's authors recommend. */
  inFile: boolean;
}

export interface Model extends Closable {
  readonly info: ModelInfo;
  /** How to sample a conversation where the user says nothing. Nothing uses these settings by itself. */
  readonly sampling: ModelSampling;
  encode(text: string, options?: { noSpecial?: boolean; parseSpecial?: boolean }): Int32Array;
  decode(tokens: Int32Array | readonly number[], options?: { skipSpecial?: boolean }): string;
  /** The vocabulary's spelling. */
  piece(token: number): string;
  session(options?: SessionOptions): Promise<Session>;
  /** Many requests at once. MOE_ERR_UNSUPPORTED if build.sh did not find libmoe_serve. */
  service(options?: ServiceOptions): Promise<Service>;
}

export interface ServiceOptions {
  /** Texts evaluated at the same time, each in a session. */
  nSlots?: number;
  /** The options of each session. */
  session?: SessionOptions;
  /** In place of the model's: "topk:2". */
  router?: string;
  /** The model's name in requests and answers; default: the model file's. */
  name?: string;
  chatTemplate?: string;
  /** Texts that wait for a slot; further requests get the status 429. */
  maxWaiting?: number;
  /** Tokens. */
  maxPrompt?: number;
  /** Prompt tokens evaluated in a step while texts are being generated. */
  slice?: number;
  /** The time of a request, from its submission on. */
  maxSeconds?: number;
  /** Tokens drafted at once for a text that is alone, where its request does not say; at most 16. */
  draft?: number;
  /** Evaluates every prompt whole. */
  noReuse?: boolean;
  /** Keeps evaluated texts in files, also for a later service. */
  cacheFolder?: string;
  /** The most that its files take. */
  cacheBytes?: number;
  /** Gets the receipt of every answer just before its last event. */
  receipt?: (json: string) => void;
}

/** A part of an answer, or the whole. */
export interface ServiceEvent {
  /** As HTTP counts them: 200, or that of the error in `json`. 499: cancelled. */
  status: number;
  /** An object in one line. */
  json: string;
  last: boolean;
  /** Seconds after which the request may be tried again; 0: not said. */
  retryAfter: number;
  /** The event's name in a stream that has names; "": none. */
  name: string;
}

/** Yields the events, which do not wait for their reader. Leaving the loop cancels the request. */
export interface Request extends AsyncIterable<ServiceEvent> {
  [Symbol.asyncIterator](): AsyncGenerator<ServiceEvent, void, void>;
  readonly endpoint: Endpoint;
  /** The request's number in its service; 0: it was answered at once. */
  readonly id: bigint;
  /** It asks for a stream, and was not refused. */
  readonly stream: boolean;
  /** The last event: the whole answer of a request that asks for no stream, or why there is none.
   * Throws the signal's reason after an abort(). */
  answer(): Promise<ServiceEvent>;
  /** Ends it within a step, with status 499. */
  cancel(): void;
}

export interface ServiceStats {
  draining: boolean;
  nSlots: number;
  context: number;
  nRunning: number;
  nWaiting: number;
  kvPositions: number;
  nRequests: number;
  nRefused: number;
  nAnswered: number;
  nCancelled: number;
  nFailed: number;
  promptTokens: number;
  generatedTokens: number;
  nSteps: number;
  nFirstTokens: number;
  firstTokenSeconds: number;
  stepSeconds: number;
  capBytes: number;
  countedBytes: number;
  peakBytes: number;
  expertUses: number;
  expertHits: number;
  expertReadBytes: number;
  reusedTokens: number;
  cacheBytes: number;
  cacheErrors: number;
}

/** Keeps its model. After close() its functions throw MOE_ERR_STATE. */
export interface Service {
  /** `body`: JSON, or an object that becomes it. A refused request has an event too, with the API's error. */
  submit(endpoint: Endpoint, body: string | Uint8Array | object, options?: { signal?: AbortSignal }): Request;
  stats(): ServiceStats;
  /** Refuses requests from now on; the promise is settled when those taken have ended. */
  drain(options?: { signal?: AbortSignal }): Promise<void>;
  /** Ends all requests, with status 503, and frees the service. */
  close(): Promise<void>;
}

export interface ActivationStats {
  /** 0 for a layer without an FFN. */
  nActivations: number;
  /** Activations above zero. */
  nPositive: number;
}

/** Handles one call at a time; a second one gets MOE_ERR_STATE. Special tokens that begin a sequence are added only to text that begins the session. */
export interface Session extends Closable {
  readonly model: Model;
  readonly position: number;
  readonly context: number;
  rewind(position: number): void;
  /** Starts counting from zero, or stops. */
  countRouting(on?: boolean): void;
  /** Inner activations of a layer, dense or MoE, since countRouting(). */
  activations(layer: number): ActivationStats;
  /** Makes the call in progress, or one that waits for a thread, fail with MOE_ERR_CANCELLED. */
  cancel(): void;
  /** Appends tokens; returns the logits of the next token. */
  eval(tokens: Tokens, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  /** Appends tokens; returns the log-probability of each given the preceding ones. In an empty session the first has none. */
  score(text: Tokens, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  /**
   * Returns one vector for a text, which is not appended to the session. Text is always encoded with special tokens;
   * a decoder evaluates it after the session's tokens. By default pooling and length are those that the model file
   * says, the mean and as it is if it says nothing.
   */
  embed(text: Tokens, options?: { pooling?: Pooling; signal?: AbortSignal }): Promise<Float32Array>;
  /** Without a prompt, generation continues from the session's position. */
  generate(prompt?: Tokens, options?: GenerateOptions): Generation;
  chat(options?: ChatOptions): Chat;
}

export interface ChatOptions {
  thinking?: boolean;
  /** "chatml", "llama3", "mistral", "plain" or Jinja text; default: the model's own. */
  template?: string;
  system?: string;
  /** "NAME=VALUE" for the template */
  variables?: readonly string[];
  /** "YYYY-MM-DD" */
  date?: string;
}

export interface ChatMessage {
  role: string;
  content: string;
  thinking: string;
  /** Others, as addMessage() takes them: `tool_calls` of a reply, `tool_call_id` of a result. */
  members: Record<string, unknown>;
}

export interface Chat extends Closable {
  readonly messages: ChatMessage[];
  add(role: string, content: string): this;
  /**
   * Appends a message with calls of tools, or the result of one, as OpenAI's chat completions have them:
   * { role: 'tool', tool_call_id: ..., content: ... }. The template gets all members.
   */
  addMessage(message: object): this;
  /**
   * Gives the model tools that it may call; an empty array: none. Calls in later replies are pieces with `toolCall`,
   * and `members` of the reply's message. MOE_ERR_UNSUPPORTED if the template has no tools, or asks for calls in no
   * format that is known, or for a schema that arguments cannot be held to.
   */
  setTools(tools: readonly Tool[]): void;
  /** Chooses whether later replies call tools: "required", calls and no text; "one", a single call. `name`: of the tool. */
  setToolChoice(choice: ToolChoice, name?: string): void;
  /** The format in which the template asks for calls of tools, such as "hermes"; undefined: none that is known. */
  readonly toolFormat: string | undefined;
  /** Removes all but the first `n` messages. */
  truncate(n: number): void;
  /**
   * Removes the oldest turns, as few as possible, until the conversation with the beginning of a reply has at
   * most `maxTokens` tokens; returns the number of messages. A turn is a message with the role "user" and those
   * up to the next one. The system text, messages before the first turn and the last turn remain;
   * MOE_ERR_TOO_LONG if these alone have more tokens.
   */
  removeOldest(maxTokens: number): number;
  render(options?: { beginReply?: boolean }): string;
  /** Generates a reply. Once complete, it is appended to the messages. */
  reply(options?: GenerateOptions): Generation<ChatResult>;
}

/** Matrices are row-major (out, in). A plain FFN has no gate. */
export interface ExpertWeights {
  gate?: Float32Array;
  up: Float32Array;
  down: Float32Array;
  gateBias?: Float32Array;
  upBias?: Float32Array;
  downBias?: Float32Array;
}

/** All arrays are copied. */
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
  /** x and the result are (n, dModel). */
  forward(x: Float32Array): Promise<Float32Array>;
}

export function open(path: string, options?: ModelOptions): Promise<Model>;
/**
 * Appends tokens to several sessions of one model together: parts of prompts with single decode steps. A pass has at
 * most as many tokens as the first session's `chunk`; more take several. Returns the logits after the last token of
 * each piece, (sessions, vocabSize). On failure no session has advanced.
 */
export function evalEach(
  sessions: readonly Session[], pieces: readonly Tokens[], options?: { signal?: AbortSignal }): Promise<Float32Array>;
export function layer(options: LayerOptions): Promise<Layer>;
export const version: string;
