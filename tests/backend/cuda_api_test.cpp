// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_api.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda.hpp>
#include <support/fake_cuda_codes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_api_test {

using namespace chunkmem;

namespace {

/// Has the functions of the concept and nothing else.
struct archetype {
  struct stream_type {
    bool operator==(const stream_type&) const = default;
  };
  using event_type = stream_type;
  using pool_type = stream_type;
  using graph_type = stream_type;
  using executable_type = stream_type;
  using context_type = stream_type;

  static int count_devices(int&) noexcept { return 0; }
  static int current_device(int&) noexcept { return 0; }
  static int open_context(context_type&, int) noexcept { return 0; }
  static int push_context(context_type) noexcept { return 0; }
  static int pop_context(context_type) noexcept { return 0; }
  static int memory_info(std::size_t&, std::size_t&) noexcept { return 0; }
  static int create_pool(pool_type&, int, std::size_t) noexcept { return 0; }
  static int destroy_pool(pool_type) noexcept { return 0; }
  static int pool_memory(pool_type, std::size_t&) noexcept { return 0; }
  static int allocate_device(void*&, std::size_t, pool_type, stream_type) noexcept { return 0; }
  static int free_device(void*, stream_type) noexcept { return 0; }
  static int allocate_pinned(void*&, std::size_t) noexcept { return 0; }
  static int free_pinned(void*) noexcept { return 0; }
  static int place_of(const void*, int&, int&) noexcept { return 0; }
  static int stream_priorities(int&, int&) noexcept { return 0; }
  static int create_stream(stream_type&, int) noexcept { return 0; }
  static int destroy_stream(stream_type) noexcept { return 0; }
  static int synchronize_stream(stream_type) noexcept { return 0; }
  static int create_event(event_type&) noexcept { return 0; }
  static int destroy_event(event_type) noexcept { return 0; }
  static int record_event(event_type, stream_type) noexcept { return 0; }
  static int wait_event(stream_type, event_type) noexcept { return 0; }
  static int synchronize_event(event_type) noexcept { return 0; }
  static int query_event(event_type, bool&) noexcept { return 0; }
  static int copy(void*, const void*, std::size_t, stream_type) noexcept { return 0; }
  static int copy_batch(void* const*, const void* const*, const std::size_t*, std::size_t, stream_type) noexcept
  {
    return 0;
  }
  static int fill(void*, int, std::size_t, stream_type) noexcept { return 0; }
  static int launch_host(stream_type, void (*)(void*), void*) noexcept { return 0; }
  static int last_error() noexcept { return 0; }
  static int begin_capture(stream_type) noexcept { return 0; }
  static int end_capture(stream_type, graph_type&) noexcept { return 0; }
  static int instantiate(executable_type&, graph_type) noexcept { return 0; }
  static int destroy_graph(graph_type) noexcept { return 0; }
  static int destroy_executable(executable_type) noexcept { return 0; }
  static int launch_graph(executable_type, stream_type) noexcept { return 0; }
  static const char* name_of(int) noexcept { return "archetype"; }
};

/// Its failure would be an exception, which no caller expects.
struct throwing : archetype {
  static int last_error() { return 0; }
};

/// Numbers are the runtime's own, and not booleans.
struct answering : archetype {
  static bool pop_context(context_type) noexcept { return true; }
};

}  // namespace

static_assert(cuda_api<archetype>);
static_assert(!cuda_api<throwing> && !cuda_api<answering> && !cuda_api<int>);

TEST_CASE("the fake runtime is one that a CUDA backend can stand on", "[backend]")
{
  STATIC_REQUIRE(cuda_api<support::fake_cuda>);
  STATIC_REQUIRE(names_cuda_handles<support::fake_cuda> && gives_cuda_memory<support::fake_cuda>);
  STATIC_REQUIRE(orders_cuda_work<support::fake_cuda> && captures_cuda_graphs<support::fake_cuda>);
}

}  // namespace cuda_api_test

namespace cuda_errors_test {

using namespace chunkmem;
using backend::cuda_fault;
using backend::fault_of_cuda_error;
using backend::is_known_cuda_error;
using backend::is_sticky_cuda_error;

static_assert(is_sticky_cuda_error(700) && !is_sticky_cuda_error(1) && !is_sticky_cuda_error(0));

namespace {

struct enumerator {
  int number;
  std::string name;
  std::string comment;
};

std::string text_of(const std::string& path)
{
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// The enumerators of `enum cudaError` with the comment before each.
std::vector<enumerator> enumerators_of(const std::string& header)
{
  const auto begin = header.find("enum __device_builtin__ cudaError\n");
  if (begin == std::string::npos) return {};
  const std::string text = header.substr(begin, header.find("};", begin) - begin);
  std::vector<enumerator> found;
  const std::regex pattern{R"((cuda(Success|Error\w+))\s*=\s*(\d+))"};
  auto from = text.begin();
  for (std::sregex_iterator it{text.begin(), text.end(), pattern}, end; it != end; ++it) {
    found.push_back({std::stoi((*it)[3]), (*it)[1], std::string{from, text.begin() + it->position()}});
    from = text.begin() + it->position() + it->length();
  }
  return found;
}

bool says_the_end(const std::string& comment)
{
  const std::string one_line = std::regex_replace(comment, std::regex{R"(\s*\n\s*\*\s*)"}, " ");
  return one_line.find("inconsistent state") != std::string::npos ||
         one_line.find("process must be terminated") != std::string::npos;
}

}  // namespace

TEST_CASE("every number is sticky or not as the fake runtime says, and unknown ones are", "[backend]")
{
  int wrong = 0;
  for (int number = -100; number <= 20'000; ++number)
    if (number != 0 && is_sticky_cuda_error(number) != support::is_sticky_fake_code(number)) ++wrong;
  CHECK(wrong == 0);
  std::set<int> known{0};
  known.insert(support::all_cuda_codes.begin(), support::all_cuda_codes.end());
  for (int number = -100; number <= 20'000; ++number)
    if (is_known_cuda_error(number) != known.contains(number)) ++wrong;
  CHECK(wrong == 0);
  CHECK(is_sticky_cuda_error(12'345));
  CHECK(is_sticky_cuda_error(-1));
}

TEST_CASE("a number tells what can be done", "[backend]")
{
  CHECK(fault_of_cuda_error(0) == cuda_fault::none);
  CHECK(fault_of_cuda_error(1) == cuda_fault::passing);
  CHECK(fault_of_cuda_error(2) == cuda_fault::memory);
  CHECK(fault_of_cuda_error(4) == cuda_fault::unloading);
  CHECK(fault_of_cuda_error(100) == cuda_fault::no_gpu);
  for (const int number : {35, 36}) CHECK(fault_of_cuda_error(number) == cuda_fault::old_driver);
  for (const int number : {34, 803, 804}) CHECK(fault_of_cuda_error(number) == cuda_fault::mixed_driver);
  for (const int number : {3, 46, 102, 103, 127, 802, 805, 806, 807, 808, 809})
    CHECK(fault_of_cuda_error(number) == cuda_fault::unavailable);
  for (const int number : {98, 200, 209, 221, 223}) CHECK(fault_of_cuda_error(number) == cuda_fault::no_code);
  for (const int number : {218, 222}) CHECK(fault_of_cuda_error(number) == cuda_fault::new_code);
  CHECK(fault_of_cuda_error(719) == cuda_fault::sticky);
  CHECK(fault_of_cuda_error(4711) == cuda_fault::sticky);
  for (const int number : support::all_cuda_codes) {
    const cuda_fault fault = fault_of_cuda_error(number);
    CHECK((fault == cuda_fault::sticky) == is_sticky_cuda_error(number));
    CHECK(backend::ends_cuda(fault) == (is_sticky_cuda_error(number) || number == 4));
    CHECK_FALSE(backend::remedy_of(fault).empty());
    CHECK(backend::remedy_of(fault).size() < 350);  // an error's sentence has room for it
    const bool may_try_again = backend::remedy_of(fault).find("tried again") != std::string_view::npos;
    CHECK(may_try_again == (fault == cuda_fault::passing));
  }
}

TEST_CASE("the list of sticky numbers agrees with the comments of the CUDA toolkit that is here", "[backend]")
{
  const char* const folder = std::getenv("CHUNKMEM_CUDA_INCLUDE");
  if (folder == nullptr) SKIP("no CUDA toolkit: CHUNKMEM_CUDA_INCLUDE is not set");
  const auto all = enumerators_of(text_of(std::string{folder} + "/driver_types.h"));
  if (all.empty()) SKIP("no driver_types.h with enum cudaError in " << folder);
  REQUIRE(all.size() > 100);
  std::set<int> said;
  for (const enumerator& it : all) {
    CAPTURE(it.name, it.number);
    const auto* const ours = std::ranges::find(support::fake_cuda_codes, it.number, &support::fake_cuda_code::number);
    if (ours != std::end(support::fake_cuda_codes)) CHECK(std::string_view{ours->name} == it.name);
    if (says_the_end(it.comment)) {
      said.insert(it.number);
      CHECK(is_sticky_cuda_error(it.number));
    }
  }
  CHECK(said.size() >= 12);  // else the comments are written in other words now
  for (const int number : {700, 702, 710, 719}) CHECK(said.contains(number));
  // Beyond what the comments say: lost bits, lost contexts, a wait that gave up, and errors without a name.
  const std::set<int> own{214, 220, 709, 909, 999, 10000};
  for (const enumerator& it : all)
    if (is_known_cuda_error(it.number))
      CHECK(is_sticky_cuda_error(it.number) == (said.contains(it.number) || own.contains(it.number)));
}

}  // namespace cuda_errors_test
