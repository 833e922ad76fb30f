// SPDX-License-Identifier: Apache-2.0
// Which part of the chunks do tensors leave unused, for every published shape, compared with other engines?
//
// One frame size for all lists: values and gradients of 16 bits, master weights and both moments of 32. Once only the
// body, and once with vocabulary and positions. The frame is searched from 1/64 to 5/4 of the largest 16-bit tensor of
// the body, or to 64 MiB. Other engines are re-implemented by their rules, and are also judged over whole lists. No
// clock is read; the cost of searches is counted in instructions by callgrind, where it is installed. Then the waste of
// each layout of chunkmem with frames of 1 to 256 MiB. "Ours" is the default layout of a manager.
#include "../callgrind.hpp"
#include "../transfer/planning_figures.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/manager/manager.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "chunk_searches.hpp"
#include "model_tensors.hpp"

namespace cm = chunkmem;
using namespace max_model;

namespace {

constexpr double body_bound = 0.1;  // percent
constexpr double all_bound = 0.6;
constexpr double default_bound = 0.5;
constexpr double mebi = 1'048'576;

template <class Manager>
struct layout_of;
template <class Backend, class Rules, class Layout, class... Others>
struct layout_of<cm::basic_manager<Backend, Rules, Layout, Others...>> {
  using type = Layout;
};
using default_layout = layout_of<cm::manager<cm::backend::host_arena>>::type;

std::vector<cm::bytes> sizes_of(const model_tensors& model, std::uint64_t element)
{
  std::vector<cm::bytes> sizes;
  for (const declared_tensor& it : model.all()) sizes.emplace_back(it.elements * element);
  return sizes;
}

template <class Layout>
cm::chunk_size_search<Layout> search_of(const model_tensors& model)
{
  cm::chunk_size_search<Layout> search;
  search.add(sizes_of(model, 2), 2);
  search.add(sizes_of(model, 4), 3);
  return search;
}

template <class Layout>
double waste_of_values(const model_tensors& model, cm::bytes frame)
{
  cm::chunk_size_search<Layout> values;
  values.add(sizes_of(model, 2));
  return 100 * values.measure(frame).waste();
}

void print_rival(const rival_choice& it, double scale)
{
  if (it.chunk == 0)
    std::printf("  |        none fits");
  else
    std::printf("  | %7.2f @ %7.1f", 100 * it.waste, static_cast<double>(it.chunk) / mebi * scale);
}

/// One line of the table. Returns our waste over all lists [percent].
double measure(const workload::named_transformer& which, bool with_vocabulary)
{
  const workload::transformer_shape& shape = which.shape;
  const model_tensors model{shape, with_vocabulary};
  const std::vector<cm::bytes> values = sizes_of(model, 2);
  const auto found = search_of<default_layout>(model).find(cm::frame_limits::of(values));
  const double ours = 100 * found.waste();
  const cm::bytes largest = cm::frame_limits::largest_of_body(values);
  std::printf("%-12s %-13s %4s  %8.4f %8.4f @ %8.2f %7.2f %6llu  | %8.4f %8.4f", which.family.data(), which.name.data(),
              with_vocabulary ? "all" : "body", ours, waste_of_values<default_layout>(model, found.frame),
              static_cast<double>(found.frame.count()) / mebi,
              static_cast<double>(largest.count()) / static_cast<double>(found.frame.count()),
              static_cast<unsigned long long>(found.evaluations),
              100 * search_of<cm::best_fit_layout>(model).measure(found.frame).waste(),
              100 * search_of<cm::append_layout>(model).measure(found.frame).waste());
  const bool tied = with_vocabulary && shape.ties_embedding;
  print_rival(patrickstar_grid(model.all()), 2);
  print_rival(gemini_search(model.all(), shape.hidden, std::uint64_t{32} << 20), 2);
  print_rival(gemini_search(model.all(), shape.hidden, std::uint64_t{128} << 20), 2);
  print_rival(elixir_search(model.all(), tied ? model.all().front().elements : 0), 2);
  std::printf("\n");
  return ours;
}

/// The waste of a layout over all lists with frames of 1 to 256 MiB.
template <class Layout>
void print_frames(const workload::named_transformer& which, const model_tensors& model)
{
  std::printf("%-12s %-13s %-17s ", which.family.data(), which.name.data(), Layout::name.data());
  auto search = search_of<Layout>(model);
  for (std::uint64_t frame = 1; frame <= 256; frame *= 2)
    std::printf(" %7.3f", 100 * search.measure(cm::bytes{frame << 20}).waste());
  std::printf("\n");
}
void print_frames_of_all()
{
  std::printf("\nWaste in percent over all lists, with vocabulary, with frames of 1, 2, 4 ... 256 MiB:\n");
  for (const workload::named_transformer& it : workload::named_transformers) {
    const model_tensors model{it.shape, true};
    print_frames<default_layout>(it, model);
    print_frames<cm::best_fit_layout>(it, model);
    print_frames<cm::append_layout>(it, model);
  }
}

/// One search of one engine, for callgrind; "none" makes only the model.
int run_one(const std::string& engine, std::size_t which)
{
  if (which >= std::size(workload::named_transformers)) return 2;
  const workload::transformer_shape& shape = workload::named_transformers[which].shape;
  const model_tensors model{shape, true};
  auto ours = search_of<default_layout>(model);
  const auto limits = cm::frame_limits::of(sizes_of(model, 2));
  std::uint64_t result = 0;
  if (engine == "ours") result = ours.find(limits).evaluations;
  if (engine == "gemini") result = gemini_search(model.all(), shape.hidden, std::uint64_t{32} << 20).chunk;
  if (engine == "elixir")
    result = elixir_search(model.all(), shape.ties_embedding ? model.all().front().elements : 0).chunk;
  asm volatile("" : : "r"(result) : "memory");
  return 0;
}

/// Instructions for each tensor of a model, so that models of different depth compare.
void print_costs(const std::string& self)
{
  std::printf("\nInstructions of a whole search for each tensor of the model, with vocabulary:\n");
  for (std::size_t which = 0; which < std::size(workload::named_transformers); ++which) {
    const workload::named_transformer& it = workload::named_transformers[which];
    if (it.name != "GPT2_1B" && it.name != "GPT3_10B") continue;
    const auto tensors = static_cast<double>(model_tensors{it.shape, true}.all().size());
    const double empty = bench::count_instructions(self, "none " + std::to_string(which));
    if (empty < 0) {
      std::printf("LEFT OUT: callgrind (valgrind) is not here; evaluations times tensors stand for it\n");
      return;
    }
    std::printf("%-13s %5.0f tensors", it.name.data(), tensors);
    for (const char* engine : {"ours", "gemini", "elixir"})
      std::printf(
          "   %s %10.0f", engine,
          (bench::count_instructions(self, std::string{engine} + " " + std::to_string(which)) - empty) / tensors);
    std::printf("\n");
  }
}

int measure_all(const std::string& self, bool with_costs)
{
  std::printf(
      "Waste in percent @ size of a frame or 16-bit chunk in MiB. Ours: over all lists, over 16-bit values alone, the "
      "frame,\nframes that the largest tensor of the body would fill, sizes tried; then best_fit and append with that "
      "frame.\n\n");
  std::printf("%-31s  %-41s  | %-17s  | %-17s  | %-17s  | %-17s  | %-17s\n", "", default_layout::name.data(),
              "best_fit   append", "PatrickStar, grid", "Gemini, 32 Mi", "Gemini, 128 Mi", "Elixir");
  double worst[2] = {0, 0};
  for (const bool with_vocabulary : {false, true})
    for (const workload::named_transformer& it : workload::named_transformers)
      worst[with_vocabulary] = std::max(worst[with_vocabulary], measure(it, with_vocabulary));
  print_frames_of_all();
  if (with_costs) print_costs(self);
  std::printf("\nworst: body %.4f %%, bound %.1f; with vocabulary %.4f %%, bounds %.1f and, of the default, %.1f\n",
              worst[0], body_bound, worst[1], all_bound, default_bound);
  return transfer_bench::write_figures(
      "chunk_waste_bench", {{"layout.body_waste_percent", worst[0], "percent", "<=", body_bound},
                            {"layout.all_waste_percent", worst[1], "percent", "<=", all_bound},
                            {"layout.default_waste_percent_worst_searched", worst[1], "percent", "<=", default_bound}});
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc == 1) return measure_all(argv[0], true);
  if (argc == 2) return measure_all(argv[0], false);
  return argc == 3 ? run_one(argv[1], static_cast<std::size_t>(std::atoi(argv[2]))) : 2;
}
