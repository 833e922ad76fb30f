// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/plan_text.hpp>
#include <support/memory_folder.hpp>
#include <support/stored_generation.hpp>

#include <algorithm>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace names_in_messages_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using Catch::Matchers::ContainsSubstring;
using support::memory_folder;

namespace {

/// Ends the line, begins a forged one, and has three kinds of terminal codes.
const std::string hostile = "w\nchunkmem: all is well\r\x1b[2K\u009b1m\u202e";
const std::string harmless = R"(w\x0achunkmem: all is well\x0d\x1b[2K\xc2\x9b1m\xe2\x80\xae)";

/// What an error says; it is one line.
std::string message_of(const std::function<void()>& call)
{
  try {
    call();
  } catch (const cm::error& failed) {
    const std::string text = failed.what();
    for (const char letter : text) CHECK((static_cast<unsigned char>(letter) >= 0x20 && letter != 0x7f));
    CHECK(text.find("\u009b") == text.npos);
    CHECK(text.find("\u202e") == text.npos);
    return text;
  }
  return "nothing was thrown";
}

/// A model of one buffer of this name.
struct named_model {
  explicit named_model(const std::string& name, std::uint64_t size = 4, const std::vector<cm::list_spec>& lists = {})
      : w{m.add<float>({size}, cm::role::buffer)}
  {
    if (!lists.empty()) m.use(lists);
    m.name(w, name);
    m.content().belongs_to(1);
    for (float& it : m.acquire(w, cm::access::write).span()) it = 1;
  }
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::tensor<float> w;
};

/// With one generation, and a plain file of weights.
memory_folder folder_of(const std::string& name)
{
  memory_folder folder;
  named_model model{name};
  (void)checkpoint::save(model.m, folder);
  checkpoint::export_values(model.m, folder, "weights");
  return folder;
}

void write_file(memory_folder& folder, const std::string& name, const std::string& text)
{
  auto file = folder.create(name);
  REQUIRE(file.write(std::as_bytes(std::span{text})) == text.size());
}

}  // namespace

TEST_CASE("names of tensors that a file or a model has are told in one line by a load and an import", "[checkpoint]")
{
  const memory_folder theirs = folder_of(hostile);
  const memory_folder ours = folder_of("w");
  named_model plain{"w"};
  named_model odd{hostile};
  named_model longer{hostile, 5};
  CHECK_THAT(message_of([&] { (void)checkpoint::load(odd.m, ours); }),
             ContainsSubstring("it does not have: " + harmless));
  CHECK_THAT(message_of([&] { (void)checkpoint::load(longer.m, theirs); }),
             ContainsSubstring("another shape: " + harmless));
  CHECK_THAT(message_of([&] { (void)checkpoint::import_values(plain.m, theirs, "weights"); }),
             ContainsSubstring("this model does not have: " + harmless));
  CHECK_THAT(message_of([&] { (void)checkpoint::import_values(longer.m, theirs, "weights"); }),
             ContainsSubstring("another shape: " + harmless));
  memory_folder more = folder_of(hostile);
  small_model both;
  CHECK_THAT(message_of([&] { (void)checkpoint::load(both.m, more); }),
             ContainsSubstring("this checkpoint is not of this model"));
  CHECK(checkpoint::load(odd.m, theirs).number == 1);  // the name itself is no mistake
}

TEST_CASE("names in a manifest are told in one line", "[checkpoint]")
{
  memory_folder folder;
  const std::string states = hostile + "[rank 0 of 2]";
  const std::string table = checkpoint::write_table({{states, cm::dtype::uint8, {4}, 0, 4}});
  checkpoint::generation_writer<memory_folder> writer{folder, 1};
  writer.begin_file(table.size());
  writer.write(std::as_bytes(std::span{table}));
  writer.write(std::as_bytes(std::span{std::string_view{"1234"}}));
  writer.end_file();
  support::stored_generation::commit(writer, {.lists = {{hostile, 7}}, .divided = {{hostile + "2", {3}}}, .run = 1});
  named_model model{hostile};
  CHECK_THAT(message_of([&] { (void)checkpoint::load(model.m, folder); }),
             ContainsSubstring(harmless + "2: a part is missing"));

  memory_folder versions;
  std::vector<cm::list_spec> lists{{hostile, cm::dtype::float32}};
  named_model saved{"w", 4, lists};
  (void)checkpoint::save(saved.m, versions);
  ++lists[0].version;
  named_model other{"w", 4, lists};
  CHECK_THAT(message_of([&] { (void)checkpoint::load(other.m, versions); }),
             ContainsSubstring("another version of a list: " + harmless));
}

TEST_CASE("names of files are told in one line", "[checkpoint]")
{
  memory_folder memory;
  named_model model{"w"};
  write_file(memory, hostile, "123");
  CHECK_THAT(message_of([&] { (void)checkpoint::import_values(model.m, memory, hostile); }),
             ContainsSubstring("shorter than its first number"));
  temporary_folder place;
  cm::io::posix_folder folder{place.path()};
  CHECK_THAT(message_of([&] { (void)checkpoint::import_values(model.m, folder, hostile); }),
             ContainsSubstring("opening " + harmless));
  CHECK_THAT(message_of([&] { cm::io::posix_folder{place.path() + "/a/" + hostile}; }), ContainsSubstring(harmless));
  CHECK_THAT(message_of([&] { (void)checkpoint::export_generation(folder, folder, hostile); }),
             ContainsSubstring("there is no checkpoint"));
}

TEST_CASE("names of profiles and plans, and what is in them, are told in one line", "[checkpoint]")
{
  for (const std::string& text :
       {hostile, "chunkmem profile 1\n" + hostile, "chunkmem profile 2\nupdates_first " + hostile + "\n"}) {
    std::istringstream in{text};
    CHECK_THAT(message_of([&] { (void)cm::profile_text::read(in, hostile); }), ContainsSubstring("of " + harmless));
  }
  std::istringstream in{"chunkmem plan 1\n" + hostile};
  CHECK_THAT(message_of([&] { (void)cm::plan_text::read(in, hostile); }), ContainsSubstring("of " + harmless));
}

TEST_CASE("names that a model gives twice are told in one line, and so are those in details", "[checkpoint]")
{
  memory_folder folder;
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB, .error_details = true}};
  const auto first = m.add<float>({1024}, cm::role::buffer);
  const auto second = m.add<float>({1024}, cm::role::buffer);
  m.name(first, hostile);
  for (float& it : m.acquire(first, cm::access::write).span()) it = 1;
  const auto pin = m.acquire(first, cm::access::read);
  try {
    (void)m.acquire(second, cm::access::write);
    FAIL("two chunks lie in the room of one");
  } catch (const cm::out_of_memory& failed) {
    const std::string details{failed.details()};
    CHECK_THAT(details, ContainsSubstring(R"(w\nchunkmem: all is well\x0d\x1b[2K\xc2\x9b1m\xe2\x80\xae)"));
    CHECK(std::ranges::none_of(
        details, [](char letter) { return static_cast<unsigned char>(letter) < 0x20 && letter != '\n'; }));
    CHECK(details.find("\nchunkmem: all is well") == details.npos);
  }
  CHECK_THAT(message_of([&] {
               m.name(second, hostile);
               (void)checkpoint::save(m, folder);
             }),
             ContainsSubstring("one name") || ContainsSubstring(harmless));
}

}  // namespace names_in_messages_test
