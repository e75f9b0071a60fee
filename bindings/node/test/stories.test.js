// SPDX-License-Identifier: MIT
'use strict';
// The stories model of this repository generates the same text as the command.

const assert = require('node:assert');
const path = require('node:path');
const { test } = require('node:test');
const moe = require('..');

const MODEL = path.join(__dirname, '../../../examples/models/stories.moe');
const PROMPT = 'Once upon a time';
// The text that `moe generate examples/models/stories.moe -p "Once upon a time" -n 24` prints after the prompt.
const STORY =
  ', a quiet girl called Clara lived in a stone house under the mountain. ' +
  'She would rather listen than talk. Her best';

const open = (options) => moe.open(MODEL, { threads: 1, device: 'cpu', ...options });
const session = async (options) => (await open()).session(options);
const isBusy = (s) => {
  try {
    return s.position < 0;
  } catch {
    return true;
  }
};
const code = (name) => ({ name: 'Error', code: `MOE_ERR_${name}` });

test('describes a model', async () => {
  const { info } = await open();
  assert.strictEqual(info.name, 'stories-mh-moe');
  assert.deepStrictEqual([info.vocabSize, info.dModel, info.contextLength], [1536, 192, 512]);
  assert.deepStrictEqual([info.bosToken, ...info.eosTokens], [0, 1]);
  assert.match(moe.version, /^\d+\.\d+\.\d+$/);
});

test('tokenizes', async () => {
  const model = await open();
  const ids = model.encode(PROMPT);
  assert.ok(ids instanceof Int32Array);
  assert.strictEqual(ids[0], model.info.bosToken);
  assert.deepStrictEqual(model.encode(PROMPT, { noSpecial: true }), ids.slice(1));
  assert.strictEqual(model.decode(ids, { skipSpecial: true }), PROMPT);
  const special = model.piece(ids[0]);
  assert.deepStrictEqual([...model.encode(special, { noSpecial: true, parseSpecial: true })], [ids[0]]);
  assert.notDeepStrictEqual([...model.encode(special, { noSpecial: true })], [ids[0]]);
  const long = PROMPT.repeat(500);
  assert.strictEqual(model.decode(model.encode(long), { skipSpecial: true }), long);
  assert.throws(() => model.piece(1 << 20), code('RANGE'));
  assert.throws(() => model.encode(7), code('ARGUMENT'));
});

test('generates what the command does, piece by piece', async () => {
  const s = await session();
  const story = s.generate(PROMPT, { maxTokens: 24, nTop: 2 });
  const pieces = [];
  for await (const piece of story) pieces.push(piece);
  assert.strictEqual(pieces.map((p) => p.text).join(''), STORY);
  assert.strictEqual(pieces.length, 24);
  for (const p of pieces) {
    assert.ok(p.logprob <= 0 && !p.thinking);
    assert.deepStrictEqual([p.top.length, p.top[0].token], [2, p.token]);
  }
  const { finish, nPrompt, nGenerated } = story.result;
  assert.deepStrictEqual([finish, nPrompt, nGenerated, s.position], ['length', 5, 24, 29]);
});

test('guesses change nothing but the speed', async () => {
  const s = await session();
  const plain = s.generate(PROMPT, { maxTokens: 200 });
  const text = await plain.text();
  assert.deepStrictEqual([plain.result.nDrafted, plain.result.nAccepted], [0, 0]);
  s.rewind(0);
  const guessed = s.generate(PROMPT, { maxTokens: 200, maxDraft: 8 });
  assert.strictEqual(await guessed.text(), text);
  assert.ok(guessed.result.nDrafted > 0 && guessed.result.nAccepted <= guessed.result.nDrafted);
});

test('ends at a stop string, the end token or a full context', async () => {
  const model = await open();
  const s = await model.session();
  assert.strictEqual(await s.generate(PROMPT, { maxTokens: 24, stop: [' house'] }).text(),
    ', a quiet girl called Clara lived in a stone');
  s.rewind(0);
  const fox = s.generate('The fox was very');
  await fox.text();
  assert.strictEqual(fox.result.finish, 'eos');
  const small = (await model.session({ context: 8, kv: 'int8' })).generate(PROMPT, { ignoreEos: true });
  await small.text();
  assert.strictEqual(small.result.finish, 'context');
});

test('samples reproducibly from a seed', async () => {
  const s = await session();
  const draw = (seed) => {
    s.rewind(0);
    return s.generate(PROMPT, { maxTokens: 24, temperature: 1, topK: 40, topP: 0.95, seed }).text();
  };
  assert.strictEqual(await draw(1), await draw(1));
  assert.notStrictEqual(await draw(2), await draw(3));
  assert.strictEqual(await draw(7n), await draw(7));
  assert.notStrictEqual(await draw(2n ** 64n - 1n), await draw(7));
  for (const seed of [2 ** 53, -1, 2n ** 64n, -1n]) await assert.rejects(draw(seed), code('RANGE'));
  s.rewind(0);
  const bias = [{ token: s.model.encode(',', { noSpecial: true })[0], bias: -Infinity }];
  assert.notStrictEqual((await s.generate(PROMPT, { maxTokens: 1, bias }).text())[0], ',');
});

test('is cancelled by a signal', async () => {
  const s = await session();
  const controller = new AbortController();
  const reading = (async () => {
    let n = 0;
    for await (const _ of s.generate(PROMPT, { ignoreEos: true, signal: controller.signal })) {
      if (++n === 3) controller.abort();
    }
  })();
  await assert.rejects(reading, { name: 'AbortError' });
  assert.ok(s.position >= 5 && s.position < s.context);
  await assert.rejects(s.eval([1], { signal: controller.signal }), { name: 'AbortError' });
  s.rewind(0);
  assert.strictEqual(await s.generate(PROMPT, { maxTokens: 24 }).text(), STORY);
});

test('an abort of a refused call spares the call in progress', async () => {
  const s = await session();
  const chat = s.chat({ template: 'plain' }).add('user', 'Once');
  const story = s.generate(PROMPT, { maxTokens: 24 }).text();
  const controller = new AbortController();
  const options = { signal: controller.signal };
  const refused = [s.generate(PROMPT, options).text(), chat.reply(options).text(), s.eval([5], options), s.score([5], options)]
    .map((call) => assert.rejects(call, code('STATE')));
  controller.abort();
  await Promise.all(refused);
  assert.strictEqual(await story, STORY);
});

test('throws the reason of an abort that comes after the end', async () => {
  const s = await session();
  for (const reason of [new Error('late'), null, undefined]) {
    const controller = new AbortController();
    let n = 0;
    let thrown = 'nothing';
    s.rewind(0);
    try {
      for await (const _ of s.generate(PROMPT, { maxTokens: 24, signal: controller.signal })) {
        ++n;
        while (n === 1 && isBusy(s)) await new Promise((resolve) => setTimeout(resolve, 5)); // all are queued then
        if (n === 1) controller.abort(reason);
      }
    } catch (error) {
      thrown = error;
    }
    assert.strictEqual(n, 1);
    assert.strictEqual(thrown, controller.signal.reason);
  }
});

test('throws null if that is the reason', async () => {
  const s = await session();
  const controller = new AbortController();
  let thrown = 'nothing';
  try {
    for await (const _ of s.generate(PROMPT, { ignoreEos: true, signal: controller.signal })) controller.abort(null);
  } catch (error) {
    thrown = error;
  }
  assert.strictEqual(thrown, null);
});

test('is cancelled by a call', async () => {
  const s = await session();
  s.cancel(); // no call is in progress: no effect
  const reading = (async () => {
    for await (const _ of s.generate(PROMPT, { ignoreEos: true })) s.cancel();
  })();
  await assert.rejects(reading, code('CANCELLED'));
});

test('ends when the reader stops early', async () => {
  const s = await session();
  for await (const piece of s.generate(PROMPT, { ignoreEos: true })) {
    assert.throws(() => s.position, code('STATE'));
    assert.ok(piece.text.length > 0);
    break;
  }
  assert.ok(s.position >= 5);
  s.rewind(0);
  await assert.rejects(async () => {
    for await (const _ of s.generate(PROMPT, { maxTokens: 24 })) throw new Error('enough');
  }, { message: 'enough' });
  s.rewind(0);
  assert.strictEqual(await s.generate(PROMPT, { maxTokens: 24 }).text(), STORY);
});

test('generates in several sessions at once', async () => {
  const model = await open();
  const texts = await Promise.all(Array.from({ length: 6 }, async () =>
    (await model.session()).generate(PROMPT, { maxTokens: 24 }).text()));
  assert.deepStrictEqual(texts, Array(6).fill(STORY));
});

test('evaluates and scores', async () => {
  const model = await open();
  const ids = model.encode('The fox was very');
  const s = await model.session();
  const scores = await s.score(ids);
  assert.strictEqual(scores.length, ids.length - 1);
  const other = await model.session();
  for (let i = 1; i < ids.length; ++i) {
    const logits = await other.eval([ids[i - 1]]);
    assert.strictEqual(logits.length, model.info.vocabSize);
    const sum = logits.reduce((a, l) => a + Math.exp(l), 0);
    assert.ok(Math.abs(logits[ids[i]] - Math.log(sum) - scores[i - 1]) < 1e-4);
  }
  assert.deepStrictEqual(await (await model.session()).score('The fox was very'), scores);
  await assert.rejects(s.score([-1]), code('RANGE'));
  await assert.rejects(s.eval(Array(1000).fill(5)), code('TOO_LONG'));
  assert.throws(() => s.rewind(99), code('RANGE'));
});

test('counts activations', async () => {
  const s = await session();
  assert.throws(() => s.activations(0), code('STATE'));
  s.countRouting();
  await s.eval(PROMPT);
  const { nActivations, nPositive } = s.activations(0);
  assert.strictEqual(nActivations, 5 * 2 * 2 * 128); // tokens, sub-tokens, experts, hidden units
  assert.ok(nPositive > 0 && nPositive < nActivations);
  assert.throws(() => s.activations(4), code('RANGE'));
  assert.throws(() => s.countRouting(1), code('ARGUMENT'));
  s.countRouting(false);
  assert.throws(() => s.activations(0), code('STATE'));
});

test('evaluates pieces of several sequences together', async () => {
  const model = await open();
  const ids = model.encode('The fox was very');
  const [whole, begun, empty, narrow] = await Promise.all([0, 0, 0, 2].map((chunk) => model.session({ chunk })));
  const expected = [...await whole.eval(ids), ...await (await model.session()).eval(PROMPT)];
  await begun.eval(ids.slice(0, 2));
  const work = moe.evalEach([begun, empty], [ids.slice(2), PROMPT]);
  for (const s of [begun, empty]) assert.throws(() => s.position, code('STATE'));
  assert.deepStrictEqual([...await work], expected);
  assert.deepStrictEqual([begun.position, empty.position], [ids.length, 5]);
  assert.strictEqual((await moe.evalEach([], [])).length, 0);
  const aborted = { signal: AbortSignal.abort() };
  await assert.rejects(moe.evalEach([begun, empty], [[5], [5]], aborted), { name: 'AbortError' });
  await assert.rejects(moe.evalEach([begun, empty], [[5]]),
    { ...code('ARGUMENT'), message: 'pieces: expected one for each of 2 sessions, found 1' });
  await assert.rejects(moe.evalEach([begun, empty], [[5], []]), code('ARGUMENT'));
  await assert.rejects(moe.evalEach([begun, begun], [[5], [5]]), code('STATE'));
  const several = await moe.evalEach([narrow, empty], [[5], [5, 6, 7]]);  // a pass of `narrow` has two tokens
  assert.deepStrictEqual([narrow.position, empty.position, several.length], [1, 8, expected.length]);
  const other = await session();
  await assert.rejects(moe.evalEach([begun, other], [[5], [5]]), code('ARGUMENT'));
  const model2 = await open();
  for (const s of [null, 5, {}, model2, Object.setPrototypeOf(model2, Object.getPrototypeOf(begun))]) {
    await assert.rejects(moe.evalEach([s], [[5]]), { ...code('ARGUMENT'), message: 'sessions: expected sessions' });
  }
  await assert.rejects(moe.evalEach([], [], aborted), { name: 'AbortError' });
  for (const wrong of [undefined, null, 5, 'a', new Set([begun])]) {
    await assert.rejects(moe.evalEach(wrong, [[5]]), { ...code('ARGUMENT'), message: 'sessions: expected an array' });
    await assert.rejects(moe.evalEach([begun], wrong), { ...code('ARGUMENT'), message: 'pieces: expected an array' });
  }
  for (const wrong of [undefined, null, 5, {}, new Set([5])]) {
    await assert.rejects(moe.evalEach([begun, empty], [[5], wrong]),
      { ...code('ARGUMENT'), message: 'pieces: expected text or token ids' });
  }
  await assert.rejects(moe.evalEach([begun], [[5]], null), { message: 'options: expected an object' });
  assert.deepStrictEqual([begun.position, empty.position], [ids.length, 8]); // no session advanced
});

test('embeds', async () => {
  const s = await session();
  const vectors = await Promise.all(['mean', 'first', 'last'].map(async (pooling) =>
    (await s.model.session()).embed(PROMPT, { pooling })));
  for (const v of vectors) assert.strictEqual(v.length, 192);
  assert.deepStrictEqual(await s.embed(PROMPT), vectors[0]);
  assert.notDeepStrictEqual(vectors[1], vectors[2]);
  assert.strictEqual(s.position, 0);
  await assert.rejects(s.embed(PROMPT, { pooling: 'sum' }), code('ARGUMENT'));
  await assert.rejects(s.embed(''), { ...code('ARGUMENT'), message: 'text: expected a text, found an empty one' });
  const ids = s.model.encode(PROMPT);
  await s.eval(PROMPT);
  assert.deepStrictEqual(await s.embed(PROMPT), await s.embed(ids)); // text includes the special tokens
});

test('chats', async () => {
  const s = await session();
  const chat = s.chat({ template: 'plain', system: 'A story.', variables: ['user_prefix='] });
  chat.add('user', PROMPT);
  assert.match(chat.render({ beginReply: true }), /A story\..*Once upon a time/s);
  const reply = chat.reply({ maxTokens: 8 });
  const text = await reply.text();
  assert.ok(text.length > 0);
  assert.deepStrictEqual(chat.messages.map((m) => m.role), ['user', 'assistant']);
  assert.strictEqual(chat.messages[1].content, text);
  chat.add('user', 'Then');
  const second = chat.reply({ maxTokens: 4 });
  for await (const _ of second) assert.throws(() => chat.messages, code('STATE'));
  assert.ok(second.result.nReused > 5);
  assert.throws(() => chat.removeOldest(3), code('TOO_LONG'));
  assert.strictEqual(chat.removeOldest(500), 0);
  const { inFile, temperature, ...others } = s.model.sampling;
  assert.ok(!inFile && Math.abs(temperature - 0.8) < 1e-6);
  await s.chat({ template: 'plain' }).add('user', PROMPT).reply({ maxTokens: 2, temperature, ...others }).text();
  chat.truncate(1);
  assert.strictEqual(chat.messages.length, 1);
  assert.throws(() => s.chat(), code('NOT_FOUND')); // the model has no template of its own
  const abort = new AbortController();
  abort.abort();
  await assert.rejects(chat.reply({ signal: abort.signal }).text(), { name: 'AbortError' });
});

test('errors have a code and a message', async () => {
  await assert.rejects(moe.open('no/such.moe'), { code: 'MOE_ERR_NOT_FOUND', message: /no\/such\.moe/ });
  await assert.rejects(moe.open('a\0b'), code('ARGUMENT'));
  await assert.rejects(open({ isa: 'z80' }), code('UNSUPPORTED'));
  await assert.rejects(open({ threads: 1.5 }), code('RANGE'));
  await assert.rejects(open({ io: 'fast' }), code('ARGUMENT'));
  await assert.rejects(open({ memoryBytes: 1000 }), code('BUDGET'));
  const s = await session();
  await assert.rejects(s.generate(PROMPT, { temperature: -1 }).text(), code('RANGE'));
  await assert.rejects(s.generate(PROMPT, { stop: 'x' }).text(), code('ARGUMENT'));
  await assert.rejects(s.model.session({ kv: 'f8' }), code('ARGUMENT'));
  const noObject = { ...code('ARGUMENT'), message: 'options: expected an object' };
  for (const call of [() => moe.open(MODEL, null), () => moe.layer(), () => s.model.session(5), () => s.eval([5], null),
    () => s.embed(PROMPT, null), async () => s.chat(null), async () => s.generate(PROMPT, null),
    async () => s.model.encode('a', null), async () => s.model.decode([5], null)]) await assert.rejects(call, noObject);
  for (const bias of [[null], [5], [{ bias: -1 }], [{ token: 5 }], 5]) {
    await assert.rejects(s.generate(PROMPT, { bias }).text(), code('ARGUMENT'));
  }
});

test('an option that is a boolean takes nothing else', async () => {
  const s = await session();
  const chat = s.chat({ template: 'plain' }).add('user', PROMPT);
  const calls = {
    mapWeights: (value) => open({ mapWeights: value }),
    skipChecksums: (value) => open({ skipChecksums: value }),
    ignoreEos: (value) => s.generate(PROMPT, { ignoreEos: value }).text(),
    noSpecial: async (value) => s.model.encode('a', { noSpecial: value }),
    parseSpecial: async (value) => s.model.encode('a', { parseSpecial: value }),
    skipSpecial: async (value) => s.model.decode([5], { skipSpecial: value }),
    thinking: async (value) => s.chat({ template: 'plain', thinking: value }),
    beginReply: async (value) => chat.render({ beginReply: value }),
    on: async (value) => s.countRouting(value),
  };
  for (const [name, call] of Object.entries(calls)) {
    for (const value of ['false', 0, {}]) {
      await assert.rejects(call(value), { ...code('ARGUMENT'), message: `${name}: expected a boolean` });
    }
  }
  assert.ok(chat.render({ beginReply: null })); // as if it were missing
});

test('token ids are checked, not wrapped around', async () => {
  const s = await session();
  for (const id of [2 ** 32 + 5, -(2 ** 31) - 1, 1.5, NaN, Infinity, '5', null, undefined, 5n, Symbol('id')]) {
    for (const call of [() => s.eval([1, id]), () => s.score([1, id]), () => s.embed([1, id]), () => moe.evalEach([s], [[1, id]]),
      () => s.generate([1, id]).text(), async () => s.model.decode([1, id])]) {
      await assert.rejects(call, { ...code('RANGE'), message: /^tokens\[1\]: expected an integer of 32 bits, found / });
    }
  }
  for (const ids of [null, 5, {}, undefined, new DataView(new ArrayBuffer(8))]) {
    for (const call of [() => s.eval(ids), () => s.score(ids), () => s.embed(ids), async () => s.model.decode(ids)]) {
      await assert.rejects(call, { ...code('ARGUMENT'), message: 'tokens: expected text or token ids' });
    }
  }
  await assert.rejects(s.eval([1 << 20]), code('RANGE')); // not in the vocabulary
  assert.strictEqual(s.position, 0);
  assert.deepStrictEqual(await s.eval(new Uint16Array([5, 6])), await (await session()).eval([5, 6]));
});

test('an option may run JavaScript', async () => {
  const s = await session();
  let first = null;
  const second = s.generate([5], { get maxTokens() { first = s.generate([6], { maxTokens: 24 }).text(); return 1; } });
  await assert.rejects(second.text(), code('STATE'));
  await first;
  const options = { get kv() { s.model.close(); return 'f16'; } };
  await assert.rejects(s.model.session(options), code('STATE'));
});

test('runs under a memory cap, mapped, and with buffered reads', async () => {
  for (const options of [{ memoryBytes: 4 << 20, context: 128 }, { mapWeights: true }, { skipChecksums: true, io: 'buffered' }]) {
    const s = await (await open(options)).session({ context: options.context ?? 0 });
    assert.strictEqual(await s.generate(PROMPT, { maxTokens: 24 }).text(), STORY);
  }
});
