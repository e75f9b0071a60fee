// SPDX-License-Identifier: MIT
// The C library has these functions up to six times, for different instruction sets: 0.1 MB in a
// static program, where they compare names. No text is searched or copied with them. The names with
// underscores are those by which the library itself calls them. For static programs.

#include <locale.h>
#include <stddef.h>

namespace {

int lower(char c) {
  const int byte = static_cast<unsigned char>(c);
  return byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
}

constexpr size_t kAll = ~size_t{0};

}  // namespace

extern "C" {

int strncmp(const char* a, const char* b, size_t n) noexcept {
  for (; n != 0; --n, ++a, ++b) {
    if (*a == *b && *a != '\0') continue;
    return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
  }
  return 0;
}

int strcmp(const char* a, const char* b) noexcept { return strncmp(a, b, kAll); }

int strncasecmp(const char* a, const char* b, size_t n) noexcept {
  for (; n != 0; --n, ++a, ++b) {
    if (lower(*a) == lower(*b) && *a != '\0') continue;
    return lower(*a) - lower(*b);
  }
  return 0;
}

int strcasecmp(const char* a, const char* b) noexcept { return strncasecmp(a, b, kAll); }

int strncasecmp_l(const char* a, const char* b, size_t n, locale_t) noexcept {
  return strncasecmp(a, b, n);
}

int strcasecmp_l(const char* a, const char* b, locale_t) noexcept { return strcasecmp(a, b); }

char* stpcpy(char* to, const char* from) noexcept {
  while ((*to = *from) != '\0') {
    ++to;
    ++from;
  }
  return to;
}

char* strcpy(char* to, const char* from) noexcept {
  stpcpy(to, from);
  return to;
}

char* strncpy(char* to, const char* from, size_t n) noexcept {
  size_t i = 0;
  for (; i < n && from[i] != '\0'; ++i) to[i] = from[i];
  for (; i < n; ++i) to[i] = '\0';
  return to;
}

size_t wcsnlen(const wchar_t* text, size_t n) noexcept {
  size_t i = 0;
  while (i < n && text[i] != L'\0') ++i;
  return i;
}

size_t wcslen(const wchar_t* text) noexcept { return wcsnlen(text, kAll); }

const wchar_t* wmemchr(const wchar_t* text, wchar_t c, size_t n) noexcept {
  for (; n != 0; --n, ++text) {
    if (*text == c) return text;
  }
  return nullptr;
}

const wchar_t* wcschr(const wchar_t* text, wchar_t c) noexcept {
  return wmemchr(text, c, wcslen(text) + 1);
}

#define MOE_ALSO(function) decltype(function) __##function __attribute__((alias(#function)))
MOE_ALSO(strcasecmp);
MOE_ALSO(strcasecmp_l);
MOE_ALSO(strncasecmp);
MOE_ALSO(strncasecmp_l);
MOE_ALSO(stpcpy);
MOE_ALSO(wcslen);
MOE_ALSO(wcsnlen);
MOE_ALSO(wmemchr);
MOE_ALSO(wcschr);
}
