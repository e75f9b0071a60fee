#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lines of moe chat at a terminal: editing, history, pasted text, signals."""

import fcntl
import os
import re
import signal
import struct
import termios
import time

from support import MODEL, MOE, Cli, Terminal, main

LEFT, UP, HOME = "\x1b[D", "\x1b[A", "\x01"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"


class Screen:
    """The display of a terminal that gets these bytes: as much of an xterm as libedit uses. It does not wrap."""

    def __init__(self):
        self.rows, self.row, self.column = [[]], 0, 0

    def put(self, text):
        for part in re.findall(r"\x1b\[\??[0-9;]*.|\x1b[=>]|.", text, re.S):
            if part.startswith("\x1b["):
                self.control(part[2:-1], part[-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.go(self.row + 1)
            elif part == "\b":
                self.column = max(self.column - 1, 0)
            elif part >= " ":
                line = self.rows[self.row]
                line += [" "] * (self.column + 1 - len(line))
                line[self.column] = part
                self.column += 1

    def go(self, row):
        self.row = max(row, 0)
        self.rows += [[] for _ in range(self.row + 1 - len(self.rows))]

    def control(self, numbers, what):
        n = int(numbers) if numbers.isdigit() else 1
        line = self.rows[self.row]
        if what in "AB":
            self.go(self.row + (n if what == "B" else -n))
        elif what in "CD":
            self.column = max(self.column + (n if what == "C" else -n), 0)
        elif what == "G":
            self.column = n - 1
        elif what in "KJ":
            del line[self.column:]
            if what == "J":
                del self.rows[self.row + 1:]
        elif what == "@":
            line[self.column:self.column] = [" "] * n
        elif what == "P":
            del line[self.column:self.column + n]
        elif what not in "hlmr":
            raise AssertionError(f"the screen does not know {numbers + what}")

    def lines(self):
        return ["".join(line).rstrip() for line in self.rows]


class LineEditing(Cli):
    def chat(self, *args, **env):
        at = Terminal(self, "chat", MODEL, "--template", "chatml", *args, **{"TERM": "xterm", "LC_ALL": "C", **env})
        at.wait_for("> ")
        return at

    def send(self, at, typed, message):
        """Types a message; --render shows what was understood."""
        at.type(typed)
        shown = message.replace("\n", "\r\n")
        at.wait_for(f"<|im_start|>user\r\n{shown}<|im_end|>")
        at.wait_for("> ")

    def test_editing(self):
        at = self.chat("--render")
        self.send(at, "ac" + LEFT + "b\r", "abc")
        self.send(at, "word" + HOME + "a \r", "a word")
        self.send(at, "one two\x17three\r", "one three")
        self.send(at, "a\tb\r", "a\tb")
        self.send(at, "\u00e9\U0001F642x\x7f\x7f\r", "\u00e9")  # characters, not bytes
        self.send(at, "a\\\rb\r", "a\nb")
        at.type("\x04")
        self.assertEqual(at.status(), 0)

    def test_history(self):
        at = self.chat("--render")
        self.send(at, "first\r", "first")
        self.send(at, "second\r", "second")
        self.send(at, UP + UP + "!\r", "first!")
        self.send(at, UP + "\r", "first!")
        self.send(at, "\x12sec\r", "second")
        at.type("/quit\r")
        self.assertEqual(at.status(), 0)

    def test_history_by_message(self):
        at = self.chat("--render")
        self.send(at, "one\\\rtwo\r", "one\ntwo")
        self.send(at, '"""\r/clear\r  x\\\r"""\r', "/clear\n  x\\")
        self.send(at, "last\r", "last")
        self.send(at, UP + UP + "\r", "/clear\n  x\\")  # quoted as it was
        self.send(at, UP * 4 + "!\r", "one\ntwo!")
        at.type("/quit\r")
        self.assertEqual(at.status(), 0)

    def test_messages_of_a_file_that_would_be_commands(self):
        first = '"""/clear\nall"""\nends with \\\\\n\n'
        self.ok("chat", MODEL, "--template", "chatml", "-n", "2", "--session", self.path("talk"), text=first)
        at = self.chat("--session", self.path("talk"), "-n", "2")
        at.type(UP + UP + "\r")
        at.wait_for("all")
        at.wait_for("> ")
        at.type("/show\r")
        for _ in range(2):
            at.wait_for("<|im_start|>user\r\n/clear\r\nall<|im_end|>")

    def test_interrupts(self):
        at = self.chat("--render", NO_COLOR="1")
        at.type("half a li")
        at.wait_for("half a li")
        at.type("\x03")  # clears the line
        at.wait_for("^C")
        at.wait_for("> ")
        self.send(at, "whole\r", "whole")
        at.type("one\\\r")
        at.wait_for(". ")
        at.type("\x03")  # drops the message of which a line is there
        at.wait_for("> ")
        self.send(at, "two\r", "two")
        at.type('"""\rone\rtw')
        at.wait_for("tw")
        at.type("\x03")
        at.wait_for("> ")
        self.send(at, UP + "\r", "two")  # what was dropped is no history
        at.type("half")
        at.wait_for("half")
        at.type("\x03")
        at.wait_for("> ")
        at.type("\x03")  # a second one leaves
        self.assertEqual(at.status(), 130)
        self.assertTrue(termios.tcgetattr(at.file)[3] & termios.ICANON)

    def test_resize(self):
        for text, at_end in (("hello", "> Xhello"), ("h\u00e9llo w\u00f6rld", "> Xh\u00e9llo w\u00f6rld")):
            at = Terminal(self, "chat", MODEL, "--template", "chatml", "--render", TERM="xterm", LC_ALL="C", NO_COLOR="1")
            fcntl.ioctl(at.file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
            at.wait_for("> ")
            at.type(text)
            at.wait_for(text[-1])
            for columns in (58, 59, 40, 61):
                fcntl.ioctl(at.file, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                at.wait_for(text)  # drawn again
            at.rest()
            at.type(HOME + "X")
            at.rest()
            screen = Screen()
            screen.put(at.all)
            self.assertEqual(screen.lines()[-1], at_end)
            self.assertEqual(sum(line.startswith("> ") for line in screen.lines()), 1)

    def test_history_begins_with_a_resumed_conversation(self):
        self.ok("chat", MODEL, "--template", "chatml", "-n", "2", "--session", self.path("talk"), text="Once upon\n")
        at = self.chat("--session", self.path("talk"), "-n", "2")
        at.type(UP)
        at.wait_for("Once upon")
        at.type("\r")
        at.wait_for("> ")
        at.type("/show\r")
        for _ in range(2):
            at.wait_for("<|im_start|>user\r\nOnce upon<|im_end|>")

    def test_pasted_text_is_one_message(self):
        at = self.chat("--render")
        self.send(at, f"{PASTE}one\rtwo\r\r\tthree\x1b[31m\u009b\x7f\x1b[20\r\r{PASTED}, four\r", "one\ntwo\n\n\tthree[31m[20, four")
        self.send(at, f"{PASTE}\r{PASTED}a\r", "a")
        self.send(at, UP + UP + "\r", "one\ntwo\n\n\tthree[31m[20, four")
        # A terminal that reads lines itself has a limit of 4095 bytes.
        text = "".join(f"line {i}\n" for i in range(2000))
        self.send(at, f"{PASTE}{text}{PASTED}\r", text[:-1])

    def test_bytes_that_are_no_text(self):
        at = self.chat("--render")
        os.write(at.file, b"a\xffb\xc3c\xe2\x82\r")
        at.wait_for("<|im_start|>user\r\na\ufffdb\ufffdc\ufffd<|im_end|>")
        at.wait_for("> ")
        self.send(at, "d\r", "d")

    def test_signals(self):
        at = self.chat("--render")
        before = termios.tcgetattr(at.file)
        self.assertFalse(before[3] & termios.ICANON)
        at.type("one tw")
        at.wait_for("tw")
        fcntl.ioctl(at.file, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
        at.wait_for("one tw")  # drawn again
        # Stopped, and continued by a shell that took the terminal meanwhile
        os.kill(at.pid, signal.SIGSTOP)
        os.waitpid(at.pid, os.WUNTRACED)
        modes = termios.tcgetattr(at.file)
        modes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(at.file, termios.TCSANOW, modes)
        os.kill(at.pid, signal.SIGCONT)
        for _ in range(600):
            if not termios.tcgetattr(at.file)[3] & termios.ICANON:
                break
            time.sleep(0.1)
        self.send(at, "o\r", "one two")
        at.type("\x03")
        self.assertEqual(at.status(), 130)
        self.assertTrue(termios.tcgetattr(at.file)[3] & termios.ICANON)
        at = self.chat("--render")
        at.type("four\x1c")
        self.assertEqual(at.status(), -signal.SIGQUIT)
        self.assertTrue(termios.tcgetattr(at.file)[3] & termios.ICANON)

    def test_job_control(self):
        shell = Terminal(self, "--norc", "--noprofile", "-i", program="bash", TERM="xterm", PS1="$ ", NO_COLOR="1")
        shell.wait_for("$ ")
        shell.type(f"{MOE} chat {MODEL} --template chatml --render\n")
        shell.wait_for("> ")
        shell.type("one tw")
        shell.wait_for("one tw")
        shell.type("\x1a")  # a terminal discards what was not read yet
        shell.wait_for("Stopped")
        shell.wait_for("$ ")
        shell.type("fg\n")
        shell.wait_for("> one tw")
        self.send(shell, "o\r", "one two")

    def test_the_users_bindings(self):
        def chat(settings):
            with open(self.path("editrc"), "w") as f:
                f.write(settings)
            return self.chat("--render", EDITRC=self.path("editrc"))

        self.send(chat("bind -e\n"), f"{PASTE}one\rTwo{PASTED}\r", "one\nTwo")
        for settings, typed, message in (("bind -v\n", "ab\x1bi-\r", "a-b"), ("edit off\n", "one\r", "one")):
            at = chat(settings)
            self.send(at, typed, message)
            self.assertNotIn("2004h", at.before)  # nothing would take a marked paste


if __name__ == "__main__":
    main()
