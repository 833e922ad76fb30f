// SPDX-License-Identifier: Apache-2.0
// A small network that learned one task, and was saved, is loaded and tuned to another one: all weights, or adapters
// next to frozen weights (LoRA), with whole inputs of its layers or with three tenths of their rows. Prints the loss
// and the peak of the device. Sampled inputs reach nearly the loss of whole ones, and need less memory.
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cm = chunkmem;
namespace act = cm::activation;
using namespace cm::literals;
using manager = cm::manager<cm::backend::host_arena, cm::transfer::no_prefetch>;
using tensor = cm::tensor<float>;
using numbers = std::vector<float>;

constexpr std::size_t layers = 5, width = 20, rank = 4, positions = 4, batch = 32, samples = 256;
constexpr std::size_t rows = batch * positions;

float random_number(std::uint64_t index)  // uniform in [-1, 1)
{
  const auto drawn =
      cm::philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U), 0, 0}, {7, 0});
  return static_cast<float>(static_cast<std::int32_t>(drawn[0])) * 0x1p-31F;
}
/// out += left right, left^T right, and left right^T, on rows of row-major matrices.
void add_product(const float* left, const float* right, float* out, std::size_t m, std::size_t k, std::size_t n)
{
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t at = 0; at < k; ++at)
      for (std::size_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + at] * right[at * n + j];
}
void add_product_of_rows(const float* left, const float* right, float* out, std::size_t count, std::size_t m,
                         std::size_t n)
{
  for (std::size_t row = 0; row < count; ++row)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) out[i * n + j] += left[row * m + i] * right[row * n + j];
}
void add_product_transposed(const float* left, const float* right, float* out, std::size_t m, std::size_t k,
                            std::size_t n)
{
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t at = 0; at < k; ++at) out[i * n + j] += left[i * k + at] * right[j * k + at];
}

/// The layers of a network on plain arrays. The outputs of such a network are the targets of a task.
numbers answer(const std::array<numbers, layers>& weights, numbers x)
{
  for (std::size_t layer = 0; layer < layers; ++layer) {
    numbers z(x.size());
    add_product(x.data(), weights[layer].data(), z.data(), x.size() / width, width, width);
    if (layer + 1 < layers)
      for (float& each : z) each = std::max(0.0F, each);
    x = z;
  }
  return x;
}

struct settings {
  bool adapters = false;  ///< weights are frozen, and each has two narrow trained matrices
  bool samples = false;   ///< three tenths of the rows of each input are kept
};

class network {
 public:
  explicit network(const settings& how) : how_{how}
  {
    m_.use(adam_);
    std::array<act::norm_cache::site, layers> sites{};
    for (std::size_t layer = 0; layer < layers; ++layer)
      sites[layer] = norms_.add("layer " + std::to_string(layer), positions);
    if (how.samples) m_.use(norms_);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::string name = "layer " + std::to_string(layer);
      weights_[layer] = m_.add<float>({width, width}, how.adapters ? cm::role::frozen : cm::role::parameter);
      m_.name(weights_[layer], name);
      if (how.adapters) {
        down_[layer] = m_.add<float>({width, rank}, cm::role::parameter);
        up_[layer] = m_.add<float>({rank, width}, cm::role::parameter);
        m_.name(down_[layer], name + " down");
        m_.name(up_[layer], name + " up");
        narrow_[layer] = m_.add<float>({rows, rank}, cm::role::activation);
      }
      inputs_[layer] = m_.add<float>({rows, width}, cm::role::activation);
      positive_[layer] = m_.add<std::uint8_t>({rows * width / 8}, cm::role::activation);
      if (how.samples)
        kept_[layer] = std::make_unique<act::sampled_input<manager, float>>(
            m_, norms_, sites[layer], act::sampling_options{.rows = rows, .width = width, .ratio = 0.3},
            std::initializer_list<cm::tensor_handle>{how.adapters ? down_[layer] : weights_[layer]});
    }
    output_ = m_.add<float>({rows, width}, cm::role::activation);
    for (std::size_t layer = 0; layer < layers && how.adapters; ++layer) {
      std::uint64_t next = 1'000'000 * (layer + 1);
      for (float& each : m_.acquire(down_[layer], cm::access::write).span()) each = 0.2F * random_number(next++);
      for (float& each : m_.acquire(up_[layer], cm::access::write).span()) each = 0;
    }
  }

  void start_from(const std::array<numbers, layers>& start)
  {
    for (std::size_t layer = 0; layer < layers; ++layer)
      std::ranges::copy(start[layer], m_.acquire(weights_[layer], cm::access::write).span().begin());
  }
  /// Weights alone, without adapters: the file of any network of these layers.
  void save(cm::io::posix_folder& folder) { cm::checkpoint::export_values(m_, folder, "network.safetensors"); }
  /// Adapters, which the file does not have, stay as they are.
  void load(const cm::io::posix_folder& folder)
  {
    cm::checkpoint::import_values(m_, folder, "network.safetensors", {.takes_part = how_.adapters});
  }

  /// @return   the loss before the step
  double step(std::uint64_t step, std::span<const std::uint64_t> numbers_of, const numbers& x, const numbers& wanted)
  {
    const auto iteration = m_.iteration();
    now_ = {.step = step, .samples = numbers_of};
    std::ranges::copy(x, m_.acquire(inputs_[0], cm::access::write).span().begin());
    for (std::size_t layer = 0; layer < layers; ++layer) forward(layer);
    numbers slope(rows * width);
    double loss = 0;
    {
      const auto y = m_.acquire(output_, cm::access::read);
      for (std::size_t at = 0; at < slope.size(); ++at) {
        slope[at] = (y.span()[at] - wanted[at]) / rows;
        loss += 0.5 * rows * double{slope[at]} * double{slope[at]};
      }
    }
    m_.drop(output_);
    for (std::size_t layer = layers; layer-- > 0;) backward(layer, slope);
    cm::optimizer::step(m_, adam_, {.learning_rate = how_.adapters ? 1e-2F : 3e-3F});
    if (how_.samples) norms_.commit();
    return loss;
  }
  [[nodiscard]] cm::bytes peak() const { return m_.report().peak[cm::tier::device]; }

 private:
  void forward(std::size_t layer)
  {
    {
      const auto x = m_.acquire(inputs_[layer], cm::access::read);
      const auto w = m_.acquire(weights_[layer], cm::access::read);
      const auto y = m_.acquire(layer + 1 < layers ? inputs_[layer + 1] : output_, cm::access::write);
      std::ranges::fill(y.span(), 0.0F);
      add_product(x.data(), w.data(), y.data(), rows, width, width);
      if (how_.adapters) {
        const auto u = m_.acquire(narrow_[layer], cm::access::write);
        std::ranges::fill(u.span(), 0.0F);
        add_product(x.data(), m_.acquire(down_[layer], cm::access::read).span().data(), u.data(), rows, width, rank);
        add_product(u.data(), m_.acquire(up_[layer], cm::access::read).span().data(), y.data(), rows, rank, width);
      }
      const auto bits = m_.acquire(positive_[layer], cm::access::write);
      std::ranges::fill(bits.span(), std::uint8_t{0});
      for (std::size_t at = 0; at < rows * width; ++at) {
        const bool is_on = layer + 1 == layers || y.span()[at] > 0;
        if (is_on) bits.span()[at / 8] |= static_cast<std::uint8_t>(1U << at % 8);
        if (!is_on) y.span()[at] = 0;
      }
    }
    if (how_.samples) kept_[layer]->keep(now_, inputs_[layer]);  // the input itself is dropped
  }
  void backward(std::size_t layer, numbers& slope)
  {
    {
      const auto bits = m_.acquire(positive_[layer], cm::access::read);
      for (std::size_t at = 0; at < slope.size(); ++at)
        if ((bits.span()[at / 8] >> at % 8 & 1U) == 0) slope[at] = 0;
    }
    m_.drop(positive_[layer]);
    numbers back(rows * width), narrow(how_.adapters ? rows * rank : 0);
    add_product_transposed(slope.data(), m_.acquire(weights_[layer], cm::access::read).span().data(), back.data(), rows,
                           width, width);
    if (how_.adapters) {
      add_product_transposed(slope.data(), m_.acquire(up_[layer], cm::access::read).span().data(), narrow.data(), rows,
                             width, rank);
      add_product_transposed(narrow.data(), m_.acquire(down_[layer], cm::access::read).span().data(), back.data(), rows,
                             rank, width);
      const auto u = m_.acquire(narrow_[layer], cm::access::read);
      gradient(up_[layer], u.data(), slope.data(), rows, rank, width);
    }
    if (how_.adapters) m_.drop(narrow_[layer]);
    const tensor trained = how_.adapters ? down_[layer] : weights_[layer];
    const std::size_t outputs = how_.adapters ? rank : width;
    const numbers& of_output = how_.adapters ? narrow : slope;
    if (how_.samples) {
      act::sampled(
          *kept_[layer], now_, cm::on_this_thread,
          act::linear_slope{std::span{of_output}, outputs, [] {},  // done above
                            [&](const auto& it) { gradient(trained, it.rows, it.slopes, it.count, width, outputs); }});
    } else {
      const auto x = m_.acquire(inputs_[layer], cm::access::read);
      gradient(trained, x.data(), of_output.data(), rows, width, outputs);
    }
    if (!how_.samples) m_.drop(inputs_[layer]);
    slope = std::move(back);
  }
  void gradient(tensor of, const float* left, const float* right, std::size_t count, std::size_t m, std::size_t n)
  {
    auto g = m_.gradient(m_.acquire(of, cm::access::read));
    if (g.beta() == 0) std::ranges::fill(g.span(), 0.0F);
    add_product_of_rows(left, right, g.data(), count, m, n);
    m_.gradient_done(std::move(g));
  }

  settings how_;
  cm::backend::host_arena memory_{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  manager m_{memory_, {.chunk_bytes = 1_KiB}};
  cm::optimizer::adam adam_;
  act::norm_cache norms_{{.name = "sampling", .samples = samples, .seed = 5}};
  std::array<tensor, layers> weights_, down_, up_, narrow_, inputs_;
  std::array<cm::tensor<std::uint8_t>, layers> positive_;
  std::array<std::unique_ptr<act::sampled_input<manager, float>>, layers> kept_;
  tensor output_;
  act::sampled_batch now_;
};

struct result {
  double first = 0, last = 0;  ///< losses, of the first step and of the last epoch
  std::uint64_t peak = 0;
};

result train(network& net, const std::array<numbers, layers>& task, std::uint64_t epochs)
{
  result found;
  std::array<std::uint64_t, batch> now{};
  numbers x(rows * width);
  for (std::uint64_t step = 0; step < epochs * (samples / batch); ++step) {
    const std::uint64_t epoch = step / (samples / batch), part = step % (samples / batch);
    for (std::size_t at = 0; at < batch; ++at) {  // shuffled: an odd factor and an offset for each epoch
      now[at] = ((part * batch + at) * (2 * epoch + 1) + epoch * 17) % samples;
      const float size = now[at] % 4 == 0 ? 2.0F : 0.5F;  // a quarter of the samples has most of the gradient
      for (std::size_t i = 0; i < positions * width; ++i)
        x[at * positions * width + i] = size * random_number(now[at] * positions * width + i);
    }
    const double loss = net.step(step, now, x, answer(task, x));
    if (step == 0) found.first = loss;
    if (epoch + 1 == epochs) found.last += loss / (samples / batch);
  }
  found.peak = net.peak().count();
  return found;
}

std::array<numbers, layers> made_network(std::uint64_t seed, float share, const std::array<numbers, layers>& from)
{
  std::array<numbers, layers> made;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    made[layer].resize(width * width);
    for (std::size_t at = 0; at < width * width; ++at) {
      const float fresh = 0.45F * random_number(seed * 100'000'000 + layer * 100'000 + at);
      made[layer][at] = share * fresh + (from[layer].empty() ? 0 : from[layer][at]);
    }
  }
  return made;
}

/// Exists as long as this run.
class temporary_folder {
 public:
  temporary_folder() : path_{(std::filesystem::temp_directory_path() / "chunkmem_fine_tuning_XXXXXX").string()}
  {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error{"no folder can be made at " + path_};
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder()
  {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int main()
{
  const temporary_folder saved;
  cm::io::posix_folder folder{saved.path()};
  const auto first_task = made_network(11, 1, {});
  const auto second_task = made_network(12, 0.3F, first_task);
  network base{{}};
  base.start_from(made_network(13, 0.5F, first_task));
  const result learned = train(base, first_task, 4);
  base.save(folder);
  std::cout << "the first task: loss " << learned.first << ", then " << learned.last << '\n';
  bool is_good = learned.last < 0.5 * learned.first;
  for (const bool adapters : {false, true}) {
    network exact{{.adapters = adapters}}, sampled{{.adapters = adapters, .samples = true}};
    exact.load(folder);
    sampled.load(folder);
    const result whole = train(exact, second_task, 5);
    const result some = train(sampled, second_task, 5);
    const double gain = (some.first - some.last) / (whole.first - whole.last);
    std::cout << (adapters ? "adapters" : "all weights") << ": loss " << whole.first << ", then " << whole.last
              << " in " << whole.peak << " B; with sampled inputs " << some.last << " in " << some.peak << " B, "
              << static_cast<int>(100 * gain) << " % of the gain\n";
    is_good = is_good && whole.last < 0.7 * whole.first && gain > 0.9 && some.peak < whole.peak;
  }
  return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
