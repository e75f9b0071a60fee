#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <new>
#include <string_view>

#include "cli/interrupt.h"
#include "cli/text_input.h"

namespace moe_cli {
namespace {

// Terminals put these before and after a pasted text while this mode is on.
constexpr const char* kPasteBegins = "\033[200~";
constexpr std::wstring_view kPasteEnds = L"\033[201~";
constexpr const char* kMarkPastes = "\033[?2004h";
constexpr const char* kDoNotMarkPastes = "\033[?2004l";

volatile sig_atomic_t g_changed = 0;  // the terminal's size, or its modes while we were stopped

void on_change(int) {
  const int old_errno = errno;
  g_changed = 1;
  wake_reader();
  errno = old_errno;
}

/// Notices changes of the terminal during its lifetime.
class WatchTerminal {
 public:
  WatchTerminal() {
    struct sigaction action {};
    action.sa_handler = on_change;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &before_[i]);
    std::fputs(kMarkPastes, stderr);
  }
  ~WatchTerminal() {
    std::fputs(kDoNotMarkPastes, stderr);
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  WatchTerminal(const WatchTerminal&) = delete;
  WatchTerminal& operator=(const WatchTerminal&) = delete;

 private:
  static constexpr int kSignals[] = {SIGWINCH, SIGCONT};
  struct sigaction before_[2]{};
};

class Editor : public LineEditor {
 public:
  Editor() : editor_(el_init("moe", stdin, stderr, stderr)), history_(history_init()) {
    if (editor_ == nullptr || history_ == nullptr) throw std::bad_alloc();
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, prompt_of);
    el_set(editor_, EL_GETCFN, next_character);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_ADDFN, "moe-paste", "Inserts pasted text", paste);
    static constexpr const char* kKeys[][2] = {
        {kPasteBegins, "moe-paste"},   {"^I", "ed-insert"},          {"^R", "em-inc-search-prev"},
        {"^W", "ed-delete-prev-word"}, {"\\e[1;5C", "em-next-word"}, {"\\e[1;5D", "ed-prev-word"}};
    for (const auto& [keys, what] : kKeys) el_set(editor_, EL_BIND, keys, what, nullptr);
    el_source(editor_, nullptr);  // the user's ~/.editrc
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_HIST, history, history_);
  }
  ~Editor() override {
    if (history_ != nullptr) history_end(history_);
    if (editor_ != nullptr) el_end(editor_);
  }

  bool read(const char* prompt, std::string* line) override {
    prompt_ = prompt;
    int n = 0;
    const char* text = nullptr;
    {
      const WatchTerminal watch;
      text = el_gets(editor_, &n);
    }
    if (text == nullptr || n <= 0 || interrupted()) return false;
    *line = text;
    if (line->ends_with('\n')) line->pop_back();
    remember(*line);
    return true;
  }

  void remember(const std::string& line) override {
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static Editor& self(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* editor) { return const_cast<char*>(self(editor).prompt_); }

  // 1: a character; 0: the end of input, or Ctrl-C; -1: an error.
  static int next_character(EditLine* editor, wchar_t* out) {
    Editor& e = self(editor);
    mbstate_t state{};
    for (bool first = true;; first = false) {
      char byte = e.left_;
      if (byte == 0) {
        while (!wait_for_input(STDIN_FILENO, &g_changed)) {
          if (interrupted()) return 0;
          redraw(editor);
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

  static void redraw(EditLine* editor) {
    g_changed = 0;
    el_set(editor, EL_PREP_TERM, 0);  // libedit does not know that the shell changed the modes
    el_set(editor, EL_PREP_TERM, 1);
    std::fputs(kMarkPastes, stderr);
    el_resize(editor);
    el_set(editor, EL_REFRESH);
  }

  // Pasted line ends are text: they do not send the message.
  static unsigned char paste(EditLine* editor, int) try {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnds)) {
      if (el_wgetc(editor, &c) != 1) return CC_EOF;
      if (text.size() < kMostPromptBytes) text += c;
    }
    text.resize(text.size() - kPasteEnds.size());
    std::wstring clean;
    for (const wchar_t each : text) {
      if (each == L'\r' || each == L'\n') {
        clean += L'\n';
      } else if (each == L'\t' || each >= L' ') {
        clean += each;
      }
    }
    while (clean.ends_with(L'\n')) clean.pop_back();
    if (clean.empty()) return CC_NORM;
    return el_winsertstr(editor, clean.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  } catch (const std::bad_alloc&) {  // nothing may be thrown through libedit
    return CC_ERROR;
  }

  EditLine* editor_;
  History* history_;
  const char* prompt_ = "";
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

std::unique_ptr<LineEditor> LineEditor::open() {
  const char* terminal = std::getenv("TERM");
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1 || terminal == nullptr ||
      std::string_view(terminal) == "dumb" || !use_utf8()) {
    return nullptr;
  }
  return std::make_unique<Editor>();
}

}  // namespace moe_cli
