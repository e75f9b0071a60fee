// SPDX-License-Identifier: MIT
// libmoe for Node. index.js makes classes of these functions; index.d.ts documents them.

#include <new>

#include "functions.h"
#include "work.h"

namespace moe_node {
namespace {

using Function = napi_value (*)(const Js&, const Arguments&);

napi_value version(const Js& js, const Arguments&) { return js.string(moe_version_string()); }

/// `function` as JavaScript calls it: a Fault becomes a JavaScript exception.
template <Function function>
napi_value entry(napi_env env, napi_callback_info info) {
  const Js js(env);
  try {
    try {
      Arguments arguments;
      size_t n = arguments.size();
      js.ok(napi_get_cb_info(env, info, &n, arguments.data(), nullptr, nullptr));
      return function(js, arguments);
    } catch (const Fault& fault) {
      js.ok(napi_throw(env, js.error(fault)));
    } catch (const std::bad_alloc&) {
      js.ok(napi_throw(env, js.error({moe_status_name(MOE_ERR_MEMORY), "out of memory"})));
    }
  } catch (...) {  // an exception is pending, or JavaScript is out of memory
  }
  return nullptr;
}

/// The structs of this addon are those of the version that it was compiled against; while the major
/// one is 0, a minor one may change them.
void check_version() {
  if (moe_version() / 1000 == MOE_VERSION_MAJOR * 1000 + MOE_VERSION_MINOR) return;
  fail(MOE_ERR_UNSUPPORTED, "libmoe: expected version " + std::to_string(MOE_VERSION_MAJOR) + "." +
                                std::to_string(MOE_VERSION_MINOR) + ", found " +
                                moe_version_string());
}

template <Function function>
void declare(const Js& js, napi_value exports, const char* name) {
  napi_value value = nullptr;
  js.ok(napi_create_function(js.env, name, NAPI_AUTO_LENGTH, entry<function>, nullptr, &value));
  js.set(exports, name, value);
}

void declare_all(const Js& js, napi_value exports) {
  declare<version>(js, exports, "version");
  declare<open_model>(js, exports, "openModel");
  declare<model_info>(js, exports, "modelInfo");
  declare<model_sampling>(js, exports, "modelSampling");
  declare<encode>(js, exports, "encode");
  declare<decode>(js, exports, "decode");
  declare<piece>(js, exports, "piece");
  declare<create_session>(js, exports, "createSession");
  declare<position>(js, exports, "position");
  declare<context>(js, exports, "context");
  declare<rewind>(js, exports, "rewind");
  declare<count_routing>(js, exports, "countRouting");
  declare<activations>(js, exports, "activations");
  declare<eval>(js, exports, "evaluate");
  declare<eval_each>(js, exports, "evaluateEach");
  declare<score>(js, exports, "score");
  declare<embed>(js, exports, "embed");
  declare<cancel>(js, exports, "cancel");
  declare<cancel_again>(js, exports, "cancelAgain");
  declare<end_all>(js, exports, "endAll");
  declare<close_handle>(js, exports, "close");
  declare<generate>(js, exports, "generate");
  declare<create_chat>(js, exports, "createChat");
  declare<chat_add>(js, exports, "chatAdd");
  declare<chat_add_message>(js, exports, "chatAddMessage");
  declare<chat_set_tools>(js, exports, "chatSetTools");
  declare<chat_set_tool_choice>(js, exports, "chatSetToolChoice");
  declare<chat_tool_format>(js, exports, "chatToolFormat");
  declare<chat_truncate>(js, exports, "chatTruncate");
  declare<chat_remove_oldest>(js, exports, "chatRemoveOldest");
  declare<chat_messages>(js, exports, "chatMessages");
  declare<chat_render>(js, exports, "chatRender");
  declare<chat_reply>(js, exports, "chatReply");
  declare<create_layer>(js, exports, "createLayer");
  declare<layer_forward>(js, exports, "layerForward");
  declare<create_service>(js, exports, "createService");
  declare<service_submit>(js, exports, "serviceSubmit");
  declare<service_cancel>(js, exports, "serviceCancel");
  declare<service_stats>(js, exports, "serviceStats");
  declare<service_drain>(js, exports, "serviceDrain");
  declare<service_close>(js, exports, "serviceClose");
}

}  // namespace

napi_value init(napi_env env, napi_value exports) {
  try {
    const Js js(env);
    try {
      check_version();
      declare_all(js, exports);
      js.ok(napi_add_env_cleanup_hook(env, Work::end_all, nullptr));  // a worker that is terminated
    } catch (const Fault& fault) {
      js.ok(napi_throw(env, js.error(fault)));
    }
  } catch (...) {  // Node reports what is pending
  }
  return exports;
}

}  // namespace moe_node

NAPI_MODULE(moe, moe_node::init)
