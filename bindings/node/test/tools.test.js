// SPDX-License-Identifier: MIT
'use strict';
// Calls of tools in a chat, by a model whose replies are known.

const assert = require('node:assert');
const path = require('node:path');
const { test } = require('node:test');
const moe = require('..');

const MODELS = process.env.MOE_TEST_MODELS;
const options = { skip: !MODELS && 'needs MOE_TEST_MODELS, which bindings/test.sh sets' };
const code = (name) => ({ name: 'Error', code: `MOE_ERR_${name}` });
const chatOf = async (file, chatOptions) =>
  (await (await moe.open(file, { threads: 1, device: 'cpu' })).session()).chat(chatOptions);
const withTools = () => chatOf(path.join(MODELS, 'tools.moe'));

/** The readme's example. */
async function ask(chat, answer) {
  // The readme has this.
  const parameters = { type: 'object', properties: { city: { type: 'string' } } };
  chat.setTools([{ type: 'function', function: { name: 'weather', description: 'Weather of a city', parameters } }]);
  chat.add('user', 'What is the weather in Zürich?');
  for (;;) {
    let text = '';
    const calls = [];
    for await (const piece of chat.reply()) {
      if (piece.toolCall) calls.push(piece.toolCall);
      else if (!piece.thinking) text += piece.text;
    }
    if (calls.length === 0) return text;
    for (const call of calls) chat.addMessage({ role: 'tool', tool_call_id: call.id, content: answer(call) });
  }
  // The readme has no more.
}

test('the readme', options, async () => {
  const chat = await withTools();
  assert.strictEqual(chat.toolFormat, 'hermes');
  const asked = [];
  assert.strictEqual(await ask(chat, (call) => asked.push(call) && '18 "degrees"'), 'Yes.');
  assert.deepStrictEqual(asked.map((c) => [c.name, c.arguments]), [['weather', { city: 'Zürich', days: 2 }], ['clock', {}]]);
  const [question, reply, , result] = chat.messages;
  assert.deepStrictEqual(question.members, {});
  assert.deepStrictEqual([reply.content, reply.members.tool_calls.map((c) => c.id)], ['Ok!', asked.map((c) => c.id)]);
  assert.deepStrictEqual(result.members, { tool_call_id: asked[1].id, name: 'clock' });
  assert.match(chat.render(), /<tool_response>\n18 "degrees"\n<\/tool_response>/);
  assert.throws(() => chat.addMessage({ role: 'assistant', tool_calls: 5 }), code('ARGUMENT'));
  assert.throws(() => chat.addMessage('x'), { ...code('ARGUMENT'), message: 'message: expected an object' });
});

test('a call is required', options, async () => {
  const chat = await withTools();
  assert.throws(() => chat.setToolChoice('one'), code('STATE'));
  const parameters = { type: 'object', properties: { yes: { type: 'boolean' } }, required: ['yes'], additionalProperties: false };
  const f = { type: 'function', function: { name: 'f', strict: true, parameters } };
  chat.setTools([{ type: 'function', function: { name: 'weather' } }, f]);
  chat.setToolChoice('one', 'f');
  chat.add('user', 'Weather?');
  const reply = chat.reply();
  const calls = [];
  for await (const piece of reply) {
    assert.strictEqual(piece.text, '');
    if (piece.toolCall) calls.push(piece.toolCall);
  }
  assert.strictEqual(reply.result.nToolCalls, 1);
  assert.deepStrictEqual(calls.map((c) => [c.name, Object.keys(c.arguments), typeof c.arguments.yes]), [['f', ['yes'], 'boolean']]);
  assert.throws(() => chat.setToolChoice('one', 'g'), code('ARGUMENT'));
  assert.throws(() => chat.setToolChoice('some'), code('ARGUMENT'));
  assert.throws(() => chat.setTools(f), { ...code('ARGUMENT'), message: 'tools: expected an array' });
  f.function.parameters = { unevaluatedItems: false };
  assert.throws(() => chat.setTools([f]), code('UNSUPPORTED'));
  chat.setToolChoice('auto');
  chat.setTools([]);
});

test('a template without tools', async () => {
  const chat = await chatOf(path.join(__dirname, '../../../examples/models/stories.moe'), { template: 'plain' });
  assert.strictEqual(chat.toolFormat, undefined);
  assert.throws(() => chat.setTools([{ type: 'function', function: { name: 'f' } }]), code('UNSUPPORTED'));
});
