// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/io/posix_folder.hpp>

#include <filesystem>

// A user's program that saves and loads in its current folder.
int main()
{
  using namespace chunkmem::literals;
  chunkmem::backend::host_arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  chunkmem::manager<chunkmem::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({4}, chunkmem::role::parameter);
  m.acquire(w, chunkmem::access::write).span()[3] = 2.0F;
  const std::filesystem::path place = std::filesystem::current_path() / "consumer_of_checkpoint_saves";
  int result = 1;
  {
    chunkmem::io::posix_folder folder{place.string()};
    chunkmem::checkpoint::save(m, folder);
    m.acquire(w, chunkmem::access::write).span()[3] = 7.0F;
    chunkmem::checkpoint::load(m, folder);
    result = m.acquire(w, chunkmem::access::read).span()[3] == 2.0F ? 0 : 1;
  }
  std::filesystem::remove_all(place);
  return result;
}
