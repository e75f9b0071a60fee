// SPDX-License-Identifier: MIT
// node examples/serve.js MODEL [PORT]     (TEMPLATE: a chat template other than the model's)
'use strict';
const http = require('node:http');
const moe = require('..');

const ENDPOINTS = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'completions',
  '/v1/messages': 'messages',
  '/v1/responses': 'responses',
};
const MOST = 4 << 20; // bytes of a body

async function bodyOf(message) {
  const chunks = [];
  let n = 0;
  for await (const chunk of message) {
    if ((n += chunk.length) > MOST) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function end(response, status, text) {
  response.writeHead(status, { 'Content-Type': 'text/plain', Connection: 'close' }).end(text);
}

/** Writes what the service answers as HTTP. A client that goes away ends its request. */
async function answer(service, message, response) {
  const endpoint = ENDPOINTS[message.url];
  if (!endpoint) return end(response, 404, 'no such path');
  if (message.method !== 'POST') return end(response, 405, 'expected POST');
  const body = await bodyOf(message);
  if (!body) return end(response, 413, 'the body is too large');
  const request = service.submit(endpoint, body);
  response.on('close', () => request.cancel());
  for await (const event of request) {
    if (!response.headersSent) {
      const events = request.stream && event.status === 200; // otherwise one object
      const headers = { 'Content-Type': events ? 'text/event-stream' : 'application/json' };
      if (event.retryAfter > 0) headers['Retry-After'] = event.retryAfter;
      response.writeHead(event.status, headers);
      if (!events) return response.end(event.json);
    }
    response.write(`${event.name && `event: ${event.name}\n`}data: ${event.json}\n\n`);
    if (event.last && !event.name && event.status === 200) response.write('data: [DONE]\n\n');
  }
  response.end();
}

/** A server that is not listening yet. */
function serverOf(service) {
  return http.createServer((message, response) => answer(service, message, response).catch((error) => {
    if (response.headersSent) response.destroy();
    else end(response, 500, error.message);
  }));
}

async function main(path, port = '8080') {
  const model = await moe.open(path);
  const service = await model.service({ chatTemplate: process.env.TEMPLATE });
  const server = serverOf(service);
  server.listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
  process.once('SIGINT', async () => {
    server.close();
    await service.drain(); // the answers in progress are completed
    await service.close();
  });
}

module.exports = { serverOf };
if (require.main === module) {
  if (process.argv.length < 3) {
    console.error('usage: serve.js MODEL [PORT]');
    process.exitCode = 2;
  } else {
    main(...process.argv.slice(2)).catch((error) => {
      console.error(error.message);
      process.exitCode = 1;
    });
  }
}
