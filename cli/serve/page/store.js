// SPDX-License-Identifier: MIT
// Conversations and settings in this browser.

const kConversations = "moe.conversations";
const kSettings = "moe.settings";

function read(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** Settings of requests by their names in the API, and the colours. */
export const settings = {
  read: () => read(kSettings, {}),
  write: (value) => write(kSettings, value),
};

/** Conversations, the latest first: {id, title, system, messages: [{role, content, thinking, note}]}. */
export class Conversations {
  constructor() {
    this.all = [];
    this.kept = true;
    this.reload([]);
  }

  /** Another tab may have changed them. Those of `held`, which change here, and empty ones stay as they are, before the rest. */
  reload(held) {
    if (!this.kept) return; // what is here is all there is
    const found = read(kConversations, []);
    const stored = Array.isArray(found) ? found.filter((c) => c && c.id && Array.isArray(c.messages)) : [];
    const mine = this.all.filter((one) => held.includes(one) || one.messages.length === 0);
    this.all = [...mine, ...stored.filter((c) => !mine.some((one) => one.id === c.id))];
  }

  find(id) {
    return this.all.find((one) => one.id === id);
  }

  add(system) {
    const bytes = crypto.getRandomValues(new Uint32Array(2));
    const made = { id: `${Date.now()}-${bytes[0]}-${bytes[1]}`, title: "", system, messages: [] };
    this.all.unshift(made);
    return made;
  }

  remove(id, held) {
    this.reload(held);
    this.all = this.all.filter((one) => one.id !== id);
    return this.write();
  }

  /** Saves those of `held`, beside what other tabs have saved. False as write() has it. */
  save(held) {
    this.reload(held);
    return this.write();
  }

  /** False if the browser keeps nothing: there is no room, or it is not allowed. Those without messages are not kept. */
  write() {
    this.kept = write(kConversations, this.all.filter((one) => one.messages.length > 0));
    return this.kept;
  }
}
