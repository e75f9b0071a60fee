# SPDX-License-Identifier: MIT
# Writes the files of the page as a C++ source: cmake -D FOLDER=... -D OUT=... -D FILES=a,b -P embed.cmake
string(REPLACE "," ";" FILES "${FILES}")
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
set(arrays)
set(rows)
foreach(file IN LISTS FILES)
  file(READ ${FOLDER}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER ${file} name)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING ${extension} 1 -1 extension)
  set(path /page/${file})
  if(file STREQUAL index.html)
    set(path /)
  endif()
  string(APPEND arrays "constexpr char k_${name}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${path}\", \"${type_${extension}}\", {k_${name}, sizeof k_${name}}},\n")
endforeach()
file(WRITE ${OUT} "// The files of cli/serve/page, by its embed.cmake.
#include \"cli/serve/page_files.h\"

namespace moe_cli {
namespace {

${arrays}
constexpr PageFile kFiles[] = {
${rows}};

}  // namespace

const PageFile* page_file(std::string_view path) {
  for (const PageFile& file : kFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace moe_cli
")
