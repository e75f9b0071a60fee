// SPDX-License-Identifier: MIT
// node examples/generate.js MODEL PROMPT [TOKENS]
'use strict';
const moe = require('..');

async function main(path, prompt, tokens = '24') {
  const model = await moe.open(path);
  const session = await model.session();
  const interrupted = new AbortController();
  process.once('SIGINT', () => interrupted.abort());

  process.stdout.write(prompt);
  const story = session.generate(prompt, { maxTokens: Number(tokens), signal: interrupted.signal });
  for await (const piece of story) process.stdout.write(piece.text);
  console.log(`\n${story.result.nGenerated} tokens, ${story.result.finish}`);
}

if (process.argv.length < 4) {
  console.error('usage: generate.js MODEL PROMPT [TOKENS]');
  process.exitCode = 2;
} else {
  main(...process.argv.slice(2)).catch((error) => {
    console.error(`\n${error.message}`);
    process.exitCode = 1;
  });
}
