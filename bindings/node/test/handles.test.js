// SPDX-License-Identifier: MIT
'use strict';
// Handles are closed, or collected, in any order.

const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { Worker } = require('node:worker_threads');
const moe = require('..');

const MODEL = path.join(__dirname, '../../../examples/models/stories.moe');
const closed = { code: 'MOE_ERR_STATE', message: /is closed/ };
const open = () => moe.open(MODEL, { threads: 1, device: 'cpu' });

function smallLayer(options = {}) {
  const d = 4, f = 8, n = 3;
  const numbers = (length, by) => Float32Array.from({ length }, (_, i) => Math.sin((i + 1) * by));
  const experts = Array.from({ length: n }, (_, e) => ({ up: numbers(f * d, e + 1), down: numbers(d * f, e + 2) }));
  return { dModel: d, dFF: f, experts, routerWeight: numbers(n * d, 7), activation: 'relu2', router: 'topk:2',
    threads: 1, device: 'cpu', ...options };
}

test('parents may be closed first', async () => {
  const model = await open();
  const first = await model.session(), second = await model.session();
  const ids = model.encode('Once upon a time');
  const chat = second.chat({ template: 'plain' }).add('user', 'Once');
  model.close();
  second.close();
  assert.throws(() => model.info, closed);
  assert.throws(() => model.encode('a'), closed);
  await assert.rejects(model.session(), closed);
  await first.eval(ids); // the session keeps the model
  assert.ok((await chat.reply({ maxTokens: 4 }).text()).length > 0); // and the chat keeps its session
  await assert.rejects(second.eval(ids), closed);
  for (const handle of [first, chat, model, second, first]) handle.close();
  assert.throws(() => first.position, closed);
  assert.throws(() => chat.messages, closed);
  first.cancel();
});

test('close does not disturb a call in progress', async () => {
  const s = await (await open()).session();
  let n = 0;
  for await (const _ of s.generate('Once upon a time', { maxTokens: 24 })) {
    s.close();
    ++n;
  }
  assert.strictEqual(n, 24);
});

test('one call at a time', async () => {
  const s = await (await open()).session();
  const chat = s.chat({ template: 'plain' });
  const story = s.generate('Once upon a time', { maxTokens: 24 }).text();
  await assert.rejects(s.eval([5]), { code: 'MOE_ERR_STATE' });
  assert.throws(() => chat.add('user', 'no'), { code: 'MOE_ERR_STATE' });
  await story;
  chat.add('user', 'now');
});

test('a layer', async () => {
  const layer = await moe.layer(smallLayer());
  const x = Float32Array.from({ length: 12 }, (_, i) => Math.cos(i));
  const whole = await layer.forward(x);
  assert.strictEqual(whole.length, 12);
  assert.ok(whole.some((v) => v !== 0));
  assert.deepStrictEqual(await layer.forward(x.slice(4, 8)), whole.slice(4, 8));
  const packed = await moe.layer(smallLayer({ weights: 'ternary2', maxRows: 2 }));
  assert.notDeepStrictEqual(await packed.forward(x), whole);
  await assert.rejects(layer.forward(new Float32Array(5)), { code: 'MOE_ERR_SHAPE' });
  await assert.rejects(layer.forward(Float32Array.of(NaN, 0, 0, 0)), { code: 'MOE_ERR_NON_FINITE' });
  await assert.rejects(layer.forward([1, 2, 3, 4]), { code: 'MOE_ERR_ARGUMENT' });
  await assert.rejects(moe.layer(smallLayer({ routerWeight: new Float32Array(5) })),
    { code: 'MOE_ERR_SHAPE', message: 'routerWeight: expected 12 numbers, found 5' });
  await assert.rejects(moe.layer(smallLayer({ router: 'topk:9' })), { code: 'MOE_ERR_RANGE' });
  await assert.rejects(moe.layer(smallLayer({ experts: [null] })),
    { code: 'MOE_ERR_ARGUMENT', message: 'experts[0]: expected an object' });
  const { experts } = smallLayer();
  const short = { ...experts[0], up: new Float32Array(5) };
  await assert.rejects(moe.layer(smallLayer({ experts: [experts[0], short, experts[2]] })),
    { code: 'MOE_ERR_SHAPE', message: 'experts[1].up: expected 32 numbers, found 5' });
  await assert.rejects(moe.layer(smallLayer({ experts: [{ ...experts[0], down: [1] }] })),
    { code: 'MOE_ERR_ARGUMENT', message: 'experts[0].down: expected a Float32Array' });
  await assert.rejects(moe.layer(smallLayer({ shared: experts[0] })),
    { code: 'MOE_ERR_SHAPE', message: 'shared.up: expected 0 numbers, found 32' });
  await assert.rejects(moe.layer({}), { code: 'MOE_ERR_RANGE' });
  await assert.rejects(moe.layer(smallLayer({ experts: [] })),
    { code: 'MOE_ERR_ARGUMENT', message: 'experts: expected at least one' });
  layer.close();
  await assert.rejects(layer.forward(x), closed);
});

test('options may change while a layer is made', async () => {
  const options = smallLayer();
  const made = moe.layer(options);
  options.dModel = 1;
  const layer = await made;
  await assert.rejects(layer.forward(new Float32Array(5)), { code: 'MOE_ERR_SHAPE' });
  assert.strictEqual((await layer.forward(new Float32Array(8))).length, 8);
});

test('the garbage collector closes handles', () => {
  // Each round drops a model, a session and a chat without closing them. Their memory must be freed.
  const program = `
    const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
    async function round() {
      const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
      const s = await model.session();
      s.chat({ template: 'plain' });
      await s.generate('Once', { maxTokens: 4 }).text();
    }
    (async () => {
      for (let i = 0; i < 60; ++i) {
        await round();
        global.gc();
        await new Promise(setImmediate);
      }
      console.log(process.memoryUsage().rss);
    })();`;
  const rss = Number(execFileSync(process.execPath, ['--expose-gc', '-e', program], { encoding: 'utf8' }));
  assert.ok(rss > 0 && rss < 220e6, `${rss} bytes after 60 models of 5.5 MB`);
});

// Run to the end, this takes several times LIMIT.
const MANY = `
  const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
  async function many(begun) {
    const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
    const sessions = await Promise.all(Array.from({ length: 100 }, () => model.session()));
    await Promise.all(sessions.map(async (s) => {
      for await (const _ of s.generate('Once upon a time', { ignoreEos: true })) begun();
    }));
  }`;
const LIMIT = 3; // seconds of CPU time, which other processes do not affect

test('a call that waits for a thread is cancelled before it begins', () => {
  const program = `
    const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
    (async () => {
      const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
      const [first, second, third, fourth] = await Promise.all([1, 2, 3, 4].map(() => model.session()));
      const all = first.generate('Once upon a time', { ignoreEos: true }).text();
      const waiting = second.eval([5, 6, 7]);
      const together = moe.evalEach([third, fourth], [[5, 6], [7]]);
      second.cancel();
      fourth.cancel();
      const codes = await Promise.all([waiting, together].map((work) => work.then(() => 'done', (error) => error.code)));
      await all;
      console.log(...codes, second.position, third.position);
    })();`;
  const env = { ...process.env, UV_THREADPOOL_SIZE: '1' };
  assert.strictEqual(execFileSync(process.execPath, ['-e', program], { encoding: 'utf8', env }), 'MOE_ERR_CANCELLED MOE_ERR_CANCELLED 0 0\n');
});

/** The output of a program that runs with the functions of a source file in place of libmoe's. CALLED: a file name for them. */
function preloaded(source, program) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'moe-'));
  try {
    const library = path.join(folder, 'preloaded.so');
    const flags = execFileSync('pkg-config', ['--cflags', 'moe'], { encoding: 'utf8' }).split(/\s+/).filter(Boolean);
    execFileSync(process.env.CXX ?? 'g++', ['-shared', '-fPIC', ...flags, path.join(__dirname, source), '-o', library]);
    const env = { ...process.env, LD_PRELOAD: library, CALLED: path.join(folder, 'called') };
    return execFileSync(process.execPath, ['-e', program], { encoding: 'utf8', env });
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

test('the library must have the version of the header', () => {
  const program = `
    try {
      require(${JSON.stringify(path.join(__dirname, '..'))});
    } catch (error) {
      console.log(error.code, error.message);
    }`;
  assert.match(preloaded('other_version.cpp', program), /^MOE_ERR_UNSUPPORTED libmoe: expected version \d+\.\d+, found /);
});

test('a cancel just before the library call begins is not lost', () => {
  const program = `
    const fs = require('node:fs');
    const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
    (async () => {
      const model = await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' });
      const s = await model.session();
      const work = s.eval([5]);
      while (!fs.existsSync(process.env.CALLED)) await new Promise(setImmediate);
      s.cancel();
      console.log(await work.then(() => 'done', (error) => error.code));
      await s.eval([5]); // not cancelled
      console.log('done');
    })();`;
  assert.strictEqual(preloaded('late_cancel.cpp', program), 'MOE_ERR_CANCELLED\ndone\n');
});

test('process.exit does not wait for generations', () => {
  const program = `${MANY} many(() => process.exit());`;
  const times = execFileSync('sh', ['-c', '"$@"; times', 'sh', process.execPath, '-e', program], { encoding: 'utf8' });
  const [, minutes, seconds] = times.split('\n')[1].match(/(\d+)m([\d.]+)s/);
  assert.ok(minutes * 60 + Number(seconds) < LIMIT, times);
});

test('terminate does not wait for generations', async () => {
  const worker = new Worker(`${MANY} many(() => require('node:worker_threads').parentPort.postMessage(0));`, { eval: true });
  await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
  const begin = process.cpuUsage();
  await worker.terminate();
  const took = process.cpuUsage(begin).user / 1e6;
  assert.ok(took < LIMIT, `${took} s`);
});

test('a worker is terminated during a generation', async () => {
  const program = `
    const { parentPort } = require('node:worker_threads');
    const moe = require(${JSON.stringify(path.join(__dirname, '..'))});
    (async () => {
      const s = await (await moe.open(${JSON.stringify(MODEL)}, { threads: 1, device: 'cpu' })).session();
      for await (const piece of s.generate('Once upon a time', { ignoreEos: true })) parentPort.postMessage(piece.text);
    })();`;
  const worker = new Worker(program, { eval: true });
  await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
  assert.strictEqual(await worker.terminate(), 1);
});
