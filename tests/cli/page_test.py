#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page of moe serve in a headless Chromium. Status 77: there is none on this machine."""

import json
import os
import sys
import time
import urllib.parse

from browser import PROGRAM, Browser
from serve_test import ENDLESS, Server, request_text
from support import CHAT, MODEL, Cli, main

TURN = [{"role": "user", "content": "Once upon a time"}]
# Each line of Markdown becomes this.
MARKDOWN = {
    "# Title": "<h3>Title</h3>",
    "a **b** _c_ `d<e` ~~f~~": "<p>a <strong>b</strong> <em>c</em> <code>d&lt;e</code> <del>f</del></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "***both***": "<p><strong><em>both</em></strong></p>",
    r"\*plain\*": "<p>*plain*</p>",
    "- a\n- b\n  - c\n\nend": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><p>end</p>",
    "3. a\n4. b": '<ol start="3"><li>a</li><li>b</li></ol>',
    "> a\n> b": "<blockquote><p>a\nb</p></blockquote>",
    "---": "<hr>",
    "a  \nb": "<p>a<br>b</p>",
    "| a | b |\n|---|:-:|\n| 1 | `x` |": '<div class="table" tabindex="0"><table><thead><tr><th>a</th><th>b</th></tr></thead>'
                                         "<tbody><tr><td>1</td><td><code>x</code></td></tr></tbody></table></div>",
    "<b onclick=alert(1)>x</b><script>alert(1)</script>": "<p>&lt;b onclick=alert(1)&gt;x&lt;/b&gt;&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x)": "<p>[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x)</p>",
    "[a](JaVaScRiPt:alert) <javascript:alert>": "<p>[a](JaVaScRiPt:alert) &lt;javascript:alert&gt;</p>",
    "![](https://example.com/x.png)": '<p><a href="https://example.com/x.png" target="_blank" rel="noopener noreferrer nofollow">https://example.com/x.png</a></p>',
    '[a](https://e.com/"onmouseover="x)': '<p><a href="https://e.com/%22onmouseover=%22x" target="_blank" rel="noopener noreferrer nofollow">a</a></p>',
    "see https://e.com/a.": '<p>see <a href="https://e.com/a" target="_blank" rel="noopener noreferrer nofollow">https://e.com/a</a>.</p>',
    "``a` b": "<p>``a` b</p>",
    "__proto__ &lt;": "<p><strong>proto</strong> &amp;lt;</p>",
}
# Each must be read soon, whatever it becomes.
HOSTILE = ["*" * 20000, "[" * 20000, "`" * 20000 + "a", "`" * 20000 + "a" * 20000, "> " * 5000 + "a", "- " * 5000, "**a" * 8000, "_a " * 8000, "| " * 5000 + "\n" + "|-" * 5000,
           "[a](" * 8000, "<https://" * 5000, "!" * 20000, "~~~" * 5000, "\\" * 20001, "a\n" * 20000, "***a" * 6000, "[a\\" * 8000]


class Page(Cli):
    def page(self, server):
        browser = Browser(self, self.path(f"chromium-{server.port}"))
        browser.size(1100, 720)
        browser.open(f"http://127.0.0.1:{server.port}/")
        return browser

    def start(self, *args, **kwargs):
        server = Server(self, *args, **kwargs)
        return server, self.page(server)

    def send(self, browser, text):
        browser.run("document.getElementById('prompt').focus()")
        browser.type(text)
        browser.key("Enter", 13)

    def wait_for_answer(self, browser, n=1):
        """The text of the last message, which is answer n of the conversation."""
        browser.wait(f"document.getElementById('stop').hidden && document.querySelectorAll('article.assistant').length == {n}")
        return browser.run("document.querySelector('article:last-of-type > .text').textContent")

    def set(self, browser, **values):
        browser.run("document.getElementById('show-settings').click()")
        for name, value in values.items():
            browser.run(f"document.querySelector('#settings [name={name}]').value = {json.dumps(value)}")
        browser.run("""new Promise((resolve) => {
            document.getElementById('settings').addEventListener('close', () => setTimeout(resolve), {once: true});
            document.querySelector('#settings [value=save]').click();
        })""")

    def test_a_chat(self):
        server, browser = self.start()
        browser.wait("document.getElementById('title').textContent == 'stories'")
        self.set(browser, temperature="0", max_tokens="40", system="")
        self.send(browser, "Once upon a time")
        answer = self.wait_for_answer(browser)
        request = {"messages": TURN, "temperature": 0, "max_tokens": 40}
        expected = server.post("/v1/chat/completions", request)["choices"][0]["message"]["content"]
        self.assertEqual(answer.split(), expected.split())
        note = browser.run("document.querySelector('article footer span').textContent")
        self.assertRegex(note, r"^40 tokens · [\d.]+ per second · seed \d+ · stopped at the token limit$")
        self.send(browser, "The dog")
        second = self.wait_for_answer(browser, 2)
        request["messages"] = [*TURN, {"role": "assistant", "content": expected}, {"role": "user", "content": "The dog"}]
        expected = server.post("/v1/chat/completions", request)["choices"][0]["message"]["content"]
        self.assertEqual(second.split(), expected.split())
        browser.run("[...document.querySelectorAll('article footer button')].find((b) => b.textContent == 'Regenerate').click()")
        self.assertEqual(self.wait_for_answer(browser, 2), second)
        self.set(browser, seed="7", temperature="1")
        browser.run("[...document.querySelectorAll('article footer button')].find((b) => b.textContent == 'Regenerate').click()")
        self.assertNotEqual(self.wait_for_answer(browser, 2), second)
        self.assertIn("seed 7", browser.run("document.querySelector('article:last-of-type footer span').textContent"))
        browser.picture("chat")
        self.assertEqual(browser.complaints(), [])
        here = f"http://127.0.0.1:{server.port}/"
        self.assertEqual([a for a in browser.addresses() if not a.startswith(here)], [])

    def test_conversations_stay_in_the_browser(self):
        _, browser = self.start()
        for text in ("The dog", "A bird"):
            browser.run("document.getElementById('new').click()")
            self.send(browser, text)
            self.wait_for_answer(browser)
        titles = "[...document.querySelectorAll('#list .open')].map((one) => one.textContent).join()"
        self.assertEqual(browser.run(titles), "A bird,The dog")
        before = browser.run("document.getElementById('log').innerText")
        browser.open(browser.run("location.href"))
        browser.wait(f"{titles} == 'A bird,The dog'")
        self.assertEqual(browser.run("document.getElementById('log').innerText"), before)
        browser.run("document.querySelectorAll('#list .open')[1].click()")
        self.assertEqual(browser.run("document.querySelector('article.user .text').textContent"), "The dog")
        browser.run("confirm = () => true; document.querySelectorAll('#list li')[1].lastElementChild.click()")
        self.assertEqual(browser.run(titles), "A bird")
        self.assertNotIn("The dog", browser.run("localStorage.getItem('moe.conversations')"))

    def test_stop(self):
        server, browser = self.start("--slots", "1")
        busy = server.connect()
        busy.sendall(request_text(ENDLESS))
        server.wait_for_metric("moe_requests_running", 1)
        self.send(browser, "The dog")
        browser.wait("!document.getElementById('stop').hidden")
        server.wait_for_metric("moe_requests_total", 2)
        self.assertEqual(browser.run("document.getElementById('log').getAttribute('aria-busy')"), "true")
        browser.key("Escape", 27)
        self.wait_for_answer(browser)
        self.assertEqual(browser.run("document.querySelector('article footer span').textContent"), "stopped")
        server.wait_for_metric("moe_requests_cancelled_total", 1)
        busy.close()
        server.wait_for_metric("moe_requests_running", 0)
        browser.run("[...document.querySelectorAll('article footer button')].find((b) => b.textContent == 'Regenerate').click()")
        self.assertNotEqual(self.wait_for_answer(browser), "")

    def test_thinking_is_folded_away(self):
        self.ok("convert", CHAT, self.path("script.moe"), "--weights", "f32")
        _, browser = self.start(model=self.path("script.moe"))
        self.send(browser, "Hello")
        self.assertEqual(self.wait_for_answer(browser), "Yes.")
        self.assertEqual(browser.run("document.querySelector('.thinking .text').textContent"), "ab")
        self.assertFalse(browser.run("document.querySelector('.thinking').open"))

    def test_errors_are_shown(self):
        server, browser = self.start("--max-prompt", "5")
        self.send(browser, "The dog " * 9)
        self.wait_for_answer(browser)
        self.assertIn("at most 5 tokens", browser.run("document.querySelector('[role=alert]').textContent"))
        server.kill()
        browser.run("document.getElementById('new').click()")
        self.send(browser, "The dog")
        self.wait_for_answer(browser)
        self.assertIn("fetch", browser.run("document.querySelector('[role=alert]').textContent"))

    def test_what_got_no_answer_is_not_sent_again(self):
        _, browser = self.start("--max-prompt", "8")
        self.send(browser, "The dog " * 9)
        self.wait_for_answer(browser)
        self.assertIn("at most 8 tokens", browser.run("document.querySelector('[role=alert]').textContent"))
        self.send(browser, "The dog")
        self.assertNotEqual(self.wait_for_answer(browser, 2), "")
        self.assertEqual(browser.run("document.querySelectorAll('[role=alert]').length"), 1)

    def test_what_another_tab_keeps_stays(self):
        _, browser = self.start()
        other = {"id": "1", "title": "Of another tab", "system": "", "messages": [{"role": "user", "content": "Hello"}]}
        keep = f"localStorage.setItem('moe.conversations', JSON.stringify([{json.dumps(other)}, ...JSON.parse(localStorage.getItem('moe.conversations') ?? '[]')]))"
        kept = "JSON.parse(localStorage.getItem('moe.conversations')).map((one) => one.title).join()"
        browser.run(keep)
        self.send(browser, "The dog")
        self.wait_for_answer(browser)
        self.assertEqual(browser.run(kept), "The dog,Of another tab")
        self.assertEqual(browser.run("JSON.parse(localStorage.getItem('moe.conversations'))[0].messages.length"), 2)
        browser.run("document.getElementById('new').click()")
        self.send(browser, "A bird")
        self.wait_for_answer(browser)
        other["id"], other["title"] = "2", "Another"
        browser.run(keep.replace("Of another tab", "Another").replace('"id": "1"', '"id": "2"'))
        browser.run("confirm = () => true; document.querySelectorAll('#list li')[0].lastElementChild.click()")
        self.assertEqual(browser.run(kept), "Another,The dog,Of another tab")

    def test_a_key_is_asked_for(self):
        with open(os.open(self.path("keys"), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as f:
            f.write("k3y-of-the-test\n")
        _, browser = self.start("--api-key-file", self.path("keys"))
        for key in ("wrong", "k3y-of-the-test"):
            browser.wait("document.getElementById('key').open")
            browser.run(f"document.querySelector('#key input').value = '{key}'; document.querySelector('#key [value=save]').click()")
        browser.wait("document.getElementById('title').textContent == 'stories'")
        self.send(browser, "The dog")
        self.assertNotEqual(self.wait_for_answer(browser), "")
        self.assertNotIn("k3y-of-the-test", browser.run("JSON.stringify(localStorage)"))

    def test_several_models(self):
        server = Server(self, "--model", f"b={MODEL}", "--template", "plain", model=("--model", f"a={MODEL}"))
        browser = self.page(server)
        browser.wait("[...document.getElementById('model').options].map((one) => one.value).join() == 'a,b'")
        self.assertFalse(browser.run("document.getElementById('model').hidden"))
        browser.run("document.getElementById('show-statistics').click()")
        browser.wait("document.getElementById('experts-note').textContent.includes('not open')")
        browser.run("document.getElementById('model').value = 'b'")
        self.send(browser, "The dog")
        self.assertNotEqual(self.wait_for_answer(browser), "")
        browser.wait("!document.getElementById('experts').hidden")
        self.assertEqual(server.ask("GET", "/v1/models/a")[2].count('"open":false'), 1)

    def test_statistics(self):
        server, browser = self.start()
        server.complete("Once upon a time")
        browser.run("document.getElementById('show-statistics').click()")
        browser.wait("document.getElementById('experts').getAttribute('aria-label')?.startsWith('Use of the experts of 4 layers.')")
        self.assertIn("Tokens generated\n16", browser.run("document.getElementById('statistics').innerText"))
        self.assertEqual(browser.run("document.querySelectorAll('#experts-table tbody tr').length"), 4)
        drawn = browser.run("[...document.getElementById('experts').getContext('2d').getImageData(0, 0, 600, 64).data].filter((v) => v).length")
        self.assertGreater(drawn, 1000)
        browser.picture("statistics")
        browser.run("document.getElementById('show-statistics').click()")
        self.assertTrue(browser.run("document.getElementById('statistics').hidden"))
        server.kill()
        capped = Server(self, "--memory", "8M")
        capped.complete("Once upon a time")
        browser = self.page(capped)
        browser.run("document.getElementById('show-statistics').click()")
        browser.wait("document.getElementById('memory').innerText.includes('of 8.4 MB')")
        self.assertIn("Experts found in memory", browser.run("document.getElementById('memory').innerText"))

    def test_markdown(self):
        _, browser = self.start()
        for text, expected in MARKDOWN.items():
            found = browser.run(f"import('/page/markdown.js').then((m) => {{ const d = document.createElement('div'); d.append(m.markdown({json.dumps(text)})); return d.innerHTML; }})")
            self.assertEqual(found, expected)
        code = browser.run("import('/page/markdown.js').then((m) => m.markdown('```js\\na <b>\\n  c\\n```\\nd').querySelector('pre').textContent)")
        self.assertEqual(code, "a <b>\n  c")
        unfinished = browser.run("import('/page/markdown.js').then((m) => m.markdown('a\\n```\\nb **c').querySelector('pre').textContent)")
        self.assertEqual(unfinished, "b **c")
        for text in HOSTILE:
            begin = time.monotonic()
            browser.run(f"import('/page/markdown.js').then((m) => {{ m.markdown({json.dumps(text)}); }})")
            self.assertLess(time.monotonic() - begin, 5, text[:10])
        self.assertEqual(browser.complaints(), [])

    def test_wide_narrow_light_and_dark(self):
        _, browser = self.start()
        long = "word " * 40 + "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n| a | b |\n|---|---|\n| " + "z" * 200 + " | 1 |"
        conversation = {"id": "1", "title": "Long " * 20, "system": "", "messages": [{"role": "user", "content": "x" * 300},
                                                                                    {"role": "assistant", "content": long, "thinking": "", "note": ""}]}
        browser.run(f"localStorage.setItem('moe.conversations', {json.dumps(json.dumps([conversation]))})")
        browser.open(browser.run("location.href"))
        for width, height in ((1400, 900), (760, 600), (360, 640), (320, 480)):
            for dark in (False, True):
                browser.size(width, height, dark)
                self.assertEqual(browser.run("document.documentElement.scrollWidth"), width)
                self.assertGreater(browser.run("document.getElementById('log').clientHeight"), 150)
                back = browser.run("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(back == "rgb(255, 255, 255)", not dark)
            browser.picture(f"at-{width}")
        self.assertFalse(browser.run("document.getElementById('side').checkVisibility()"))
        browser.run("document.getElementById('show-list').click()")
        self.assertTrue(browser.run("document.getElementById('side').checkVisibility()"))
        browser.key("Escape", 27)
        self.assertFalse(browser.run("document.getElementById('side').checkVisibility()"))

    def test_everything_has_a_name(self):
        """For those who hear the page or use its keys."""
        _, browser = self.start()
        self.send(browser, "The dog")
        self.wait_for_answer(browser)
        browser.run("document.getElementById('show-statistics').click(); document.getElementById('show-settings').click()")
        for scope in ("settings", None):
            nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
            kinds = {"button", "textbox", "combobox", "spinbutton", "searchbox", "link", "dialog", "img", "meter"}
            found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored") and n["role"]["value"] in kinds]
            self.assertGreater(len(found), 5)
            self.assertEqual([node for node in found if not node[1]], [])
            if scope:
                browser.key("Escape", 27)
                browser.wait("!document.getElementById('settings').open")
        browser.run("document.activeElement.blur()")
        seen = []
        for _ in range(12):
            browser.key("Tab", 9)
            seen.append(browser.run("document.activeElement.id || document.activeElement.textContent"))
        self.assertTrue({"Skip to the message", "show-statistics", "show-settings", "new"} <= set(seen), seen)
        self.assertIn("The answer is complete", browser.run("document.getElementById('status').textContent"))

    def test_headers(self):
        server = Server(self)
        status, headers, text = server.ask("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertNotIn("http", policy)
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        for name in ("style.css", "app.js", "icon.svg"):
            self.assertIn(urllib.parse.quote(f"/page/{name}"), text)
        server.refuses(404, None, "/page/none.js", "GET")
        server.refuses(405, {}, "/")


if __name__ == "__main__":
    if PROGRAM is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    main()
