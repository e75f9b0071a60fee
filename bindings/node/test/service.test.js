// SPDX-License-Identifier: MIT
'use strict';
// Answers, refusals and ends of a service's requests, against the command's text; the example over HTTP.

const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { Worker } = require('node:worker_threads');
const moe = require('..');
const { serverOf } = require('../examples/serve.js');

const MODEL = path.join(__dirname, '../../../examples/models/stories.moe');
// The text that `moe generate examples/models/stories.moe -p "Once upon a time" -n 24` prints after the prompt.
const STORY =
  ', a quiet girl called Clara lived in a stone house under the mountain. ' +
  'She would rather listen than talk. Her best';
const WHOLE = { prompt: 'Once upon a time', max_tokens: 24, temperature: 0 };
const PARTS = { ...WHOLE, stream: true };
const LONG = { prompt: 'Once upon a time', max_tokens: 500, ignore_eos: true, stream: true };
// It takes seconds, so that on a busy machine too it has not ended when a test cancels it or closes the service.
const ENDLESS = { ...LONG, n: 30 };

const open = () => moe.open(MODEL, { threads: 1, device: 'cpu' });
const serve = async (options) => (await open()).service(options);
const code = (name) => ({ name: 'Error', code: `MOE_ERR_${name}` });
const textOf = (event) => JSON.parse(event.json).choices?.map((c) => c.text).join('') ?? '';

async function all(request) {
  const events = [];
  for await (const event of request) events.push(event);
  return events;
}

/** Waits for counts, which may follow the last event. */
async function counted(service, expected) {
  const found = () => Object.fromEntries(Object.keys(expected).map((key) => [key, service.stats()[key]]));
  for (let i = 0; i < 10000 && JSON.stringify(found()) !== JSON.stringify(expected); ++i) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.deepStrictEqual(found(), expected);
}

test('answers are what the model says', async () => {
  const service = await serve();
  await Promise.all(Array.from({ length: 4 }, async () => {
    const whole = service.submit('completions', WHOLE);
    const parts = service.submit('completions', Buffer.from(JSON.stringify(PARTS)));
    assert.deepStrictEqual([whole.stream, parts.stream, whole.endpoint], [false, true, 'completions']);
    assert.ok(whole.id > 0n && parts.id > whole.id);
    const events = await all(parts);
    assert.strictEqual(events.map(textOf).join(''), STORY);
    assert.ok(events.length >= 24);
    assert.ok(events.every((e, i) => e.status === 200 && e.last === (i === events.length - 1)));
    const answer = await whole.answer();
    assert.deepStrictEqual([answer.status, answer.last, textOf(answer)], [200, true, STORY]);
    assert.deepStrictEqual(await all(whole), [answer]);
  }));
  await counted(service, { nRequests: 8, nAnswered: 8, generatedTokens: 8 * 24, nSlots: 8, draining: false });
  await service.close();
});

test('the readme', async () => {
  const model = await open(), log = console.log, lines = [];
  console.log = (...words) => lines.push(words);
  try {
    // The readme has this.
    const service = await model.service({ nSlots: 4 });
    const body = { prompt: 'Once upon a time', max_tokens: 12, temperature: 0, stream: true };
    for await (const event of service.submit('completions', body)) console.log(event.status, event.json);
    await service.close();
    // The readme has no more.
  } finally {
    console.log = log;
  }
  const text = lines.map(([status, json]) => textOf({ json, status })).join('');
  assert.ok(lines.length >= 12 && text && STORY.startsWith(text), text);
});

test('endpoints', async () => {
  const service = await serve({ chatTemplate: 'plain', name: 'tales' });
  const tokens = await service.submit('tokenize', { prompt: 'Once upon a time' }).answer();
  assert.ok(JSON.parse(tokens.json).tokens.includes(703));
  assert.match((await service.submit('statistics', '').answer()).json, /"tales"/);
  const chat = { messages: [{ role: 'user', content: 'Once' }], max_tokens: 1, stream: true };
  assert.strictEqual((await service.submit('chat', chat).answer()).status, 200);
  const names = (await all(service.submit('messages', chat))).map((e) => e.name);
  assert.deepStrictEqual([names[0], names.at(-1)], ['message_start', 'message_stop']);
  assert.throws(() => service.submit('none', chat), code('ARGUMENT'));
  assert.throws(() => service.submit('chat', 5), code('ARGUMENT'));
  assert.throws(() => service.submit('chat', chat, null), code('ARGUMENT'));
  await service.close();
});

test('refusals', async () => {
  const service = await serve({ nSlots: 1, maxWaiting: 1 });
  const bad = Buffer.from([...Buffer.from('{"prompt": "'), 0xff, ...Buffer.from('"}')]);
  for (const body of ['', '{', { prompt: 5 }, { prompt: 'a', temprature: 1 }, bad]) {
    const request = service.submit('completions', body);
    assert.deepStrictEqual([request.stream, request.id], [false, 0n]);
    const [event] = await all(request);
    assert.strictEqual(event.status, 400);
    assert.strictEqual(JSON.parse(event.json).error.type, 'invalid_request_error');
    request.cancel();
  }
  const first = service.submit('completions', LONG), second = service.submit('completions', LONG);
  await first[Symbol.asyncIterator]().next(); // the second waits now
  const third = await service.submit('completions', WHOLE).answer();
  assert.ok(third.status === 429 && third.retryAfter > 0);
  first.cancel();
  second.cancel();
  assert.deepStrictEqual([(await first.answer()).status, (await second.answer()).status], [499, 499]);
  await counted(service, { nRefused: 6, nCancelled: 2 });
  await service.close();
});

test('a signal and the end of a loop cancel', async () => {
  const service = await serve();
  const reason = new Error('enough');
  const stop = new AbortController();
  const request = service.submit('completions', ENDLESS, { signal: stop.signal });
  const answer = request.answer();
  await assert.rejects(async () => {
    for await (const _ of request) stop.abort(reason);
  }, reason);
  await assert.rejects(answer, reason);
  assert.throws(() => service.submit('completions', ENDLESS, { signal: stop.signal }), reason);
  for await (const _ of service.submit('completions', ENDLESS)) break;
  await counted(service, { nCancelled: 2 });
  assert.strictEqual(textOf(await service.submit('completions', WHOLE).answer()), STORY);
  await service.close();
});

test('time is limited', async () => {
  const service = await serve({ maxSeconds: 1, nSlots: 1, session: { context: 500 } });
  assert.strictEqual(service.stats().context, 500);
  const request = service.submit('completions', { prompt: 'Once', max_tokens: 490, ignore_eos: true, n: 64 });
  assert.strictEqual((await request.answer()).status, 504);
  await service.close();
});

test('draining', async () => {
  const service = await serve();
  const request = service.submit('completions', LONG);
  await assert.rejects(service.drain({ signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.strictEqual(service.stats().draining, true);
  assert.strictEqual((await service.submit('completions', WHOLE).answer()).status, 503);
  await service.drain();
  assert.strictEqual((await request.answer()).status, 200);
  await service.close();
});

test('close ends requests', async () => {
  const model = await open();
  const service = await model.service();
  model.close(); // the service keeps it
  const request = service.submit('completions', ENDLESS);
  await request[Symbol.asyncIterator]().next();
  const drained = assert.rejects(service.drain(), code('STATE'));
  await Promise.all([service.close(), service.close()]);
  await drained;
  assert.strictEqual((await request.answer()).status, 503);
  request.cancel();
  await service.close();
  assert.throws(() => service.stats(), code('STATE'));
  assert.throws(() => service.submit('completions', WHOLE), code('STATE'));
  await assert.rejects(service.drain(), code('STATE'));
  await assert.rejects(model.service(), code('STATE'));
});

test('options are checked', async () => {
  const model = await open();
  for (const [options, expected] of [
    [{ nSlots: -1 }, 'RANGE'], [{ maxWaiting: -1 }, 'RANGE'], [{ maxPrompt: -1 }, 'RANGE'], [{ slice: 1 << 20 }, 'RANGE'],
    [{ maxSeconds: -1 }, 'RANGE'], [{ draft: 17 }, 'RANGE'], [{ router: 'best:1' }, 'ARGUMENT'], [{ name: 'a\0b' }, 'ARGUMENT'],
    [{ cacheFolder: '/dev/null/none' }, 'IO'], [{ receipt: 5 }, 'ARGUMENT'], [null, 'ARGUMENT'],
  ]) {
    await assert.rejects(model.service(options), code(expected), JSON.stringify(options));
  }
  const service = await model.service({ router: 'topk:1', noReuse: true, slice: 4 });
  assert.notStrictEqual(textOf(await service.submit('completions', WHOLE).answer()), STORY); // one expert fewer
  await service.close();
});

test('a cache folder', async () => {
  const cacheFolder = fs.mkdtempSync(path.join(os.tmpdir(), 'moe-'));
  const ask = { prompt: 'Once upon a time '.repeat(20), max_tokens: 4, temperature: 0 };
  try {
    const texts = [];
    for (const reused of [false, true]) {
      const service = await serve({ cacheFolder, cacheBytes: 1e9 });
      texts.push(textOf(await service.submit('completions', ask).answer()));
      await service.drain();
      assert.ok(service.stats().cacheBytes > 0);
      assert.strictEqual(service.stats().reusedTokens > 0, reused);
      await service.close();
    }
    assert.strictEqual(texts[0], texts[1]);
  } finally {
    fs.rmSync(cacheFolder, { recursive: true });
  }
});

test('receipts', async () => {
  const receipts = [];
  const service = await serve({ name: 'tales', receipt: (line) => receipts.push(JSON.parse(line)) });
  await service.submit('completions', WHOLE).answer();
  assert.strictEqual(receipts.length, 1); // it was there before the last event
  await service.submit('completions', '{').answer();
  await service.submit('completions', PARTS).answer();
  assert.deepStrictEqual(receipts.map((r) => [r.model, r.endpoint]), Array(2).fill(['tales', '/v1/completions']));
  await service.close();
});

const PROGRAM = `
  const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
  async function begun(options) {
    const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
    const service = await model.service(options);
    const request = service.submit('completions', ${JSON.stringify(ENDLESS)});
    await request[Symbol.asyncIterator]().next();
    return service;
  }`;
const run = (program, ...flags) => execFileSync(process.execPath, [...flags, '-e', PROGRAM + program], { encoding: 'utf8' });

test('process.exit ends a service, and an idle service ends with the program', () => {
  assert.strictEqual(run('begun().then(() => { console.log("exit"); process.exit(); });'), 'exit\n');
  assert.strictEqual(run('begun().then(async (s) => { await s.close(); console.log("closed"); });'), 'closed\n');
  const idle = `(async () => {
    const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
    const service = await model.service();
    console.log((await service.submit('completions', ${JSON.stringify(WHOLE)}).answer()).status);
  })();`;
  assert.strictEqual(run(idle), '200\n');
});

test('an error in a receipt function is an uncaught exception', () => {
  const program = `process.once('uncaughtException', (error) => { console.log(error.message); process.exit(); });
    (async () => {
      const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
      const service = await model.service({ receipt() { throw new Error('mine'); } });
      await service.submit('completions', ${JSON.stringify(WHOLE)}).answer();
    })();`;
  assert.strictEqual(run(program), 'mine\n');
});

test('a worker that is terminated ends its service', async () => {
  for (let i = 0; i < 3; ++i) {
    const worker = new Worker(`${PROGRAM} begun({ receipt() {} }).then(() => require('node:worker_threads').parentPort.postMessage(0));`, { eval: true });
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    await worker.terminate();
  }
});

test('the garbage collector closes a service that has no request', () => {
  const program = `
    (async () => {
      for (let i = 0; i < 40; ++i) {
        (await begun()).submit('completions', '{'); // the first one goes on until it is closed
        await new Promise(setImmediate);
        global.gc();
      }
      process.exit();
    })();`.replace('begun()', `(await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' })).service()`)
    .replace('process.exit();', 'console.log(process.memoryUsage().rss);');
  const rss = Number(run(program, '--expose-gc'));
  assert.ok(rss > 0 && rss < 250e6, `${rss} bytes after 40 services of 13 MB and more`);
});

function ask(server, url, body, onResponse = () => {}) {
  return new Promise((resolve, reject) => {
    const request = http.request({ port: server.address().port, path: url, method: body === null ? 'GET' : 'POST' }, (response) => {
      let text = '';
      onResponse(request);
      response.setEncoding('utf8').on('data', (part) => (text += part)).on('error', reject)
        .on('end', () => resolve({ status: response.statusCode, type: response.headers['content-type'], text }));
    });
    request.on('error', reject).end(body ?? undefined);
  });
}

test('the example speaks HTTP', async () => {
  const service = await serve({ chatTemplate: 'plain' });
  const server = serverOf(service);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const chat = { messages: [{ role: 'user', content: 'Once upon a time' }], max_tokens: 12, temperature: 0 };
  const url = '/v1/chat/completions';
  const whole = await ask(server, url, JSON.stringify(chat));
  assert.deepStrictEqual([whole.status, whole.type], [200, 'application/json']);
  const stream = await ask(server, url, JSON.stringify({ ...chat, stream: true }));
  assert.deepStrictEqual([stream.status, stream.type], [200, 'text/event-stream']);
  const events = stream.text.split('\n\n').slice(0, -1).map((line) => line.replace(/^data: /, ''));
  assert.strictEqual(events.pop(), '[DONE]');
  const text = events.map((e) => JSON.parse(e).choices[0]?.delta.content ?? '').join('');
  assert.ok(text && text === JSON.parse(whole.text).choices[0].message.content, text);
  const named = await ask(server, '/v1/messages', JSON.stringify({ ...chat, stream: true }));
  assert.match(named.text, /^event: message_start\ndata: \{/);
  assert.doesNotMatch(named.text, /DONE/);
  const refusal = await ask(server, url, '{"messages": 5}');
  assert.strictEqual(refusal.status, 400);
  assert.match(refusal.text, /invalid_request_error/);
  assert.strictEqual((await ask(server, '/', '{}')).status, 404);
  assert.strictEqual((await ask(server, url, null)).status, 405);
  assert.strictEqual((await ask(server, url, ' '.repeat(5 << 20))).status, 413);
  await assert.rejects(ask(server, '/v1/completions', JSON.stringify({ ...LONG, n: 8 }), (request) => request.destroy()));
  await counted(service, { nCancelled: 1 });
  server.close();
  await service.close();
});
