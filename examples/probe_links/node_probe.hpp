// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "median.hpp"
#include "node_places.hpp"

#include <chunkmem/collective/message_work.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/workload/machine.hpp>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace probe_links {

using chunkmem::configurator::cluster_node;

/// The rows of the square matrices whose products are measured.
inline constexpr std::array<std::size_t, 5> product_widths{16, 32, 64, 128, 256};
/// The FLOP of a product of two of them.
[[nodiscard]] constexpr double product_flops(std::size_t width) noexcept
{
  return 2.0 * static_cast<double>(width * width * width);
}

/// The measured rates of one process as a device, on the CPU. All processes measure at the same time.
struct device_numbers {
  std::array<double, product_widths.size()> flops{};  ///< of products of each width [1/s]
  double copies = 0;                                  ///< [B/s]
  double updates = 0;                                 ///< [1/s]
  double memory = 0;                                  ///< of its computer [B]
  chunkmem::collective::message_work messages{};

  static constexpr std::size_t count = product_widths.size() + 5;
  [[nodiscard]] std::vector<double> words() const
  {
    std::vector<double> all{flops.begin(), flops.end()};
    for (const double it : {copies, updates, memory, messages.seconds_per_message, messages.seconds_per_byte})
      all.push_back(it);
    return all;
  }
  [[nodiscard]] static device_numbers of(const double* words)
  {
    device_numbers all;
    std::copy_n(words, all.flops.size(), all.flops.begin());
    words += all.flops.size();
    all.copies = words[0];
    all.updates = words[1];
    all.memory = words[2];
    all.messages = {words[3], words[4]};
    return all;
  }
};

/// The source of the numbers of nodes, for the file.
inline constexpr const char* measured_source =
    "probe_links on the CPU, a thread for each device: FLOP of plain products of float matrices that the "
    "compiler vectorises, the efficiency of smaller ones beside products of 256 x 256 numbers, copies by memcpy, "
    "updates by the library's Adam, work of messages from the processor time of gathers, "
    "memory of the system, no disk";

namespace detail {

/// The median of five runs, each of 20 ms or more. @return   [1/s]
template <class Work>
[[nodiscard]] double rate_of(double amount, Work work)
{
  using clock = std::chrono::steady_clock;
  std::vector<double> rates;
  work();  // touches pages and caches
  while (rates.size() < 5) {
    const auto begin = clock::now();
    double seconds = 0;
    double runs = 0;
    for (; seconds < 0.02; seconds = std::chrono::duration<double>(clock::now() - begin).count(), ++runs) work();
    rates.push_back(amount * runs / seconds);
  }
  return median(rates);
}

/// A plain product of float matrices. The innermost loop goes over rows of constant length, so compilers vectorise it.
template <std::size_t width>
class matrix_product {
 public:
  void run() noexcept
  {
    std::ranges::fill(product_, 0.0F);
    for (std::size_t row = 0; row < width; ++row) {
      float* const sums = product_.data() + row * width;
      for (std::size_t inner = 0; inner < width; ++inner) {
        const float factor = left_[row * width + inner];
        const float* const others = right_.data() + inner * width;
        for (std::size_t column = 0; column < width; ++column) sums[column] += factor * others[column];
      }
    }
    seen_ = product_[width + 1];  // so that no compiler removes the product
  }

 private:
  std::vector<float> left_ = std::vector<float>(width * width, 0.5F);
  std::vector<float> right_ = std::vector<float>(width * width, 0.25F);
  std::vector<float> product_ = std::vector<float>(width * width);
  volatile float seen_ = 0;
};

/// The rate of products of each width [1/s].
[[nodiscard]] inline std::array<double, product_widths.size()> matrix_flops()
{
  const auto measure = []<std::size_t... index>(std::index_sequence<index...>) {
    return std::array{[] {
      matrix_product<product_widths[index]> product;
      return rate_of(product_flops(product_widths[index]), [&] { product.run(); });
    }()...};
  };
  return measure(std::make_index_sequence<product_widths.size()>{});
}

[[nodiscard]] inline double copy_rate()
{
  constexpr std::size_t size = std::size_t{32} << 20;  // more than a core's part of a cache
  const std::vector<std::byte> from(size, std::byte{1});
  std::vector<std::byte> to(size);
  return rate_of(double{size}, [&] {
    std::memcpy(to.data(), from.data(), size);
    asm volatile("" : : "r"(to.data()) : "memory");  // so that no compiler removes the copy
  });
}

[[nodiscard]] inline double update_rate()
{
  constexpr std::size_t elements = std::size_t{2} << 20;
  std::vector<float> parameters(elements, 1.0F);
  std::vector<float> momentum(elements);
  std::vector<float> variance(elements);
  const std::vector<float> gradients(elements, 0.5F);
  const chunkmem::optimizer::adam adam;
  const chunkmem::optimizer::update_spans spans{
      .parameter = parameters, .gradient = gradients, .lists = {momentum, variance}};
  return rate_of(double{elements}, [&] { adam.update(spans, {.learning_rate = 1e-3F}); });
}

/// The memory of this computer, or of this container where that is less [bytes].
[[nodiscard]] inline double memory_size()
{
  const double whole = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  std::ifstream limit_file{"/sys/fs/cgroup/memory.max"};  // "max" where there is no limit
  double limit = 0;
  return limit_file >> limit && limit > 0 ? std::min(whole, limit) : whole;
}

}  // namespace detail

/// @throws std::bad_alloc   no memory for the copies and updates
[[nodiscard]] inline device_numbers measure_device()
{
  return {detail::matrix_flops(), detail::copy_rate(), detail::update_rate(), detail::memory_size()};
}

namespace detail {

/// A node from the numbers of its devices, which are on the CPU too: device and host share the node's memory.
/// @throws problem   devices have more memory than the node
[[nodiscard]] inline cluster_node measured_node(const std::vector<device_numbers>& devices, std::uint32_t sharing,
                                                std::optional<std::uint64_t> device_bytes)
{
  std::array<std::vector<double>, product_widths.size()> flops;
  std::vector<double> copies, updates, of_message, of_byte;
  cluster_node node;
  for (const device_numbers& it : devices) {
    for (std::size_t width = 0; width < flops.size(); ++width) flops[width].push_back(it.flops[width]);
    copies.push_back(it.copies);
    updates.push_back(it.updates);
    of_message.push_back(it.messages.seconds_per_message);
    of_byte.push_back(it.messages.seconds_per_byte);
    node.host_memory_bytes_per_second += 2 * it.copies;  // a copy reads and writes
    node.host_updates_per_second += it.updates;
  }
  node.devices = static_cast<std::uint32_t>(devices.size());
  node.device_flops_per_second = median(flops.back());
  for (std::size_t width = 0; width < flops.size(); ++width)
    node.product_curve.push_back(
        {.flops = product_flops(product_widths[width]), .part = median(flops[width]) / node.device_flops_per_second});
  node.to_device_bytes_per_second = node.to_host_bytes_per_second = median(copies);
  node.device_updates_per_second = median(updates);
  node.message_work = {.seconds_per_message = median(of_message), .seconds_per_byte = median(of_byte)};
  // Nodes of one computer share its memory.
  const auto memory = static_cast<std::uint64_t>(devices.front().memory * node.devices / sharing);
  const std::uint64_t of_device = device_bytes.value_or(memory / node.devices / 2);
  if (of_device >= memory / node.devices)
    throw problem{"--device-bytes " + std::to_string(of_device) + " leaves the host nothing: a node has " +
                  std::to_string(memory) + " B for its devices (" + std::to_string(node.devices) + ") and its host"};
  node.device_bytes = chunkmem::bytes{of_device};
  node.host_bytes = chunkmem::bytes{memory - of_device * node.devices};
  return node;
}

/// Two nodes whose numbers differ by less than 5 % are of one kind. The work of messages and the efficiency of
/// small products are not compared: they vary more, and differ where processors differ.
[[nodiscard]] inline bool are_alike(const cluster_node& one, const cluster_node& other)
{
  const auto near = [](double left, double right) { return std::abs(left - right) < 0.05 * std::max(left, right); };
  const auto size = [](chunkmem::bytes it) { return static_cast<double>(it.count()); };
  return one.devices == other.devices && near(size(one.device_bytes), size(other.device_bytes)) &&
         near(size(one.host_bytes), size(other.host_bytes)) &&
         near(one.device_flops_per_second, other.device_flops_per_second) &&
         near(one.to_device_bytes_per_second, other.to_device_bytes_per_second) &&
         near(one.host_memory_bytes_per_second, other.host_memory_bytes_per_second) &&
         near(one.host_updates_per_second, other.host_updates_per_second) &&
         near(one.device_updates_per_second, other.device_updates_per_second);
}

}  // namespace detail

/// The nodes from the numbers of all ranks. A kind has the name of its first node.
/// @param words   of all ranks, each with device_numbers::count
/// @throws problem   devices have more memory than their node
[[nodiscard]] inline std::vector<cluster_node> measured_nodes(const node_places& places,
                                                              const std::vector<double>& words,
                                                              std::optional<std::uint64_t> device_bytes)
{
  std::vector<cluster_node> nodes;
  for (std::uint32_t node = 0; node < places.nodes(); ++node) {
    std::vector<device_numbers> devices;
    for (std::uint32_t place = 0; place < places.devices[node]; ++place)
      devices.push_back(device_numbers::of(&words[device_numbers::count * (places.first_of[node] + place)]));
    cluster_node made = detail::measured_node(devices, places.sharing[node], device_bytes);
    made.kind = "node-" + std::to_string(node);
    const auto like = std::ranges::find_if(nodes, [&](const cluster_node& it) { return detail::are_alike(it, made); });
    nodes.push_back(like == nodes.end() ? made : *like);
  }
  return nodes;
}

/// The nodes as a machine's file describes them. @throws problem   nodes have other numbers of devices
[[nodiscard]] inline std::vector<cluster_node> described_nodes(const node_places& places,
                                                               const chunkmem::workload::machine& machine,
                                                               std::optional<std::uint64_t> device_bytes)
{
  for (std::uint32_t node = 0; node < places.nodes(); ++node)
    if (places.devices[node] != machine.devices)
      throw problem{"node " + std::to_string(node) + " has " + std::to_string(places.devices[node]) +
                    " processes, and a node of the machine \"" + machine.name + "\" has " +
                    std::to_string(machine.devices) + " devices (start one process for each device)"};
  const cluster_node node{.kind = "node",
                          .devices = machine.devices,
                          .device_bytes = device_bytes ? chunkmem::bytes{*device_bytes} : machine.device_bytes,
                          .host_bytes = machine.host_bytes,
                          .device_flops_per_second = machine.rates.device_flops_per_second,
                          .to_device_bytes_per_second = machine.rates.to_device_bytes_per_second,
                          .to_host_bytes_per_second = machine.rates.to_host_bytes_per_second,
                          .host_memory_bytes_per_second = machine.rates.host_memory_bytes_per_second,
                          .host_updates_per_second = machine.rates.host_updates_per_second,
                          .device_updates_per_second = machine.rates.device_updates_per_second};
  return std::vector<cluster_node>(places.nodes(), node);
}

}  // namespace probe_links
