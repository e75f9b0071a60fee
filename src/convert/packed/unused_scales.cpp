#include "src/convert/packed/unused_scales.h"

namespace moe {

std::vector<std::string> unused_scales(const std::string& name) {
  std::vector<std::string> out;
  for (const char* end :
       {".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale",
        ".output_zero_point", ".activation_scale", "_activation_scale"}) {
    out.push_back(name + end);
  }
  for (const char* cached : {"k", "v"}) {
    const std::string end = std::string(".") + cached + "_proj";
    if (!name.ends_with(end)) continue;
    const std::string begin = name.substr(0, name.size() - end.size() + 1) + cached;
    out.push_back(begin + "_scale");
    out.push_back(begin + "_zero_point");
    out.push_back(name + "." + cached + "_scale");
  }
  return out;
}

}  // namespace moe
