// SPDX-License-Identifier: MIT
'use strict';
// libmoe for Node. index.d.ts is the manual; src/functions.h lists the functions of `native`.

const native = require('./build/moe.node');

const AGAIN = 20; // ms between two attempts to cancel

process.on('exit', native.endAll); // Node waits for the calls in progress

/** Hides the native value of an object. */
class Closable {
  #handle;
  constructor(handle) {
    this.#handle = handle;
  }
  static handle(object) {
    return object.#handle;
  }
  close() {
    native.close(this.#handle);
  }
}

const handleOf = Closable.handle;

/** Cancels the call in progress on `handle`, repeatedly until it ends: a cancel just before the library starts is lost. */
function cancel(handle) {
  if (!native.cancel(handle)) return;
  const timer = setInterval(() => native.cancelAgain(handle) || clearInterval(timer), AGAIN);
}

/** Cancels the call in progress and waits for its promise `work`. */
async function cancelled(handle, work) {
  cancel(handle);
  try {
    await work;
  } catch {
    // the cancelled call's error
  }
}

/**
 * Starts a call and waits for it. If the signal is aborted, cancels the call and throws the signal's reason. `start` must
 * throw if the call is refused: an abort would otherwise cancel another call on `handle`.
 */
async function withSignal(handle, signal, start) {
  signal?.throwIfAborted();
  const work = start();
  const abort = () => cancelled(handle, work);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    return await work;
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

const isObject = (value) => typeof value === 'object' && value !== null;

function expect(good, text, code = 'MOE_ERR_ARGUMENT') {
  if (!good) throw Object.assign(new Error(text), { code });
}

function jsonOf(value, what) {
  expect(isObject(value), `${what}: expected an object`);
  return JSON.stringify(value);
}

function signalOf(options) {
  expect(isObject(options), 'options: expected an object');
  return options.signal;
}

/** Pieces of text as they are generated. */
class Generation {
  #start;
  #handle;
  #signal;
  #pieces = null;
  result = null;

  constructor(handle, signal, start) {
    this.#handle = handle;
    this.#signal = signal;
    this.#start = start;
  }

  [Symbol.asyncIterator]() {
    this.#pieces ??= this.#run();
    return this.#pieces;
  }

  async text() {
    let text = '';
    for await (const piece of this) if (!piece.thinking) text += piece.text;
    return text;
  }

  async *#run() {
    const queue = [];
    let wake = () => {};
    let ended = false;
    let failed = false;
    let failure;
    const work = withSignal(this.#handle, this.#signal, () =>
      this.#start((piece) => {
        if (piece.toolCall) piece.toolCall = JSON.parse(piece.toolCall);
        queue.push(piece);
        wake();
      }));
    const settled = work
      .then((result) => (this.result = result), (error) => {
        failed = true;
        failure = error;
      })
      .finally(() => {
        ended = true;
        wake();
      });
    try {
      while (true) {
        while (queue.length > 0 && !this.#signal?.aborted) yield queue.shift();
        if (ended) break;
        await new Promise((resolve) => (wake = resolve));
      }
      if (failed) throw failure;
      if (queue.length > 0) throw this.#signal.reason; // aborted after the end, with pieces unread
    } finally {
      if (!ended) await cancelled(this.#handle, settled); // the reader left the loop
    }
  }
}

/** A DataView is a view, but not of numbers. */
function holdsIds(given) {
  return Array.isArray(given) || (ArrayBuffer.isView(given) && 'length' in given);
}

/** A copy. An Int32Array wraps other numbers around silently. */
function idsOf(given) {
  expect(holdsIds(given), 'tokens: expected text or token ids');
  const ids = Array.from(given);
  const wrong = ids.findIndex((id) => !Number.isInteger(id) || (id | 0) !== id);
  expect(wrong < 0, `tokens[${wrong}]: expected an integer of 32 bits, found ${String(ids[wrong])}`, 'MOE_ERR_RANGE');
  return Int32Array.from(ids);
}

function tokensOf(model, given, options) {
  return typeof given === 'string' ? model.encode(given, options) : idsOf(given);
}

class Model extends Closable {
  get info() {
    return native.modelInfo(handleOf(this));
  }
  get sampling() {
    return native.modelSampling(handleOf(this));
  }
  encode(text, options = {}) {
    return native.encode(handleOf(this), text, options);
  }
  decode(tokens, options = {}) {
    return native.decode(handleOf(this), idsOf(tokens), options);
  }
  piece(token) {
    return native.piece(handleOf(this), token);
  }
  async session(options = {}) {
    return new Session(await native.createSession(handleOf(this), options), this);
  }
  async service(options = {}) {
    expect(isObject(options), 'options: expected an object');
    const { receipt } = options;
    expect(receipt === undefined || typeof receipt === 'function', 'receipt: expected a function');
    const onReceipt = receipt && ((line) => {
      try {
        receipt(line);
      } catch (error) {
        process.nextTick(() => { throw error; }); // an uncaught exception, not one in the middle of the events
      }
    });
    return new Service(await native.createService(handleOf(this), options, onReceipt));
  }
}

class Session extends Closable {
  #model;
  constructor(handle, model) {
    super(handle);
    this.#model = model;
  }
  get model() {
    return this.#model;
  }
  get position() {
    return native.position(handleOf(this));
  }
  get context() {
    return native.context(handleOf(this));
  }
  rewind(position) {
    native.rewind(handleOf(this), position);
  }
  countRouting(on = true) {
    native.countRouting(handleOf(this), on);
  }
  activations(layer) {
    return native.activations(handleOf(this), layer);
  }
  cancel() {
    cancel(handleOf(this));
  }
  #tokens(text) {
    return tokensOf(this.#model, text, { noSpecial: this.position > 0 });
  }
  #call(options, start) {
    const handle = handleOf(this);
    return withSignal(handle, signalOf(options), () => start(handle));
  }
  async eval(tokens, options = {}) {
    return this.#call(options, (handle) => native.evaluate(handle, this.#tokens(tokens)));
  }
  static async evalEach(sessions, pieces, options = {}) {
    const signal = signalOf(options);
    expect(Array.isArray(sessions), 'sessions: expected an array');
    expect(Array.isArray(pieces), 'pieces: expected an array');
    const all = Array.from(sessions);
    expect(all.every((s) => isObject(s) && #model in s), 'sessions: expected sessions');
    expect(all.length === pieces.length, `pieces: expected one for each of ${all.length} sessions, found ${pieces.length}`);
    for (const piece of pieces) {
      expect(typeof piece === 'string' || holdsIds(piece), 'pieces: expected text or token ids');
    }
    signal?.throwIfAborted();
    if (all.length === 0) return new Float32Array();
    const tokens = all.map((s, i) => s.#tokens(pieces[i]));
    const handles = all.map(handleOf);
    return withSignal(handles[0], signal, () => native.evaluateEach(handles, tokens));
  }
  async score(text, options = {}) {
    return this.#call(options, (handle) => native.score(handle, this.#tokens(text)));
  }
  async embed(text, options = {}) {
    expect(text !== '', 'text: expected a text, found an empty one');
    return this.#call(options, (handle) =>
      native.embed(handle, tokensOf(this.#model, text, {}), options.pooling ?? 'default'));
  }
  generate(prompt, options = {}) {
    const handle = handleOf(this);
    return new Generation(handle, signalOf(options), (onPiece) =>
      native.generate(handle, this.#tokens(prompt ?? []), options, onPiece));
  }
  chat(options = {}) {
    return new Chat(native.createChat(handleOf(this), options));
  }
}

class Chat extends Closable {
  add(role, content) {
    native.chatAdd(handleOf(this), role, content);
    return this;
  }
  addMessage(message) {
    native.chatAddMessage(handleOf(this), jsonOf(message, 'message'));
    return this;
  }
  setTools(tools) {
    expect(Array.isArray(tools), 'tools: expected an array');
    native.chatSetTools(handleOf(this), jsonOf(tools, 'tools'));
  }
  setToolChoice(choice, name) {
    native.chatSetToolChoice(handleOf(this), choice, name);
  }
  get toolFormat() {
    return native.chatToolFormat(handleOf(this));
  }
  truncate(n) {
    native.chatTruncate(handleOf(this), n);
  }
  removeOldest(maxTokens) {
    return native.chatRemoveOldest(handleOf(this), maxTokens);
  }
  get messages() {
    return native.chatMessages(handleOf(this)).map((m) => ({ ...m, members: JSON.parse(m.members) }));
  }
  render(options = {}) {
    return native.chatRender(handleOf(this), options);
  }
  reply(options = {}) {
    const handle = handleOf(this);
    return new Generation(handle, signalOf(options), (onPiece) => native.chatReply(handle, options, onPiece));
  }
}

class Layer extends Closable {
  async forward(x) {
    return native.layerForward(handleOf(this), x);
  }
}

const DRAIN = 5; // ms between two looks at whether the requests have ended

function bytesOf(body) {
  if (body instanceof Uint8Array) return body;
  if (typeof body === 'string') return Buffer.from(body);
  expect(isObject(body), 'body: expected a text, bytes or an object');
  return Buffer.from(JSON.stringify(body));
}

/** A request that was submitted, and its events. */
class Request {
  #service;
  #endpoint;
  #signal;
  #id;
  #stream;
  #queue = [];
  #wake = () => {};
  #ended;
  #events = null;

  constructor(service, endpoint, body, signal) {
    this.#service = service;
    this.#endpoint = endpoint;
    this.#signal = signal;
    let end;
    this.#ended = new Promise((resolve) => (end = resolve));
    const abort = () => this.cancel();
    const ticket = native.serviceSubmit(service, endpoint, body, (event) => {
      this.#queue.push(event);
      if (event.last) {
        signal?.removeEventListener('abort', abort);
        end(event);
      }
      this.#wake();
    });
    this.#id = ticket.id;
    this.#stream = ticket.stream;
    signal?.addEventListener('abort', abort, { once: true });
  }

  get endpoint() {
    return this.#endpoint;
  }
  get id() {
    return this.#id;
  }
  get stream() {
    return this.#stream;
  }
  cancel() {
    native.serviceCancel(this.#service, this.#id);
  }
  async answer() {
    const last = await this.#ended;
    if (last.status === 499) this.#signal?.throwIfAborted();
    return last;
  }
  [Symbol.asyncIterator]() {
    this.#events ??= this.#run();
    return this.#events;
  }

  async *#run() {
    try {
      for (let last = false; !last;) {
        while (this.#queue.length === 0) await new Promise((resolve) => (this.#wake = resolve));
        this.#signal?.throwIfAborted();
        const event = this.#queue.shift();
        last = event.last;
        yield event;
      }
    } finally {
      this.cancel(); // the reader left the loop
    }
  }
}

class Service {
  #handle;
  constructor(handle) {
    this.#handle = handle;
  }
  submit(endpoint, body, options = {}) {
    const signal = signalOf(options);
    signal?.throwIfAborted();
    return new Request(this.#handle, endpoint, bytesOf(body), signal);
  }
  stats() {
    return native.serviceStats(this.#handle);
  }
  async drain(options = {}) {
    const signal = signalOf(options);
    while (!native.serviceDrain(this.#handle)) {
      signal?.throwIfAborted();
      await new Promise((resolve) => setTimeout(resolve, DRAIN));
    }
  }
  async close() {
    await native.serviceClose(this.#handle);
  }
}

async function open(path, options = {}) {
  return new Model(await native.openModel(path, options));
}

async function layer(options) {
  return new Layer(await native.createLayer(options));
}

module.exports = { open, layer, evalEach: Session.evalEach, version: native.version() };
