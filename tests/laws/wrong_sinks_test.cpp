// SPDX-License-Identifier: Apache-2.0
#include <conformance/recalling_sink.hpp>
#include <conformance/trace_sink.hpp>

#include "verdict.hpp"

#include <chunkmem/core/policy.hpp>
#include <chunkmem/trace/trace_sink.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace wrong_sinks_test {

using namespace chunkmem;

namespace {

/// Right: keeps the last events and recalls them line by line. Each sink below has one mistake.
class last_events {
 public:
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "last_events";
  void record(const trace_event& event) noexcept { kept_[seen_++ % kept_.size()] = event; }
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines;
    for (std::size_t age = std::min(most, held()); age-- > 0;) lines += line(age);
    return lines;
  }

 protected:
  [[nodiscard]] std::size_t held() const { return std::min(seen_, kept_.size()); }
  /// @param age   0 is the newest
  [[nodiscard]] std::string line(std::size_t age) const { return text(age) + '\n'; }
  [[nodiscard]] std::string text(std::size_t age) const
  {
    const trace_event& event = kept_[(seen_ - 1 - age) % kept_.size()];
    return std::string{name_of(event.what)} + ' ' + std::to_string(event.bytes);
  }
  void forget() { seen_ = 0; }

 private:
  std::vector<trace_event> kept_ = std::vector<trace_event>(12);
  std::size_t seen_ = 0;
};
static_assert(recalling_sink<last_events>);

/// Refuses what it does not know, by an error.
struct throws_at_unknown_kinds : last_events {
  void record(const trace_event& event)
  {
    if (event.what > trace_event_kind::divergence) throw std::invalid_argument{"an event of an unknown kind"};
    last_events::record(event);
  }
};
/// Was given its place in a list of sinks, and no name.
struct nameless : last_events {
  static constexpr std::string_view name = "";
};
/// Counts ages from 0 to `most`.
struct recalls_one_line_too_many : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const { return last_events::recall(most + 1); }
};
/// Writes a heading above the lines.
struct writes_a_heading : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const { return "last events:\n" + last_events::recall(most); }
};
/// Writes an event and its times below each other.
struct writes_two_lines_for_each : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines;
    for (std::size_t age = std::min(most, held()); age-- > 0;) lines += line(age) + "  at some time\n";
    return lines;
  }
};
/// Recalls the newest first.
struct recalls_backwards : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines;
    for (std::size_t age = 0; age < std::min(most, held()); ++age) lines += line(age);
    return lines;
  }
};
/// Recalls the oldest that it has, and not the last ones.
struct recalls_the_oldest : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines;
    for (std::size_t index = 0; index < std::min(most, held()); ++index) lines += line(held() - 1 - index);
    return lines;
  }
};
/// Puts the ends of lines between them.
struct joins_lines : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines = last_events::recall(most);
    if (!lines.empty()) lines.pop_back();
    return lines;
  }
};
/// Gives its events away.
struct recalls_once : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines = last_events::recall(most);
    const_cast<recalls_once*>(this)->forget();  // the instances of the tests are no constants
    return lines;
  }
};
/// Records that it was asked.
struct records_its_recalls : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines = last_events::recall(most);
    const_cast<records_its_recalls*>(this)->record({.what = trace_event_kind::replan, .bytes = most});
    return lines;
  }
};
/// Looks one place behind the newest.
struct passes_the_newest_over : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    std::string lines;
    for (std::size_t age = std::min(most + 1, held()); age-- > 1;) lines += line(age);
    return lines;
  }
};
/// Finds no beginning where more lines are asked for than it has.
struct recalls_nothing_if_asked_for_more : last_events {
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    return most > held() ? std::string{} : last_events::recall(most);
  }
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_recalling_sink(Policy{})};
}
template <class Policy>
laws::verdict judge_as_plain(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_trace_sink(Policy{})};
}

}  // namespace

TEST_CASE("the laws of sinks hold for the last events", "[laws][sink]")
{
  conformance::recalling_sink_laws(last_events{});
}

}  // namespace wrong_sinks_test

const laws::verdicts& laws::wrong_sinks()
{
  using namespace wrong_sinks_test;
  static const verdicts all{
      judge_as_plain<throws_at_unknown_kinds>("record may throw"),
      judge_as_plain<nameless>("a policy without a name"),
      judge<recalls_one_line_too_many>("more lines than were asked for"),
      judge<writes_a_heading>("more lines than were asked for"),
      judge<writes_two_lines_for_each>("more lines than were asked for"),
      judge<recalls_backwards>("the lines are not the last ones with the oldest first"),
      judge<recalls_the_oldest>("the lines are not the last ones with the oldest first"),
      judge<joins_lines>("the last line has no end"),
      judge<recalls_once>("recalling changed what is recalled"),
      judge<records_its_recalls>("recalling changed what is recalled"),
      judge<passes_the_newest_over>("the newest event is not the last line"),
      judge<recalls_nothing_if_asked_for_more>("nothing is recalled though events were recorded"),
  };
  return all;
}
