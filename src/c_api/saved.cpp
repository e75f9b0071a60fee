// SPDX-License-Identifier: MIT
// Saved sessions and copies of them.

#include "src/run/saved.h"

#include "formats/moe/reader.h"
#include "src/c_api/handles.h"

namespace moe {
namespace {

Status write_on(void* user, const void* bytes, size_t n) {
  const auto* writer = static_cast<const moe_writer*>(user);
  if (n == 0 || writer->write(writer->user, bytes, n)) return {};
  return Status::error(MOE_ERR_IO, "saved session: the writer failed");
}

Status read_from(void* user, uint64_t offset, void* to, size_t n) {
  const auto* reader = static_cast<const moe_reader*>(user);
  if (n == 0 || reader->read(reader->user, offset, to, n)) return {};
  return Status::error(MOE_ERR_IO, "saved session: the reader failed at byte %llu",
                       static_cast<unsigned long long>(offset));
}

ModelFileName name_of(const moe_session* session) {
  const FileHeader& header = session->model->model->file().header();
  return {header.metadata_xxh64, header.file_bytes};
}

Status save(moe_session* session, const moe_writer* writer) {
  MOE_TRY(check_session(session));
  if (writer == nullptr) return null_argument("writer");
  moe_writer own{};
  MOE_TRY(read_params(writer, "writer", &own));
  if (own.write == nullptr) return null_argument("writer.write");
  return save_session(*session->session, name_of(session), {write_on, &own});
}

Status load(moe_session* session, const moe_reader* reader) {
  MOE_TRY(check_session(session));
  if (reader == nullptr) return null_argument("reader");
  moe_reader own{};
  MOE_TRY(read_params(reader, "reader", &own));
  if (own.read == nullptr) return null_argument("reader.read");
  return load_session(*session->session, name_of(session), {own.size, read_from, &own});
}

Status fork(moe_session* session, moe_session** out) {
  MOE_TRY(check_session(session));
  if (out == nullptr) return null_argument("out");
  moe_model* model = session->model.get();
  const Allocator& allocator = model->memory.get();
  MOE_ASSIGN(Box<moe_session> handle, make_box<moe_session>(allocator, *model));
  MOE_ASSIGN(handle->session, fork_session(*session->session, *model->model, allocator));
  *out = handle.release();
  return {};
}

Status copy(moe_session* source, int32_t n_positions, moe_session* target) {
  MOE_TRY(check_session(source));
  MOE_TRY(check_session(target));
  if (source == target) {
    return Status::error(MOE_ERR_ARGUMENT, "target: expected another session than the source");
  }
  return copy_session(*source->session, n_positions, *target->session);
}

}  // namespace
}  // namespace moe

moe_status moe_session_save(moe_session* session, const moe_writer* writer, moe_error* error) {
  return moe::deliver(moe::save(session, writer), error);
}

moe_status moe_session_load(moe_session* session, const moe_reader* reader, moe_error* error) {
  return moe::deliver(moe::load(session, reader), error);
}

moe_status moe_session_fork(moe_session* session, moe_session** out, moe_error* error) {
  return moe::deliver(moe::fork(session, out), error);
}

moe_status moe_session_copy(moe_session* source, int32_t n_positions, moe_session* target,
                            moe_error* error) {
  return moe::deliver(moe::copy(source, n_positions, target), error);
}
