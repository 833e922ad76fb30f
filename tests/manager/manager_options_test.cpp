#include <chunkmem/manager/manager_options.hpp>

#include <support/catch.hpp>

using namespace chunkmem;

TEST_CASE("a chunk is four MiB unless the options say otherwise", "[manager]")
{
  CHECK(manager_options{}.chunk_bytes == 4_MiB);
  CHECK(manager_options{.chunk_bytes = 256_B}.chunk_bytes == bytes{256});
  CHECK(manager_options{}.chunk_bytes.count() % tensor_alignment.count() == 0);
}
