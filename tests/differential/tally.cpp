// SPDX-License-Identifier: Apache-2.0
#include "tally.hpp"

#include <sstream>

namespace differential {
namespace {

/// A piece of each sentence that a manager's public calls can answer. What is not met in a run may still be legal:
/// `rare` are those that one backend alone says, or that need what programs do not have.
struct known_sentence {
  std::string_view piece;
  bool rare = false;
};

constexpr known_sentence known[] = {
    {"was added after the manager was sealed: declare"},
    {"a list was added after the manager was sealed"},
    {"gradients and optimizer states are made by the manager"},
    {"two lists have one name"},
    {"a master list that is not float32"},
    {"two master lists"},
    {"there is no list named"},
    {"a list that this manager does not have"},
    {"lists of two element types cannot be exchanged"},
    {"a list cannot be exchanged while a pin holds it"},
    {"a master list cannot be exchanged with a list that has more parameters"},
    {"weights with masters cannot be exchanged with their gradients"},
    {"weights with masters cannot be exchanged under gradient::in_place"},
    {"weights cannot be exchanged with another list before their masters are made"},
    {"lists can be exchanged only between iterations"},
    {"lists cannot be exchanged in a rehearsal"},
    {"a 16-bit weight cannot be written inside an iteration"},
    {"a weight cannot be written while its master is pinned"},
    {"a gradient in place was requested while another pin holds the weight"},
    {"a gradient in place of a weight without a master yet"},
    {"a gradient in place of a weight that must first be made again"},
    {"a gradient was requested with an element type that is not its own"},
    {"a weight is pinned while its master is made"},
    {"a gradient was requested after gradient_done"},
    {"a pass was named after its iteration had ended"},
    {"of an iteration that was begun with"},
    {"micro-batches ended after"},
    {"an optimizer step after"},
    {"parameters has a gradient"},
    {"of a stack of"},
    {"a stack of tensors needs at least one layer"},
    {"two registered states have one name"},
    {"a profile was given to a manager in a rehearsal"},
    {"a profile was given to a manager in the middle of an iteration"},
    {"a profile was given for iterations that have been recorded already"},
    {"an agent that this backend does not have"},
    {"the agents of the manager's own copies"},
    {"a tensor was used with a manager that did not make it"},
    {"a gradient or list of a tensor that is not trained"},
    {"the master of a 32-bit parameter"},
    {"a rehearsal inside an iteration or another rehearsal"},
    {"a rehearsal while a pin is held"},
    {"was used after it was released or moved from"},
    {"outlived its manager"},
    {"an iteration has one to 65535 micro-batches"},
    {"a list was acquired with an element type that is not its own"},
    {"a gradient was requested with a pin of another manager"},
    {"a gradient was requested with a pin that holds no parameter"},
    {"gradient_done with a pin of another manager"},
    {"gradient_done while another pin holds the gradient"},
    {"gradient_done of a gradient that was not written"},
    {"gradient_done while a pin holds the gradient"},
    {"a lease of zero bytes"},
    {"a lease on a tier that no backend has"},
    {"an iteration began inside another one"},
    {"a list cannot be exchanged while gradients lie in their weights"},
    {"the gradient list cannot be exchanged under gradient::in_place"},
    {"a shape has at most six extents"},
    {"is in use on the host by"},
    {"is in use on the device by"},
    {"is free and cannot acquire"},
    {"is compute and cannot drop"},
    {"is gradient and cannot acquire"},
    {"is gradient and cannot drop"},
    {"chunk_bytes is"},
    {"gradient::in_place needs 16-bit parameters"},
    {"gradients of several micro-batches cannot add up"},
    {"there is no policy named"},
    {"out of memory on the device tier"},
    {"out of memory on the host tier"},
    {"a copy was told to fail"},
    {"the largest tensor of this model"},
    {"this step"},
    {"was used although its late_updates ended before"},
    {"a profile is not one of this model", true},
};

constexpr const char* state_names[] = {"free", "hold", "compute", "gradient"};
constexpr const char* event_names[] = {"materialize", "acquire", "consume", "release", "drop"};

}  // namespace

int next_of(state from, event what) noexcept
{
  const auto to = [](state next) { return static_cast<int>(next); };
  switch (from) {
    case state::free:
      if (what == event::drop) return to(state::free);
      return what == event::materialize ? to(state::hold) : illegal;
    case state::compute:
      if (what == event::acquire) return to(state::compute);
      if (what == event::consume) return to(state::gradient);
      return what == event::release ? to(state::hold) : illegal;
    case state::gradient: return what == event::release ? to(state::hold) : illegal;
    case state::hold:
      if (what == event::acquire) return to(state::compute);
      return what == event::drop ? to(state::free) : illegal;
  }
  return illegal;
}

void tally::operator+=(const tally& other)
{
  rolled += other.rolled;
  operations += other.operations;
  illegal += other.illegal;
  shortages += other.shortages;
  repeated += other.repeated;
  diverged += other.diverged;
  loads += other.loads;
  for (std::size_t index = 0; index < calls.size(); ++index) calls[index] += other.calls[index];
  for (std::size_t from = 0; from < transitions.size(); ++from)
    for (std::size_t what = 0; what < transitions[from].size(); ++what)
      transitions[from][what] += other.transitions[from][what];
  for (const auto& [piece, count] : other.sentences) sentences[piece] += count;
}

void tally::note_sentence(const std::string& sentence)
{
  for (const known_sentence& it : known)
    if (sentence.find(it.piece) != std::string::npos) {
      ++sentences[it.piece];
      return;
    }
  throw divergence{"an error that is not in the list of sentences: " + sentence};
}

std::string tally::missing(std::uint64_t least) const
{
  std::ostringstream out;
  for (std::size_t from = 0; from < transitions.size(); ++from)
    for (std::size_t what = 0; what < transitions[from].size(); ++what)
      if (next_of(static_cast<state>(from), static_cast<event>(what)) != differential::illegal &&
          transitions[from][what] < least)
        out << state_names[from] << " + " << event_names[what] << ": " << transitions[from][what] << '\n';
  for (const known_sentence& it : known) {
    const auto found = sentences.find(it.piece);
    const std::uint64_t count = found == sentences.end() ? 0 : found->second;
    if (!it.rare && count < least) out << it.piece << ": " << count << '\n';
  }
  return out.str();
}

std::string tally::text() const
{
  std::ostringstream out;
  out << operations << " operations of " << rolled << " rolled, " << illegal << " refused, " << shortages
      << " out of memory, " << repeated << " iterations repeated, " << diverged << " recorded or diverged, " << loads
      << " loads\ncalls:";
  for (std::size_t index = 0; index < calls.size(); ++index) out << ' ' << what_names[index] << ' ' << calls[index];
  out << "\ntransitions:";
  for (std::size_t from = 0; from < transitions.size(); ++from)
    for (std::size_t what = 0; what < transitions[from].size(); ++what)
      if (transitions[from][what] > 0)
        out << ' ' << state_names[from] << '+' << event_names[what] << ' ' << transitions[from][what];
  out << "\nsentences:\n";
  for (const auto& [piece, count] : sentences) out << "  " << count << "  " << piece << '\n';
  return out.str();
}

}  // namespace differential
