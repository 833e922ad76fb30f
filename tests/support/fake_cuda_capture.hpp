// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_work.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// Work that is recorded and not run: the nodes of a graph and their predecessors.
struct fake_capture {
  fake_stream* origin = nullptr;
  std::thread::id owner;
  bool is_broken = false;  ///< a rule was broken: nothing more is recorded, and the end gives no graph
  bool is_over = false;
  std::vector<fake_node> nodes;
  std::vector<fake_stream*> members;
};

/// The open captures, and their rules. Mode: thread-local.
///
/// @threads   one at a time: the fake's lock is held
class fake_captures {
 public:
  int begin(fake_stream& stream)
  {
    if (stream.capture != nullptr) return fake_code::illegal_state;
    const auto fresh = std::make_shared<fake_capture>();
    fresh->origin = &stream;
    fresh->owner = std::this_thread::get_id();
    join(stream, fresh, {});
    open_.push_back(fresh);
    return fake_code::success;
  }

  /// A new node at the end of a capturing stream, for the caller to fill in; null where the capture is broken.
  static fake_operation* append(fake_stream& stream, fake_work kind)
  {
    fake_capture& it = *stream.capture;
    if (it.is_broken) return nullptr;
    fake_node& fresh = it.nodes.emplace_back();
    fresh.after = std::exchange(stream.tail, {it.nodes.size() - 1});
    fresh.work.kind = kind;
    return &fresh.work;
  }

  static int record(fake_event& event, fake_stream& stream)
  {
    if (stream.capture->is_broken) return fake_code::capture_invalidated;
    event.capture = stream.capture;
    event.nodes = stream.tail;
    event.point = {};
    return fake_code::success;
  }

  /// A wait for a captured event, or of a capturing stream.
  static int wait(fake_stream& stream, const fake_event& event)
  {
    if (stream.capture != nullptr && stream.capture->is_broken) return fake_code::capture_invalidated;
    if (event.capture == nullptr) {
      if (event.point.stream == nullptr) return fake_code::success;
      stream.capture->is_broken = true;
      return fake_code::capture_isolation;
    }
    if (event.capture->is_over) {
      if (stream.capture == nullptr) return fake_code::captured_event;
      stream.capture->is_broken = true;
      return fake_code::capture_isolation;
    }
    if (event.capture->is_broken) return fake_code::capture_invalidated;
    if (stream.capture == nullptr) {
      join(stream, event.capture, event.nodes);
    } else if (stream.capture != event.capture) {
      stream.capture->is_broken = event.capture->is_broken = true;
      return fake_code::capture_merge;
    } else {
      for (const std::size_t node : event.nodes)
        if (std::ranges::find(stream.tail, node) == stream.tail.end()) stream.tail.push_back(node);
    }
    return fake_code::success;
  }

  /// Ends the capture that began on a stream. Streams leave it, whatever the result, unless it is 401, 903 or 908.
  int end(fake_stream& stream, std::vector<fake_node>& nodes)
  {
    const auto it = stream.capture;
    if (it == nullptr) return fake_code::illegal_state;
    if (it->origin != &stream) {
      it->is_broken = true;
      return fake_code::capture_unmatched;
    }
    if (it->owner != std::this_thread::get_id()) return fake_code::capture_wrong_thread;
    const bool is_joined = covers_all(it->nodes, stream.tail);
    for (fake_stream* const member : it->members) {
      member->capture.reset();
      member->tail.clear();
    }
    it->is_over = true;
    std::erase(open_, it);
    if (it->is_broken) return fake_code::capture_invalidated;
    if (!is_joined) return fake_code::capture_unjoined;
    nodes = std::move(it->nodes);
    return fake_code::success;
  }

  /// Breaks the captures that the calling thread began; false where there are none.
  bool break_own()
  {
    bool found = false;
    for (const auto& it : open_)
      if (it->owner == std::this_thread::get_id()) it->is_broken = found = true;
    return found;
  }

 private:
  static void join(fake_stream& stream, const std::shared_ptr<fake_capture>& it, const std::vector<std::size_t>& nodes)
  {
    stream.capture = it;
    stream.tail = nodes;
    it->members.push_back(&stream);
  }

  /// Whether every node is, or comes before, one of `last`.
  static bool covers_all(const std::vector<fake_node>& nodes, const std::vector<std::size_t>& last)
  {
    std::vector<bool> is_covered(nodes.size());
    for (const std::size_t node : last) is_covered[node] = true;
    for (std::size_t i = nodes.size(); i-- > 0;)  // a node follows only earlier ones
      if (is_covered[i])
        for (const std::size_t earlier : nodes[i].after) is_covered[earlier] = true;
    return std::ranges::find(is_covered, false) == is_covered.end();
  }

  std::vector<std::shared_ptr<fake_capture>> open_;
};

}  // namespace support
