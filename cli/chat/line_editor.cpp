// SPDX-License-Identifier: MIT
// Sets libedit up for UTF-8, pastes of several lines and signals, and keeps the history.
#include "cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <iterator>
#include <new>
#include <string_view>

#include "cli/io/interrupt.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

// Terminals put these before and after a pasted text while this mode is on.
constexpr const char* kPasteBegins = "\033[200~";
constexpr std::wstring_view kPasteEnds = L"\033[201~";
constexpr const char* kMarkPastes = "\033[?2004h";
constexpr const char* kDoNotMarkPastes = "\033[?2004l";

std::atomic<int> g_signal{0};  // the latest one that needs something done; any thread may get it

void on_signal(int signal) {
  const int old_errno = errno;
  g_signal = signal;
  wake_reader();
  errno = old_errno;
}

void watch(int signal) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

/// Catches, during its lifetime, signals after which the terminal must be drawn or restored.
class WatchSignals {
 public:
  WatchSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) watch(kSignals[i]);
    }
  }
  ~WatchSignals() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  WatchSignals(const WatchSignals&) = delete;
  WatchSignals& operator=(const WatchSignals&) = delete;

 private:
  static constexpr int kSignals[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGQUIT};
  struct sigaction before_[std::size(kSignals)] = {};
};

/// The text of a paste, as it is inserted. Line ends are text: they do not send the message.
class PastedText {
 public:
  void add(wchar_t c) {
    if (c == L'\r') c = L'\n';
    const bool control = c < L' ' || (c >= 0x7F && c < 0xA0);
    if (!fits_ || (control && c != L'\n' && c != L'\t')) return;
    fits_ = text_.size() < kMostPromptBytes;
    try {
      if (fits_) text_ += c;
    } catch (const std::bad_alloc&) {  // nothing may be thrown through libedit
      fits_ = false;
    }
  }
  bool fits() const { return fits_; }
  const wchar_t* text() {
    while (text_.ends_with(L'\n')) text_.pop_back();
    return text_.c_str();
  }

 private:
  std::wstring text_;
  bool fits_ = true;
};

class Editor : public LineEditor {
 public:
  explicit Editor(bool coloured)
      : coloured_(coloured),
        editor_(el_init("moe", stdin, stderr, stderr)),
        history_(history_init()) {
    if (editor_ == nullptr || history_ == nullptr) throw std::bad_alloc();
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT_ESC, prompt_of, kEscape);
    el_set(editor_, EL_GETCFN, next_character);
    el_set(editor_, EL_EDITOR, "emacs");
    el_wset(editor_, EL_ADDFN, L"moe-paste", L"Inserts pasted text",
            paste);  // el_set copies, and leaks
    static constexpr const char* kKeys[][2] = {{"^I", "ed-insert"},
                                               {"^R", "em-inc-search-prev"},
                                               {"^W", "ed-delete-prev-word"},
                                               {"\\e[1;5C", "em-next-word"},
                                               {"\\e[1;5D", "ed-prev-word"}};
    for (const auto& [keys, what] : kKeys) el_set(editor_, EL_BIND, keys, what, nullptr);
    el_source(editor_, nullptr);  // the user's ~/.editrc, which may replace all keys
    // In vi's insert mode, Esc must end that mode at once: it cannot begin a key.
    const char* keys = "";
    el_get(editor_, EL_EDITOR, &keys);
    el_get(editor_, EL_EDITMODE, &edits_);
    marks_pastes_ = edits_ != 0 && std::string_view(keys) == "emacs";
    if (marks_pastes_) el_set(editor_, EL_BIND, kPasteBegins, "moe-paste", nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_HIST, history, history_);
  }
  ~Editor() override {
    if (history_ != nullptr) history_end(history_);
    if (editor_ != nullptr) el_end(editor_);
  }

  Typed read(const char* prompt, std::string* line) override {
    n_prompt_ = static_cast<int>(std::strlen(prompt));
    prompt_ = coloured_ ? kBeginColour + std::string(prompt) : prompt;
    half_typed_ = false;
    int n = 0;
    const char* text = nullptr;
    {
      const WatchSignals signals;
      mark_pastes(true);
      if (edits_ != 0) el_set(editor_, EL_PREP_TERM, 1);  // before the prompt is shown
      text = el_gets(editor_, &n);
      leave_line();
    }
    if (interrupted()) {
      if (!half_typed_ || !forgive_interrupt()) return Typed::kNothing;
      std::fputs("\n", stderr);
      return Typed::kDropped;
    }
    if (text == nullptr || n <= 0) return Typed::kNothing;
    *line = text;
    if (line->ends_with('\n')) line->pop_back();
    return Typed::kLine;
  }

  void remember(const std::string& text) override {
    HistEvent event;
    if (!text.empty()) history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  static Editor& self(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* editor) { return self(editor).prompt_.data(); }

  void mark_pastes(bool on) const {
    if (marks_pastes_) std::fputs(on ? kMarkPastes : kDoNotMarkPastes, stderr);
  }

  void leave_line() const {
    mark_pastes(false);
    if (coloured_) std::fputs(kEndColour, stderr);
  }

  // 1: a character; 0: the end of input, or Ctrl-C; -1: an error.
  static int next_character(EditLine* editor, wchar_t* out) {
    Editor& e = self(editor);
    mbstate_t state{};
    for (bool first = true;; first = false) {
      char byte = e.left_;
      if (byte == 0) {
        while (!wait_for_input(STDIN_FILENO, &g_signal)) {
          if (interrupted()) return e.stop_typing();
          e.obey_signal();
        }
        const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return static_cast<int>(n);
      }
      e.left_ = 0;
      const size_t n = std::mbrtowc(out, &byte, 1, &state);
      if (n == static_cast<size_t>(-2)) continue;
      if (n == static_cast<size_t>(-1)) {
        *out = 0xFFFD;
        if (!first) e.left_ = byte;  // it may begin a character
      }
      return 1;
    }
  }

  // Ends the line, whose text stays on the screen.
  int stop_typing() {
    const LineInfoW* line = el_wline(editor_);
    half_typed_ = line->lastchar != line->buffer;
    for (int row = rows_to(line->cursor); row < rows_to(line->lastchar); ++row) {
      std::fputs("\n", stderr);
    }
    if (half_typed_ && line->cursor == line->lastchar) std::fputs("^C", stderr);
    return 0;
  }

  // Rows of the terminal from the first of the line to that of a place in it.
  int rows_to(const wchar_t* place) const {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
    const int columns = size.ws_col;
    int row = 0, column = n_prompt_;
    for (const wchar_t* c = el_wline(editor_)->buffer; c != place; ++c) {
      if (*c == L'\n') {
        ++row;
        column = 0;
        continue;
      }
      const int width = *c == L'\t' ? 8 - column % 8 : std::max(wcwidth(*c), 0);
      if (column + width > columns) {  // a wide character stays whole
        ++row;
        column = 0;
      }
      column += width;
      if (column == columns) {
        ++row;
        column = 0;
      }
    }
    return row;
  }

  // libedit draws where the cursor is, and takes that for the beginning of the line. `rows`: of the
  // line above the cursor.
  void draw_again(int rows) {
    std::fputs("\r", stderr);
    if (rows > 0) std::fprintf(stderr, "\033[%dA", rows);
    std::fputs("\033[J", stderr);
    el_resize(editor_);
    el_set(editor_, EL_REFRESH);
  }

  // Stops or ends with the terminal restored; otherwise, or then, draws the line again.
  void obey_signal() {
    const int signal = g_signal.exchange(0);
    leave_line();
    el_set(editor_, EL_PREP_TERM, 0);
    if (signal == SIGTSTP || signal == SIGQUIT) {
      ::signal(signal, SIG_DFL);
      raise(signal);
      watch(signal);
    }
    el_set(editor_, EL_PREP_TERM, 1);
    mark_pastes(true);
    // Terminals wrap a line anew when they are resized; what a shell wrote meanwhile stays.
    draw_again(signal == SIGWINCH ? rows_to(el_wline(editor_)->cursor) : 0);
  }

  static unsigned char paste(EditLine* editor, int) {
    PastedText pasted;
    for (size_t matched = 0; matched < kPasteEnds.size();) {
      wchar_t c = 0;
      if (el_wgetc(editor, &c) != 1) return CC_EOF;
      if (c == kPasteEnds[matched]) {
        ++matched;
        continue;
      }
      for (const wchar_t begun : kPasteEnds.substr(0, matched)) pasted.add(begun);  // no end
      matched = c == kPasteEnds[0] ? 1 : 0;
      if (matched == 0) pasted.add(c);
    }
    const wchar_t* text = pasted.text();
    if (*text == L'\0') return CC_NORM;
    if (pasted.fits() && el_winsertstr(editor, text) == 0) return CC_REFRESH;
    std::fputs("\nmoe: the pasted text is too long\n", stderr);
    return CC_REDISPLAY;
  }

  static constexpr char kEscape = '\1';  // libedit counts no column between two of them
  // The typed text has the prompt's colour, up to the end of the line.
  static constexpr const char* kBeginColour = "\1\033[1;32m\1";
  static constexpr const char* kEndColour = "\033[0m";

  const bool coloured_;
  EditLine* editor_;
  History* history_;
  std::string prompt_;
  int n_prompt_ = 0;         // its columns
  bool half_typed_ = false;  // when Ctrl-C came
  int edits_ = 0;            // 0: ~/.editrc turns editing off
  bool marks_pastes_ = false;
  char left_ = 0;  // a byte that was read too early
};

// libedit takes its encoding from the locale; models read UTF-8.
bool use_utf8() {
  for (const char* name : {"", "C.UTF-8"}) {
    if (setlocale(LC_CTYPE, name) == nullptr) continue;
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return true;
  }
  setlocale(LC_CTYPE, "C");
  return false;
}

}  // namespace

std::unique_ptr<LineEditor> LineEditor::open(bool coloured) {
  const char* name = std::getenv("TERM");
  const std::string_view terminal = name == nullptr ? "" : name;
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1 || terminal.empty() ||
      terminal == "dumb" || !use_utf8()) {
    return nullptr;
  }
  return std::make_unique<Editor>(coloured);
}

}  // namespace moe_cli
