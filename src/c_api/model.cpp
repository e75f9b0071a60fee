// SPDX-License-Identifier: MIT
// Opening models and describing their contents.

#include "formats/moe/reader.h"
#include "kernels/router/table.h"
#include "kernels/router/text.h"
#include "quant/formats.h"
#include "src/base/os/machine.h"
#include "src/c_api/handles.h"
#include "src/c_api/load_tokenizer.h"
#include "src/model/names.h"
#include "src/run/memory.h"

namespace moe {
namespace {

void destroy(moe_model* model) {
  const Ref<moe_env> env = model->env;  // its allocator frees the model
  if (env->out_of_reach()) return;
  model->~moe_model();
  deallocate(env->allocator, model, sizeof *model);
}

Status load_text(moe_model* handle) {
  Model& model = *handle->model;
  handle->text.allocator = &handle->memory.get();
  if (model.tokenizer() == nullptr) return {};
  if (!can_load_tokenizer(*model.tokenizer())) {
    handle->env->logger.log(LogLevel::kInfo,
                            "%s: this build has no tokenizer files (MOE_TEXT=OFF): token ids only",
                            model.config().name.c_str());
    return {};
  }
  const auto vocab = static_cast<uint32_t>(model.config().vocab_size);
  MOE_ASSIGN(handle->text.tokenizer, load_tokenizer(*model.tokenizer(), vocab, handle->memory.get(),
                                                    model.config().begin_id()));
  return {};
}

// `name` is that of the file in errors of later reads; null: it has none.
Status open_source(moe_env* env, FileSource source, const char* name,
                   const moe_model_params& params, moe_model** out) {
  MOE_ASSIGN(Box<moe_model> handle, make_box<moe_model>(env->allocator, *env));
  const Allocator& memory = handle->memory.get();
  MOE_ASSIGN(Box<MoeFile> file, MoeFile::open(std::move(source), memory));
  if (name != nullptr) file->set_name(name);
  ModelOptions options;
  options.verify = params.skip_checksums == 0;
  options.memory_bytes = params.memory_bytes;
  options.fill_cache = params.lazy_experts == 0;
  options.clock = env->clock;
  MOE_ASSIGN(handle->model,
             Model::open(std::move(file), options, *env->device.get(), env->logger, memory));
  MOE_TRY(load_text(handle.get()));
  handle->model->set_table_bytes(handle->memory.bytes());
  MOE_TRY(check_given_session(*handle->model, params.session));
  *out = handle.release();
  return {};
}

Status read_model_params(const moe_env* env, const moe_model_params* given, moe_model** out,
                         moe_model_params* params) {
  MOE_TRY(check_env(env));
  if (out == nullptr) return null_argument("out");
  MOE_TRY(read_params(given, "params", params));
  MOE_TRY(check_reserved(params->reserved));
  const int io = enum_number(params->io);
  if (io >= MOE_IO_AUTO && io <= MOE_IO_BUFFERED) return {};
  return Status::error(MOE_ERR_ARGUMENT, "params.io: expected 0..%d, found %d", MOE_IO_BUFFERED,
                       io);
}

Status check_no_direct(const moe_model_params& params, const char* what) {
  if (params.io != MOE_IO_DIRECT) return {};
  return Status::error(MOE_ERR_ARGUMENT, "params.io: direct needs a file that is read, not %s",
                       what);
}

// Direct if requested, or if the page cache could not hold the file anyway.
Status choose_io(const moe_env& env, const moe_model_params& params, const char* path,
                 FileSource* source) {
  if (params.map_weights != 0) {
    MOE_TRY(check_no_direct(params, "a mapped one"));
    return source->map();
  }
  MachineMemory memory;
  const bool larger = machine_memory(&memory) && source->size() > memory.available;
  if (params.io == MOE_IO_BUFFERED || (params.io == MOE_IO_AUTO && !larger)) return {};
  const Status status = source->go_direct(path);
  if (params.io == MOE_IO_DIRECT) return status;
  env.logger.log(LogLevel::kInfo, "%s", status.ok() ? "bypassing the page cache" : status.text());
  return {};
}

Status open_path(moe_env* env, const char* path, const moe_model_params* given, moe_model** out) {
  moe_model_params params{};
  MOE_TRY(read_model_params(env, given, out, &params));
  if (path == nullptr) return null_argument("path");
  MOE_ASSIGN(FileSource source, FileSource::open_path(path));
  MOE_TRY(choose_io(*env, params, path, &source));
  return open_source(env, std::move(source), path, params, out).with_context("%s", path);
}

Status open_memory(moe_env* env, const void* data, size_t size, const moe_model_params* given,
                   moe_model** out) {
  moe_model_params params{};
  MOE_TRY(read_model_params(env, given, out, &params));
  if (data == nullptr) return null_argument("data");
  MOE_TRY(check_no_direct(params, "memory"));
  return open_source(env, FileSource::from_memory(data, size), nullptr, params, out);
}

Status open_reader(moe_env* env, const moe_reader* reader, const moe_model_params* given,
                   moe_model** out) {
  moe_model_params params{};
  MOE_TRY(read_model_params(env, given, out, &params));
  if (reader == nullptr) return null_argument("reader");
  moe_reader r{};
  MOE_TRY(read_params(reader, "reader", &r));
  if (r.read == nullptr) return null_argument("reader.read");
  MOE_TRY(check_no_direct(params, "a reader"));
  return open_source(env, FileSource::from_callbacks({r.size, r.read, r.user}), nullptr, params,
                     out);
}

void describe_text_vector(const TextVectorConfig& v, moe_model_info* info) {
  info->pooling = v.known ? name_in(kPoolings, v.pooling) : "";
  info->normalized = v.normalise ? 1 : 0;
  info->vector_tokens = v.max_tokens;
  info->n_prompts = static_cast<int32_t>(v.prompts.size());
  info->default_prompt = v.default_prompt;
}

Status get_prompt(const moe_model* model, int32_t index, const char** name, const char** text) {
  if (model == nullptr) return null_argument("model");
  if (name == nullptr) return null_argument("name");
  if (text == nullptr) return null_argument("text");
  const Array<Prompt>& prompts = model->model->config().text_vector.prompts;
  if (index < 0 || static_cast<size_t>(index) >= prompts.size()) {
    return Status::error(MOE_ERR_RANGE, "prompt: the model has %zu, found %d", prompts.size(),
                         index);
  }
  *name = prompts[static_cast<size_t>(index)].name;
  *text = prompts[static_cast<size_t>(index)].text;
  return {};
}

Status get_info(const moe_model* model, moe_model_info* out) {
  if (model == nullptr) return null_argument("model");
  MOE_TRY(check_out_struct(out, "out"));
  const Model& m = *model->model;
  const ModelConfig& c = m.config();
  moe_model_info info{};
  info.vocab_size = c.vocab_size;
  info.d_model = c.d_model;
  info.n_layers = c.n_main_layers();
  for (int32_t l = 0; l < c.n_main_layers(); ++l) {
    info.n_moe_layers += c.layers[static_cast<size_t>(l)].ffn.kind == FfnKind::kMoe;
  }
  info.context_length = c.context_length;
  info.bos_token = c.bos_token_id;
  info.n_eos_tokens = static_cast<int32_t>(c.eos_token_ids.size());
  info.eos_tokens = c.eos_token_ids.data();
  info.name = c.name.c_str();
  info.n_parameters = m.n_parameters();
  info.n_active_parameters = m.n_active_parameters();
  info.weight_bytes = m.weight_bytes();
  info.bytes_per_token = m.bytes_per_token();
  info.file_bytes = m.file().file_bytes();
  info.file_hash = m.file().header().metadata_xxh64;
  const Device& device = *model->env->device.get();
  info.n_predictions = c.n_predictions;
  info.device = device.uses_host_memory() ? "cpu" : device.name();
  info.head = name_in(kHeadKinds, c.head.kind);
  info.n_outputs = c.n_outputs();
  info.is_encoder = c.is_encoder() ? 1 : 0;
  info.is_encoder_decoder = c.is_encoder_decoder() ? 1 : 0;
  info.n_encoder_layers = c.n_encoder_layers;
  info.source_length = c.source_length;
  info.start_token = c.start_token_id;
  info.mask_token = c.mask_token_id;
  describe_text_vector(c.text_vector, &info);
  write_struct(info, out);
  return {};
}

Status find_layer(const moe_model* model, int32_t index, const LayerConfig** out) {
  if (model == nullptr) return null_argument("model");
  const ModelConfig& config = model->model->config();
  if (index < 0 || index >= config.n_main_layers()) {
    return Status::error(MOE_ERR_RANGE, "layer: expected 0..%d, found %d",
                         config.n_main_layers() - 1, index);
  }
  *out = &config.layers[static_cast<size_t>(index)];
  return {};
}

Status get_router(const moe_model* model, int32_t index, moe_router* out) {
  const LayerConfig* layer = nullptr;
  MOE_TRY(find_layer(model, index, &layer));
  MOE_TRY(check_out_struct(out, "out"));
  if (layer->ffn.kind != FfnKind::kMoe) {
    return Status::error(MOE_ERR_UNSUPPORTED, "layer %d is dense: it has no router", index);
  }
  write_struct(describe_router(layer->ffn.moe.router, layer->ffn.moe.n_experts), out);
  return {};
}

Status get_layer_info(const moe_model* model, int32_t index, moe_model_layer_info* out) {
  const LayerConfig* found = nullptr;
  MOE_TRY(find_layer(model, index, &found));
  MOE_TRY(check_out_struct(out, "out"));
  const LayerConfig& layer = *found;
  const MoeConfig& moe = layer.ffn.moe;
  moe_model_layer_info info{};
  info.n_heads = layer.attention.n_heads;
  info.n_kv_heads = layer.attention.n_kv_heads;
  info.head_dim = layer.attention.head_dim;
  info.window = layer.attention.window;
  info.n_cross_heads = layer.cross.n_heads;
  if (can_keep_latent(layer.attention)) {
    info.kv_latent = layer.attention.latent + layer.attention.rope.dims;
  }
  info.mixer = "";
  if (kHasMixers && layer.has_mixer) {
    const MixerConfig& mixer = layer.mixer.mixer;
    const int32_t d_model = model->model->config().d_model;
    info.mixer = mixer_info(mixer).name;
    info.state_bytes = static_cast<uint64_t>(mixer_state(mixer, d_model)) * sizeof(float);
  }
  info.d_ff = layer.ffn.d_ff;
  info.n_subheads = 1;
  info.activation = layer.has_ffn ? name_in(kActivations, layer.ffn.act.kind) : "";
  if (layer.ffn.kind == FfnKind::kMoe) {
    info.n_experts = moe.n_experts;
    info.n_active = router_max_k(moe.router, moe.n_experts);
    info.n_subheads = moe.n_subheads;
    info.has_head = moe.head ? 1 : 0;
    info.has_merge = moe.merge ? 1 : 0;
    info.shared_d_ff = moe.shared.d_ff;
    info.n_sublayers = moe.n_sublayers;
  }
  write_struct(info, out);
  return {};
}

Status get_tensor_info(const moe_model* model, size_t index, moe_tensor_info* out) {
  if (model == nullptr) return null_argument("model");
  MOE_TRY(check_out_struct(out, "out"));
  const MoeFile& file = model->model->file();
  if (index >= file.tensor_count()) {
    return Status::error(MOE_ERR_RANGE, "index: expected below %zu, found %zu", file.tensor_count(),
                         index);
  }
  const FileTensor t = file.tensor(index);
  moe_tensor_info info{};
  info.layer = t.segment->layer;
  info.expert = t.segment->expert;
  info.rows = t.matrix->rows;
  info.cols = t.matrix->cols;
  info.part = name_in(kParts, t.segment->part);
  info.role = name_in(kRoles, t.matrix->role);
  info.format = format_info(t.matrix->format).name;
  info.scale = name_in(kScaleKinds, t.matrix->scale);
  info.activations = name_in(kActPrecisions, t.matrix->act);
  info.codec = name_in(kCodecs, t.segment->codec);
  info.bytes = stored_bytes(*t.matrix);
  info.file_offset = t.segment->offset;
  write_struct(info, out);
  return {};
}

Status verify(moe_model* model) {
  MOE_TRY(check_model(model));
  return model->model->verify();
}

}  // namespace

void drop(moe_model* model) {
  if (model->references.remove()) destroy(model);
}

}  // namespace moe

moe_status moe_model_open(moe_env* env, const char* path, const moe_model_params* params,
                          moe_model** out, moe_error* error) {
  return moe::deliver(moe::open_path(env, path, params, out), error);
}

moe_status moe_model_open_memory(moe_env* env, const void* data, size_t size,
                                 const moe_model_params* params, moe_model** out,
                                 moe_error* error) {
  return moe::deliver(moe::open_memory(env, data, size, params, out), error);
}

moe_status moe_model_open_reader(moe_env* env, const moe_reader* reader,
                                 const moe_model_params* params, moe_model** out,
                                 moe_error* error) {
  return moe::deliver(moe::open_reader(env, reader, params, out), error);
}

void moe_model_free(moe_model* model) {
  if (model != nullptr) moe::drop(model);
}

moe_status moe_model_get_info(const moe_model* model, moe_model_info* out, moe_error* error) {
  return moe::deliver(moe::get_info(model, out), error);
}

moe_status moe_model_get_prompt(const moe_model* model, int32_t index, const char** name,
                                const char** text, moe_error* error) {
  return moe::deliver(moe::get_prompt(model, index, name, text), error);
}

moe_status moe_model_get_layer_info(const moe_model* model, int32_t layer,
                                    moe_model_layer_info* out, moe_error* error) {
  return moe::deliver(moe::get_layer_info(model, layer, out), error);
}

moe_status moe_model_get_router(const moe_model* model, int32_t layer, moe_router* out,
                                moe_error* error) {
  return moe::deliver(moe::get_router(model, layer, out), error);
}

size_t moe_model_tensor_count(const moe_model* model) {
  return model == nullptr ? 0 : model->model->file().tensor_count();
}

moe_status moe_model_get_tensor_info(const moe_model* model, size_t index, moe_tensor_info* out,
                                     moe_error* error) {
  return moe::deliver(moe::get_tensor_info(model, index, out), error);
}

moe_status moe_model_verify(moe_model* model, moe_error* error) {
  return moe::deliver(moe::verify(model), error);
}
