// SPDX-License-Identifier: MIT
// The locale "C" of libstdc++ brings every facet, for narrow and wide characters and for both kinds
// of string: money, time, messages, collation, 0.4 MB that nothing here uses. This one has what the
// streams of the command need to write, and to read texts: without std::num_get, reading a number
// from a stream fails. For static programs, linked with -z muldefs, where it takes precedence.

#define _GLIBCXX_USE_CXX11_ABI 0  // libstdc++ writes numbers with the facets of the older strings
#include <locale>
#include <new>

namespace {

constexpr size_t kMostFacets = 64;  // libstdc++ numbers fewer
const std::locale::facet* g_facets[kMostFacets];
const std::locale::facet* g_caches[kMostFacets];
char g_name[] = "C";
char* g_names[12] = {g_name};  // one name for all twelve categories

// Never destroyed: other static objects write until the end.
template <class Facet>
struct Kept {
  alignas(Facet) char bytes[sizeof(Facet)];
};
Kept<std::ctype<char>> g_ctype;
Kept<std::codecvt<char, char, std::mbstate_t>> g_codecvt;
Kept<std::numpunct<char>> g_numpunct;
Kept<std::num_put<char>> g_num_put;
Kept<std::__numpunct_cache<char>> g_numbers;

}  // namespace

std::locale::_Impl::_Impl(size_t references) noexcept
    : _M_refcount(static_cast<_Atomic_word>(references)),
      _M_facets(g_facets),
      _M_facets_size(kMostFacets),
      _M_caches(g_caches),
      _M_names(g_names) {
  _M_init_facet_unchecked(new (&g_ctype) std::ctype<char>(nullptr, false, 1));
  _M_init_facet_unchecked(new (&g_codecvt) std::codecvt<char, char, std::mbstate_t>(1));
  // With its cache in place from the start: its installation on first use is not safe for threads.
  auto* numbers = new (&g_numbers) std::__numpunct_cache<char>(2);
  _M_init_facet_unchecked(new (&g_numpunct) std::numpunct<char>(numbers, 1));
  _M_caches[std::numpunct<char>::id._M_id()] = numbers;
  _M_init_facet_unchecked(new (&g_num_put) std::num_put<char>(1));
}
