// SPDX-License-Identifier: Apache-2.0
// chunkmem's saves and loads as plain functions, for checkpoint.py, which compares them with other libraries.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

/// A folder that counts the bytes that are read, and may leave out syncs, since other writers make none.
class measured_folder {
 public:
  class writer {
   public:
    writer(cm::io::posix_folder::writer file, bool syncs) : file_{std::move(file)}, syncs_{syncs} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content) { return file_.write(content); }
    void sync()
    {
      if (syncs_) file_.sync();
    }
    void close() { file_.close(); }

   private:
    cm::io::posix_folder::writer file_;
    bool syncs_;
  };
  class reader {
   public:
    static constexpr bool reads_at_once = true;
    reader(cm::io::posix_folder::reader file, std::atomic<std::uint64_t>& read) : file_{std::move(file)}, read_{&read}
    {
    }
    [[nodiscard]] std::uint64_t size() { return file_.size(); }
    [[nodiscard]] std::size_t read(std::uint64_t offset, std::span<std::byte> room)
    {
      const std::size_t given = file_.read(offset, room);
      *read_ += given;
      return given;
    }

   private:
    cm::io::posix_folder::reader file_;
    std::atomic<std::uint64_t>* read_;
  };

  measured_folder(const std::string& path, bool syncs) : folder_{path}, syncs_{syncs} {}

  [[nodiscard]] writer create(std::string_view name) { return {folder_.create(name), syncs_}; }
  [[nodiscard]] reader open(std::string_view name) const { return {folder_.open(name), *bytes_read_}; }
  void rename(std::string_view from, std::string_view to) { folder_.rename(from, to); }
  bool remove(std::string_view name) noexcept { return folder_.remove(name); }
  void sync()
  {
    if (syncs_) folder_.sync();
  }
  [[nodiscard]] std::vector<std::string> names() const { return folder_.names(); }
  [[nodiscard]] std::uint64_t bytes_read() const noexcept { return *bytes_read_; }

 private:
  cm::io::posix_folder folder_;
  std::unique_ptr<std::atomic<std::uint64_t>> bytes_read_ = std::make_unique<std::atomic<std::uint64_t>>(0);
  bool syncs_;
};

struct model {
  model(std::uint32_t tensors, std::uint64_t elements)
      : memory{{.device_capacity = 64_MiB,
                .host_capacity = cm::bytes{tensors * elements * 4 + (std::uint64_t{256} << 20)}}},
        m{memory, {.chunk_bytes = 64_MiB}}
  {
    for (std::uint32_t index = 0; index < tensors; ++index) all.push_back(m.add<float>({elements}, cm::role::buffer));
  }

  cm::backend::host_arena memory;
  cm::manager<cm::backend::host_arena> m;
  std::vector<cm::tensor<float>> all;
  cm::optimizer::thread_pool workers{2};
};

template <class Work>
bool reported(Work work)
{
  try {
    work();
    return true;
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return false;
  }
}

}  // namespace

extern "C" {

void* peer_model(std::uint32_t tensors, std::uint64_t elements)
{
  return new model{tensors, elements};
}
void peer_forget(void* of)
{
  delete static_cast<model*>(of);
}

/// The numbers of one tensor, in or out of `values`.
bool peer_exchange(void* of, std::uint32_t index, float* values, bool writes)
{
  return reported([&] {
    model& it = *static_cast<model*>(of);
    const auto host = cm::memory_location::host;
    if (writes) {
      const auto pin = it.m.acquire(it.all[index], cm::access::write, host);
      std::copy_n(values, pin.span().size(), pin.span().data());
    } else {
      const auto pin = it.m.acquire(it.all[index], cm::access::read, host);
      std::copy_n(pin.span().data(), pin.span().size(), values);
    }
  });
}

/// A save with the defaults; without syncs it keeps one generation and reads none.
bool peer_save(void* of, const char* path, bool syncs)
{
  return reported([&] {
    model& it = *static_cast<model*>(of);
    if (syncs) {
      cm::io::posix_folder folder{path};
      (void)cm::checkpoint::save(it.m, folder);
    } else {
      measured_folder folder{path, false};
      (void)cm::checkpoint::save(it.m, folder, {.keep = 1});
    }
  });
}
bool peer_finish(void* of)
{
  return reported([&] { (void)cm::checkpoint::finish_save(static_cast<model*>(of)->m); });
}

/// @return   bytes that were read; 0 after an error
std::uint64_t peer_load(void* of, const char* path, bool is_parallel)
{
  std::uint64_t read = 0;
  (void)reported([&] {
    model& it = *static_cast<model*>(of);
    const measured_folder folder{path, true};
    if (is_parallel)
      (void)cm::checkpoint::load(it.m, folder, {}, it.workers);
    else
      (void)cm::checkpoint::load(it.m, folder);
    read = folder.bytes_read();
  });
  return read;
}

}  // extern "C"
