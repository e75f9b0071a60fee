// SPDX-License-Identifier: MIT
// The chat: conversations, messages and their answers.

import { askForKey, get, stream } from "./api.js";
import { markdown } from "./markdown.js";
import { Statistics } from "./statistics.js";
import { Conversations, settings as kept } from "./store.js";

const id = (name) => document.getElementById(name);
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const kFinishes = { length: "stopped at the token limit", stop: "" };

const conversations = new Conversations();
const statistics = new Statistics();
let current = null;
let running = null; // {abort, conversation}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function button(text, action, label) {
  const made = element("button", "", text);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  return made;
}

function say(text) {
  id("status").textContent = text;
}

// ---- the list of conversations

function title(conversation) {
  return conversation.title || "New conversation";
}

function showList() {
  const items = conversations.all.map((one) => {
    const item = element("li");
    const open = button(title(one), () => select(one.id));
    open.className = "open";
    if (one.id === current?.id) open.setAttribute("aria-current", "true");
    const remove = button("✕", () => removeConversation(one), `Delete “${title(one)}”`);
    item.append(open, remove);
    return item;
  });
  id("list").replaceChildren(...items);
}

function removeConversation(one) {
  if (one.messages.length > 0 && !confirm(`Delete “${title(one)}”?`)) return;
  if (running?.conversation === one) running.abort.abort();
  taken(conversations.remove(one.id, [running?.conversation]));
  if (one.id === current?.id) select(conversations.all[0]?.id);
  else showList();
}

function select(name) {
  current = conversations.find(name) ?? conversations.all.find((one) => one.messages.length === 0) ?? conversations.add(kept.read().system ?? "");
  id("side").classList.remove("shown");
  id("show-list").setAttribute("aria-expanded", "false");
  showList();
  showMessages();
  id("prompt").focus();
}

function save(changed) {
  taken(conversations.save([changed, running?.conversation]));
}

// Another tab may have changed the conversation that is shown.
function taken(done) {
  const found = conversations.find(current.id);
  if (found && found !== current) {
    current = found;
    showMessages();
  }
  if (!done) say("This browser keeps nothing: there is no room, or it is not allowed.");
}

// ---- messages

function showMessages() {
  const log = id("log");
  log.replaceChildren(...current.messages.map((message, i) => articleOf(message, i)));
  if (current.messages.length === 0) log.append(element("p", "note", "Write a message below."));
  document.title = current.title ? `${current.title} – moe` : "moe";
  showRunning();
  log.scrollTop = log.scrollHeight;
}

function articleOf(message, index) {
  const mine = message.role === "user";
  const made = element("article", message.role);
  made.append(element("h2", mine ? "hidden" : "", mine ? "You" : "Model"));
  if (message.thinking) made.append(thinkingOf(message));
  const text = element("div", "text");
  if (mine) text.textContent = message.content;
  else text.append(markdown(message.content));
  made.append(text);
  if (message.error) {
    const error = element("p", "error", message.error);
    error.setAttribute("role", "alert");
    made.append(error);
  }
  if (!mine) made.append(footerOf(message, index));
  return made;
}

function thinkingOf(message) {
  const made = element("details", "thinking");
  made.open = Boolean(message.showsThinking);
  made.append(element("summary", "", message.content || message.note ? "Thinking" : "Thinking …"), element("div", "text", message.thinking));
  made.addEventListener("toggle", () => (message.showsThinking = made.open));
  return made;
}

function footerOf(message, index) {
  const footer = element("footer");
  const writes = running?.message === message;
  if (writes) return footer;
  footer.append(button("Copy", async (event) => {
    const copied = await navigator.clipboard?.writeText(message.content).then(() => true, () => false);
    event.target.textContent = copied ? "Copied" : "Not allowed";
  }));
  if (index === current.messages.length - 1) footer.append(button("Regenerate", () => regenerate()));
  if (message.note) footer.append(element("span", "", message.note));
  return footer;
}

function atEnd() {
  const log = id("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}

// The last message again, which is being written.
function showLast(conversation) {
  if (conversation !== current) return;
  const follow = atEnd();
  const index = current.messages.length - 1;
  const made = articleOf(current.messages[index], index);
  if (running) made.classList.add("busy");
  id("log").lastElementChild.replaceWith(made);
  if (follow) id("log").scrollTop = id("log").scrollHeight;
}

function showRunning() {
  id("stop").hidden = !running;
  id("send").hidden = Boolean(running);
  id("log").setAttribute("aria-busy", String(Boolean(running)));
  for (const one of id("log").querySelectorAll("article footer button")) {
    if (one.textContent === "Regenerate") one.disabled = Boolean(running);
  }
}

// ---- answers

function requestOf(conversation) {
  const s = kept.read();
  const request = { messages: [] };
  if (conversation.system) request.messages.push({ role: "system", content: conversation.system });
  const answers = (message) => message.role === "assistant" && message.content && !message.error;
  conversation.messages.forEach((message, i, all) => {
    // Templates want turns that alternate: what got no answer is left out, but for the last.
    const counts = message.role === "user" ? i + 1 === all.length || answers(all[i + 1]) : answers(message);
    if (counts) request.messages.push({ role: message.role, content: message.content });
  });
  for (const name of kNumbers) if (typeof s[name] === "number") request[name] = s[name];
  if (s.reasoning_effort) request.reasoning_effort = s.reasoning_effort;
  if (id("model").value) request.model = id("model").value;
  return request;
}

function take(message, chunk, times) {
  if (chunk.usage) message.usage = chunk.usage;
  if (chunk.sampling) message.seed = chunk.sampling.seed;
  const choice = chunk.choices[0];
  if (!choice) return;
  if (choice.finish_reason) message.finish = choice.finish_reason;
  const { content = "", reasoning_content: thinking = "" } = choice.delta;
  if (!content && !thinking) return;
  times.first ??= performance.now();
  times.last = performance.now();
  message.content += content;
  message.thinking += thinking;
}

function noteOf(message, times) {
  const parts = [];
  const tokens = message.usage?.completion_tokens;
  if (tokens) parts.push(`${tokens} tokens`);
  if (tokens > 1 && times.last > times.first) parts.push(`${(((tokens - 1) * 1000) / (times.last - times.first)).toFixed(1)} per second`);
  if (message.usage?.prompt_tokens_details?.cached_tokens) parts.push(`${message.usage.prompt_tokens_details.cached_tokens} of ${message.usage.prompt_tokens} of the prompt reused`);
  if (message.seed !== undefined) parts.push(`seed ${message.seed}`);
  if (kFinishes[message.finish]) parts.push(kFinishes[message.finish]);
  return parts.join(" · ");
}

async function answer(conversation) {
  const request = requestOf(conversation);
  const message = { role: "assistant", content: "", thinking: "" };
  const times = {};
  conversation.messages.push(message);
  running = { abort: new AbortController(), conversation, message };
  showMessages();
  say("The model is writing.");
  let drawn = 0;
  let failure = null;
  try {
    for await (const chunk of stream(request, running.abort.signal)) {
      take(message, chunk, times);
      if (performance.now() - drawn < 60) continue;
      drawn = performance.now();
      showLast(conversation);
    }
  } catch (error) {
    failure = error;
  }
  running = null;
  message.note = noteOf(message, times);
  if (failure?.name === "AbortError") message.note = [message.note, "stopped"].filter(Boolean).join(" · ");
  else if (failure) message.error = failure.message;
  for (const name of ["usage", "seed", "finish", "showsThinking"]) delete message[name];
  save(conversation);
  showLast(conversation);
  showRunning();
  say(failure ? (message.error ?? "Stopped.") : `The answer is complete: ${message.content.slice(0, 2000)}`);
  if (failure?.status === 401 && (await askForKey())) {
    await begin();
    regenerate(conversation);
  }
}

function send() {
  const content = id("prompt").value.trim();
  if (!content || running) return;
  current.messages.push({ role: "user", content });
  if (!current.title) current.title = content.replace(/\s+/g, " ").slice(0, 60);
  conversations.all = [current, ...conversations.all.filter((one) => one !== current)];
  id("prompt").value = "";
  fit();
  save(current);
  showList();
  answer(current);
}

function regenerate(conversation = current) {
  if (running) return;
  if (conversation.messages.at(-1)?.role === "assistant") conversation.messages.pop();
  answer(conversation);
}

// The field grows with its text.
function fit() {
  const field = id("prompt");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

// ---- settings

function showSettings() {
  const form = id("settings").querySelector("form");
  const s = kept.read();
  for (const name of [...kNumbers, "reasoning_effort", "theme"]) form.elements[name].value = s[name] ?? "";
  form.elements.system.value = current.system;
  id("settings").returnValue = "";
  id("settings").showModal();
}

function takeSettings() {
  if (id("settings").returnValue !== "save") return;
  const form = id("settings").querySelector("form");
  const s = { system: form.elements.system.value, reasoning_effort: form.elements.reasoning_effort.value, theme: form.elements.theme.value };
  for (const name of kNumbers) if (form.elements[name].value !== "") s[name] = Number(form.elements[name].value);
  current.system = s.system;
  kept.write(s);
  save(current);
  useTheme();
}

function useTheme() {
  const theme = kept.read().theme;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// ---- the server

async function begin() {
  try {
    const { data } = await get("/v1/models");
    const before = id("model").value;
    id("model").replaceChildren(...data.map((model) => new Option(model.id, model.id)));
    if (data.some((model) => model.id === before)) id("model").value = before;
    id("model").hidden = data.length < 2;
    id("title").textContent = data.length === 1 ? data[0].id : "moe";
  } catch (error) {
    if (error.status === 401 && (await askForKey())) return begin();
    say(error.message);
    id("log").append(element("p", "error", error.message));
  }
  return undefined;
}

function connect() {
  id("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  id("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  id("prompt").addEventListener("input", fit);
  id("stop").addEventListener("click", () => running?.abort.abort());
  id("new").addEventListener("click", () => select());
  id("settings").addEventListener("close", takeSettings);
  id("show-settings").addEventListener("click", showSettings);
  id("show-statistics").addEventListener("click", (event) => event.currentTarget.setAttribute("aria-expanded", String(statistics.toggle())));
  id("show-list").addEventListener("click", (event) => {
    const shown = id("side").classList.toggle("shown");
    event.currentTarget.setAttribute("aria-expanded", String(shown));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (id("side").classList.contains("shown")) id("show-list").click();
    else running?.abort.abort();
  });
  addEventListener("storage", () => {
    conversations.reload([running?.conversation]);
    useTheme();
    select(current?.id);
  });
}

useTheme();
connect();
select(conversations.all[0]?.id);
begin();
