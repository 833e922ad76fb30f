#include <chunkmem/collective/nccl_id_file.hpp>

#include <support/catch.hpp>

#include <array>
#include <filesystem>
#include <string>

namespace nccl_id_file_test {

using namespace chunkmem;
using collective::nccl_id_file;

TEST_CASE("the identity's file is its owner's alone, is never an old one, and is gone afterwards", "[collective]")
{
  const std::string path = (std::filesystem::temp_directory_path() / ("chunkmem_nccl_id_" + std::to_string(::getpid()))).string();
  std::array<std::byte, 128> id{};
  id.fill(std::byte{0x61});
  std::array<std::byte, 128> other{};
  CHECK(!nccl_id_file::read(path, other));
  {
    const nccl_id_file file{path, id};
    CHECK(std::filesystem::status(path).permissions() == (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    REQUIRE(nccl_id_file::read(path, other));
    CHECK(other == id);
    CHECK_THROWS_AS((nccl_id_file{path, id}), config_error);
    std::filesystem::permissions(path, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
    CHECK_THROWS_AS(nccl_id_file::read(path, other), config_error);
  }
  CHECK(!std::filesystem::exists(path));
}

}  // namespace nccl_id_file_test
