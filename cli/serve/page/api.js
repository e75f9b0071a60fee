// SPDX-License-Identifier: MIT
// Requests to the server that this page came from.

const kKey = "moe.key";

function key() {
  try {
    return sessionStorage.getItem(kKey) ?? "";
  } catch {
    return "";
  }
}

/** Asks for the key of a server that needs one; false if it is not given. */
export async function askForKey() {
  const dialog = document.getElementById("key");
  if (dialog.open) return false;
  dialog.querySelector("input").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "save") return false;
  try {
    sessionStorage.setItem(kKey, dialog.querySelector("input").value);
  } catch {
    return false;
  }
  return true;
}

/** A response; its `ok` is false for errors. */
async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  return response;
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

/** The JSON of a page. Throws an Error with the server's words; its `status` is that of HTTP. */
export async function get(path) {
  const response = await send(path);
  if (response.ok) return response.json();
  throw Object.assign(new Error(await errorOf(response)), { status: response.status });
}

/** The chunks of a chat completion. Throws as get(), or an AbortError. */
export async function* stream(request, signal) {
  const response = await send("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw Object.assign(new Error(await errorOf(response)), { status: response.status });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (!data) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
  throw new Error("the answer ended too early");
}
