// SPDX-License-Identifier: MIT
// A live picture of the server: requests, memory, and the experts that each layer uses.

import { get } from "./api.js";

const kPeriod = 1000; // milliseconds
const id = (name) => document.getElementById(name);

function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return "";
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** Shares of a layer's uses since `before`, or of all if there were none since. */
function shares(now, before) {
  const since = now.map((n, i) => n - (before?.[i] ?? 0));
  const used = since.some((n) => n > 0) ? since : now;
  const sum = used.reduce((a, b) => a + b, 0);
  return used.map((n) => (sum > 0 ? n / sum : 0));
}

function meter(label, value, most, text) {
  const box = document.createElement("div");
  const name = document.createElement("label");
  const bar = document.createElement("meter");
  bar.max = most > 0 ? most : 1;
  bar.value = most > 0 ? value : 0;
  name.append(`${label}: ${text}`, bar);
  box.append(name);
  return box;
}

export class Statistics {
  constructor() {
    this.last = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.schedule(0));
  }

  /** Shows or hides the panel; false: hidden. */
  toggle() {
    const panel = id("statistics");
    panel.hidden = !panel.hidden;
    this.last = null;
    this.schedule(0);
    return !panel.hidden;
  }

  schedule(delay) {
    clearTimeout(this.timer);
    if (id("statistics").hidden || document.hidden) return;
    this.timer = setTimeout(() => this.refresh(), delay);
  }

  async refresh() {
    try {
      const model = id("model").value;
      const found = await get(model ? `/statistics?model=${encodeURIComponent(model)}` : "/statistics");
      this.show(found, performance.now());
    } catch (error) {
      id("experts-note").textContent = error.message;
    }
    this.schedule(kPeriod);
  }

  show(s, time) {
    if (s.open === false) {
      id("numbers").replaceChildren();
      id("memory").replaceChildren();
      id("experts").hidden = true;
      id("experts-note").textContent = "This model is not open; the next message opens it.";
      this.last = null;
      return;
    }
    const before = this.last && this.last.statistics.system_fingerprint === s.system_fingerprint ? this.last : null;
    const rate = before ? ((s.generated_tokens - before.statistics.generated_tokens) * 1000) / (time - before.time) : 0;
    this.numbers({
      "Texts being generated": `${s.running} of ${s.slots}`,
      "Waiting": s.waiting,
      "Tokens per second": rate.toFixed(rate < 10 ? 1 : 0),
      "Tokens generated": s.generated_tokens,
      "Tokens of prompts read": s.prompt_tokens,
      "Reused": s.reused_tokens,
    });
    this.memory(s);
    this.experts(s, before?.statistics);
    this.last = { statistics: s, time };
  }

  numbers(values) {
    const list = id("numbers");
    list.replaceChildren();
    for (const [name, value] of Object.entries(values)) {
      const term = document.createElement("dt");
      const number = document.createElement("dd");
      term.textContent = name;
      number.textContent = value;
      list.append(term, number);
    }
  }

  memory(s) {
    const m = s.memory;
    const positions = s.slots * s.context;
    const made = [meter("Positions of texts", s.kv_positions, positions, `${s.kv_positions} of ${positions}`)];
    if (m.cap_bytes > 0) {
      const found = m.expert_uses > 0 ? m.expert_hits / m.expert_uses : 1;
      made.unshift(meter("Of the cap", m.counted_bytes, m.cap_bytes, `${bytes(m.counted_bytes)} of ${bytes(m.cap_bytes)}, at most ${bytes(m.peak_bytes)} so far`));
      made.push(meter("Experts found in memory", found, 1, `${percent(found)}; ${bytes(m.expert_read_bytes)} read for the others`));
    } else {
      made.unshift(meter("Weights", 1, 1, `${bytes(m.weight_bytes)}, all in memory`));
    }
    id("memory").replaceChildren(...made);
  }

  experts(s, before) {
    const canvas = id("experts");
    const note = id("experts-note");
    canvas.hidden = s.layers.length === 0;
    if (canvas.hidden) {
      note.textContent = "This model has no experts, or runs on a GPU, where they are not counted.";
      id("experts-table").tBodies[0].replaceChildren();
      return;
    }
    const rows = s.layers.map((layer, i) => shares(layer.tokens_per_expert, before?.layers[i]?.tokens_per_expert));
    const changed = before && before.prompt_tokens + before.generated_tokens !== s.prompt_tokens + s.generated_tokens;
    note.textContent = `A row for each layer, a field for each expert: the stronger its colour, the more tokens went to it ${changed ? "in the last second" : "so far"}.`;
    this.draw(canvas, rows);
    const busiest = rows.map((row) => Math.max(...row));
    const most = busiest.indexOf(Math.max(...busiest));
    canvas.setAttribute("aria-label", `Use of the experts of ${rows.length} layers. Most uneven: layer ${s.layers[most].layer}, whose expert ${rows[most].indexOf(busiest[most])} got ${percent(busiest[most])} of the tokens.`);
    this.table(s.layers, rows);
  }

  draw(canvas, rows) {
    const width = 600;
    const height = rows.length > 24 ? 8 : 16;
    canvas.width = width;
    canvas.height = rows.length * height;
    const paint = canvas.getContext("2d");
    paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
    rows.forEach((row, y) => {
      const field = width / row.length;
      const even = 1 / row.length;
      row.forEach((share, x) => {
        paint.globalAlpha = Math.min(1, 0.06 + share / (4 * even));
        paint.fillRect(x * field, y * height, Math.max(1, field - 1), height - 1);
      });
    });
  }

  table(layers, rows) {
    const lines = rows.map((row, i) => {
      const best = row.map((share, expert) => [share, expert]).sort((a, b) => b[0] - a[0]).slice(0, 4);
      const line = document.createElement("tr");
      const name = document.createElement("th");
      const text = document.createElement("td");
      name.scope = "row";
      name.textContent = layers[i].layer;
      text.textContent = best.filter(([share]) => share > 0).map(([share, expert]) => `${expert} (${percent(share)})`).join(", ");
      line.append(name, text);
      return line;
    });
    id("experts-table").tBodies[0].replaceChildren(...lines);
  }
}
