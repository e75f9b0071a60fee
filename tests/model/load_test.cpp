// SPDX-License-Identifier: MIT
// Loading weights: when and from where they are read, failures, and memory use.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/support/failing_allocator.h"
#include "tests/support/memory_device.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

// A file read through callbacks, which count bytes and fail on request. Its weights are never used
// in place.
struct Storage {
  const MemorySink* bytes;
  std::atomic<uint64_t> n_read{0};
  std::atomic<bool> broken{false};

  FileSource source() {
    const auto read = [](void* user, uint64_t offset, void* buffer, size_t n) {
      auto* self = static_cast<Storage*>(user);
      if (self->broken) return false;
      self->n_read += n;
      std::memcpy(buffer, self->bytes->data() + offset, n);
      return true;
    };
    return FileSource::from_callbacks({bytes->size(), read, this});
  }
};

Result<Box<Model>> open_from(FileSource source, Device& device, const Allocator& allocator) {
  MOE_ASSIGN(Box<MoeFile> file, MoeFile::open(std::move(source), allocator));
  return Model::open(std::move(file), {}, device, Logger(), allocator);
}

Status use(Model& model) {
  MOE_TRY(model.prepare());
  for (int32_t e = 0; e < 8; ++e) {
    Expert expert;
    MOE_TRY(model.layer(1).experts->acquire(e, {}, &expert));
    model.layer(1).experts->release(e);
  }
  return {};
}

TEST(ModelLoad, OpeningReadsMetadataOnly) {
  const auto bytes = build_tiny_model(tiny_config());
  Storage storage{bytes.get()};
  MemoryDevice device(system_allocator());
  auto model = open_from(storage.source(), device, system_allocator());
  ASSERT_TRUE(model.ok()) << model.status().text();
  const uint64_t metadata = (*model)->file().metadata_bytes() + kHeaderBytes;
  EXPECT_EQ(storage.n_read, metadata);
  EXPECT_EQ(device.held(), 0u);
  EXPECT_TRUE((*model)->weights().embedding.empty());
  ASSERT_TRUE((*model)->prepare().ok());
  const uint64_t prepared = storage.n_read;
  EXPECT_GT(prepared, metadata);
  EXPECT_FALSE((*model)->weights().embedding.empty());
  EXPECT_EQ((*model)->weights().head.tiles, (*model)->weights().embedding.tiles);
  ASSERT_TRUE((*model)->prepare().ok());
  EXPECT_EQ(storage.n_read, prepared);
  Expert expert;
  ASSERT_TRUE((*model)->layer(1).experts->acquire(3, {}, &expert).ok());
  const uint64_t one = (*model)->file().find(Part::kExperts, 1, 3)->raw;
  EXPECT_EQ(storage.n_read, prepared + one);
  ASSERT_TRUE((*model)->layer(1).experts->acquire(3, {}, &expert).ok());
  EXPECT_EQ(storage.n_read, prepared + one);
}

TEST(ModelLoad, MemoryIsUsedInPlace) {
  const auto bytes = build_tiny_model(tiny_config());
  MemoryDevice device(system_allocator());
  auto model = open_model(*bytes, device);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(use(**model).ok());
  EXPECT_EQ(device.held(), 0u);
  const uint8_t* tiles = (*model)->weights().embedding.tiles;
  EXPECT_TRUE(tiles >= bytes->data() && tiles < bytes->data() + bytes->size());
}

TEST(ModelLoad, UnalignedMemoryAndOtherDevicesGetCopies) {
  const auto bytes = build_tiny_model(tiny_config());
  std::vector<uint8_t> shifted(bytes->size() + 128);
  const size_t at = 64 - reinterpret_cast<uintptr_t>(shifted.data()) % 64 + 8;
  std::memcpy(shifted.data() + at, bytes->data(), bytes->size());
  MemoryDevice host(system_allocator());
  auto model = open_from(FileSource::from_memory(shifted.data() + at, bytes->size()), host,
                         system_allocator());
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(use(**model).ok());
  EXPECT_EQ(host.held(), (*model)->weight_bytes());
  MemoryDevice other(system_allocator(), false);
  auto there = open_model(*bytes, other);
  ASSERT_TRUE(there.ok());
  ASSERT_TRUE(use(**there).ok());
  EXPECT_EQ(other.held(), (*there)->weight_bytes());
  EXPECT_EQ(std::memcmp((*there)->weights().embedding.tiles, (*model)->weights().embedding.tiles,
                        64 * 32 * 4),
            0);
}

TEST(ModelLoad, AStorageThatFailsForAWhile) {
  const auto bytes = build_tiny_model(tiny_config());
  Storage storage{bytes.get()};
  MemoryDevice device(system_allocator());
  auto model = open_from(storage.source(), device, system_allocator());
  ASSERT_TRUE(model.ok());
  storage.broken = true;
  EXPECT_EQ((*model)->prepare().code(), MOE_ERR_IO);
  EXPECT_TRUE((*model)->weights().embedding.empty());
  Expert expert;
  EXPECT_EQ((*model)->layer(1).experts->acquire(0, {}, &expert).code(), MOE_ERR_IO);
  storage.broken = false;
  EXPECT_TRUE(use(**model).ok());
}

TEST(ModelLoad, EveryAllocationMayFail) {
  TinyOptions options;
  options.weights = FormatId::kTernary2;
  options.compress = true;
  options.biases = true;
  const auto bytes = build_tiny_model(tiny_config(), options);
  const size_t tried = try_every_allocation_failure([&bytes](const Allocator& allocator) {
    Storage storage{bytes.get()};
    MemoryDevice device(allocator, false);
    auto model = open_from(storage.source(), device, allocator);
    return model.ok() ? use(**model).code() : model.status().code();
  });
  EXPECT_GT(tried, 40u);
}

TEST(ModelLoad, AFailureOfPrepareCanBeRepeated) {
  const auto bytes = build_tiny_model(tiny_config());
  Storage storage{bytes.get()};
  FailingAllocator memory(3);  // the fourth allocation of the weights
  MemoryDevice device(memory.get());
  auto model = open_from(storage.source(), device, system_allocator());
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->prepare().code(), MOE_ERR_MEMORY);
  EXPECT_TRUE(use(**model).ok());
}

TEST(ModelLoad, ManyThreadsAtOnce) {
  const auto bytes = build_tiny_model(tiny_config());
  for (int round = 0; round < 20; ++round) {
    Storage storage{bytes.get()};
    MemoryDevice device(system_allocator());
    auto model = open_from(storage.source(), device, system_allocator());
    ASSERT_TRUE(model.ok());
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    std::atomic<uint64_t> sum{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        if (!(*model)->prepare().ok() || (*model)->weights().final_norm.weight == nullptr)
          ++failures;
        for (int32_t i = 0; i < 8; ++i) {
          Expert expert;
          if (!(*model)->layer(1).experts->acquire((i + t) % 8, {}, &expert).ok()) ++failures;
          sum += expert.ffn->up.tiles[0];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(device.held(), (*model)->weight_bytes()) << "something was loaded twice";
  }
}

TEST(ModelAccount, CountsWhatIsThere) {
  ModelConfig config = tiny_config();
  const auto bytes = build_tiny_model(config);
  MemoryDevice device(system_allocator());
  auto model = open_model(*bytes, device);
  ASSERT_TRUE(model.ok());
  // f32: embedding and final norm; two attentions; dense FFN; router and norm; 8 experts.
  const uint64_t d = 32;
  const uint64_t embedding = 64 * d + d;
  const uint64_t attention = d + 2 * d * d + 2 * 16 * d;
  const uint64_t dense = d + 3 * 48 * d;
  const uint64_t router = 8 * d;
  const uint64_t expert = 3 * 24 * d;
  EXPECT_EQ((*model)->n_parameters(), embedding + 2 * attention + dense + d + router + 8 * expert);
  EXPECT_EQ((*model)->n_active_parameters(),
            embedding + 2 * attention + dense + d + router + 2 * expert);
  // Rows are padded to 16: the router has 8, the experts' gate and up 24.
  const uint64_t padded_expert = 2 * 32 * d + 2 * 16 * 24;
  EXPECT_EQ((*model)->weight_bytes(),
            4 * (embedding + 2 * attention + dense + d + 16 * d + 8 * padded_expert));
  EXPECT_EQ((*model)->bytes_per_token(),
            4 * (embedding + 2 * attention + dense + d + 16 * d + 2 * padded_expert));
  uint64_t lines = 0;
  for (const MemoryLine& line : (*model)->memory_lines()) lines += line.bytes;
  EXPECT_EQ(lines, (*model)->weight_bytes() + (*model)->file().metadata_bytes());
}

}  // namespace
}  // namespace moe
