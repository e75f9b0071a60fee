// SPDX-License-Identifier: MIT
// Markdown as nodes of the page. A model's text is never read as HTML: nodes get it as text, links
// lead to http, https and mailto alone, and pictures become links.

function node(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function link(address, children) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  const made = node("a");
  made.href = url.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer nofollow";
  made.append(...children);
  return made;
}

// Each begins at the place where it is tried, and gives a node, or null if it is none after all.
const kInline = [
  [/\\([!-/:-@[-`{-~])/y, (m) => document.createTextNode(m[1])],
  [/(`+)([^`]|[^`][\s\S]{0,4000}?[^`])\1(?!`)/y, (m) => node("code", m[2].replace(/^ (.*\S.*) $/s, "$1").replace(/\n/g, " "))],
  [/!\[([^\]\n]{0,500})\]\(<?([^\s)>]{1,2000})>?[^)\n]{0,200}\)/y, (m) => link(m[2], [m[1] || m[2]])],
  [/\[((?:[^[\]\n\\]|\\.){1,500})\]\(<?([^\s)>]{1,2000})>?(?:\s+"[^"\n]{0,200}")?\)/y, (m, depth) => link(m[2], inline(m[1], depth + 1))],
  [/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y, (m) => link(m[1], [m[1]])],
  [/https?:\/\/[^\s<>"'`)\]]{1,2000}[^\s<>"'`)\].,;:!?]/y, (m, _, before) => (/\w$/.test(before) ? null : link(m[0], [m[0]]))],
  [/(\*\*\*|___)(?=\S)([\s\S]{0,4000}?\S)\1/y, (m, depth) => node("strong", "", node("em", "", ...inline(m[2], depth + 1)))],
  [/(\*\*)(?=\S)([\s\S]{0,4000}?\S)\1(?!\*)/y, (m, depth) => node("strong", "", ...inline(m[2], depth + 1))],
  [/(__)(?=\S)([\s\S]{0,4000}?\S)\1(?![\w_])/y, (m, depth, before) => (/\w$/.test(before) ? null : node("strong", "", ...inline(m[2], depth + 1)))],
  [/(\*)(?=[^\s*])((?:[^*]|\*\*[^*]+\*\*){0,4000}?[^\s*]|[^\s*])\1(?!\*)/y, (m, depth) => node("em", "", ...inline(m[2], depth + 1))],
  [/(_)(?=[^\s_])([^_]{0,4000}?[^\s_])\1(?!\w)/y, (m, depth, before) => (/\w$/.test(before) ? null : node("em", "", ...inline(m[2], depth + 1)))],
  [/~~(?=\S)([\s\S]{0,4000}?\S)~~/y, (m, depth) => node("del", "", ...inline(m[1], depth + 1))],
  [/(?: {2,}|\\)\n/y, () => node("br")],
];
const kSpecial = /[\\`!\[<h*_~ ]/g;
const kMostDepth = 8;

function inline(text, depth = 0) {
  if (depth > kMostDepth) return [text];
  const made = [];
  let plain = 0;
  let at = 0;
  const next = () => {
    kSpecial.lastIndex = at;
    const found = kSpecial.exec(text);
    return found ? found.index : text.length;
  };
  for (at = next(); at < text.length; at = next()) {
    const before = text.slice(Math.max(0, at - 1), at);
    let taken = null;
    for (const [pattern, make] of kInline) {
      pattern.lastIndex = at;
      const match = pattern.exec(text);
      const result = match && make(match, depth, before);
      if (!result) continue;
      taken = [match[0].length, result];
      break;
    }
    if (!taken) {
      at += /`*/y.exec(text.slice(at))[0].length || 1; // each of a run of backticks would look as far again
      continue;
    }
    if (at > plain) made.push(text.slice(plain, at));
    made.push(taken[1]);
    at += taken[0];
    plain = at;
  }
  if (plain < text.length) made.push(text.slice(plain));
  return made;
}

function codeBlock(language, text) {
  const copy = node("button", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  const pre = node("pre", "", node("code", text));
  pre.tabIndex = 0; // so that keys can scroll it
  const made = node("div", "", node("div", "", node("span", language || "code"), copy), pre);
  made.className = "code";
  return made;
}

const kFence = /^( {0,3})(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const kRule = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const kItem = /^( {0,9})([-*+]|\d{1,9}[.)])(?:\s+(.*)|)$/;
const kQuote = /^ {0,3}> ?(.*)$/;
const kDivider = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

class Blocks {
  constructor(lines, depth) {
    this.lines = lines;
    this.at = 0;
    this.depth = depth;
    this.made = document.createDocumentFragment();
  }

  run() {
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (!line.trim()) this.at += 1;
      else if (!(this.fence(line) || this.simple(line) || this.table(line) || this.nested(line))) this.paragraph();
    }
    return this.made;
  }

  fence(line) {
    const open = kFence.exec(line);
    if (!open) return false;
    const text = [];
    const close = new RegExp(`^ {0,3}${open[2][0]}{${open[2].length},}\\s*$`);
    for (this.at += 1; this.at < this.lines.length && !close.test(this.lines[this.at]); ++this.at) {
      text.push(this.lines[this.at].replace(new RegExp(`^ {0,${open[1].length}}`), ""));
    }
    this.at += 1;
    this.made.append(codeBlock(open[3], text.join("\n")));
    return true;
  }

  simple(line) {
    const heading = kHeading.exec(line);
    if (heading) this.made.append(node(`h${Math.min(6, heading[1].length + 2)}`, "", ...inline(heading[2])));
    else if (kRule.test(line)) this.made.append(node("hr"));
    else return false;
    this.at += 1;
    return true;
  }

  table(line) {
    const divider = this.lines[this.at + 1];
    if (!line.includes("|") || divider === undefined || !divider.includes("-") || !kDivider.test(divider)) return false;
    const names = cells(line);
    if (names.length !== cells(divider).length) return false;
    const head = node("tr", "", ...names.map((name) => node("th", "", ...inline(name))));
    const rows = [];
    for (this.at += 2; this.at < this.lines.length && this.lines[this.at].includes("|"); ++this.at) {
      const row = cells(this.lines[this.at]);
      rows.push(node("tr", "", ...names.map((_, i) => node("td", "", ...inline(row[i] ?? "")))));
    }
    const box = node("div", "", node("table", "", node("thead", "", head), node("tbody", "", ...rows)));
    box.className = "table";
    box.tabIndex = 0;
    this.made.append(box);
    return true;
  }

  nested(line) {
    if (this.depth > kMostDepth) return false;
    if (kQuote.test(line)) this.quote();
    else if (kItem.test(line)) this.list(kItem.exec(line));
    else return false;
    return true;
  }

  quote() {
    const inner = [];
    for (; this.at < this.lines.length && this.lines[this.at].trim(); ++this.at) {
      const quoted = kQuote.exec(this.lines[this.at]);
      inner.push(quoted ? quoted[1] : this.lines[this.at]);
    }
    this.made.append(node("blockquote", "", new Blocks(inner, this.depth + 1).run()));
  }

  list(first) {
    const ordered = /\d/.test(first[2]);
    const made = node(ordered ? "ol" : "ul");
    if (ordered) made.start = Number.parseInt(first[2], 10);
    while (this.at < this.lines.length) {
      const item = kItem.exec(this.lines[this.at]);
      if (!item || item[1].length > first[1].length + 3 || /\d/.test(item[2]) !== ordered || kRule.test(this.lines[this.at])) break;
      made.append(node("li", "", this.item(item)));
    }
    this.made.append(made);
  }

  // The lines of an item are those below it that are indented, and those that go on without a gap.
  item(item) {
    const width = item[1].length + item[2].length + 1;
    const inner = [item[3] ?? ""];
    for (this.at += 1; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      const indent = line.length - line.trimStart().length;
      const gap = !inner[inner.length - 1].trim();
      if (line.trim() && indent < Math.min(width, item[1].length + 2) && (gap || kItem.test(line) || kFence.test(line) || kHeading.test(line))) break;
      inner.push(line.slice(Math.min(indent, width)));
    }
    while (inner.length > 1 && !inner[inner.length - 1].trim()) inner.pop();
    const blocks = new Blocks(inner, this.depth + 1).run();
    const only = blocks.childNodes.length > 0 && blocks.firstChild.nodeName === "P" && !inner.includes("");
    if (only) blocks.firstChild.replaceWith(...blocks.firstChild.childNodes);
    return blocks;
  }

  paragraph() {
    const begin = this.at;
    for (this.at += 1; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at];
      if (!line.trim() || kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kItem.test(line)) break;
    }
    this.made.append(node("p", "", ...inline(this.lines.slice(begin, this.at).join("\n"))));
  }
}

/** The nodes of a text. */
export function markdown(text) {
  return new Blocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0).run();
}
