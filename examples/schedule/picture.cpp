// SPDX-License-Identifier: Apache-2.0
#include "picture.hpp"

#include "number_text.hpp"
#include "rows.hpp"

#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace schedule_example {

namespace pipeline = chunkmem::pipeline;
using pipeline::operation_kind;

namespace {

// In units of the picture, which are pixels in an unscaled picture.
constexpr double left = 66;
constexpr double right = 18;
constexpr double top = 62;
constexpr double row_height = 26;
constexpr double row_step = 36;
constexpr double aside_height = 6;  // of a concurrent update, below the runs
constexpr double below = 44;        // the axis
constexpr double cell_width = 20;
constexpr double widest = 1600;  // of all runs
constexpr double digit_width = 6.5;
constexpr double letter_width = 6.3;  // about, of the legend's font

constexpr std::uint32_t shade_count = 3;

/// The look of a kind: its letter in class names, its word in the legend, its shades.
struct look {
  char letter = 'f';
  std::string_view word{};
  std::array<std::string_view, shade_count> fills{};
};
constexpr std::array<look, 5> looks{{
    {'f', "forward", {"#8fb8f0", "#bcd6f8", "#5e93dc"}},
    {'b', "backward", {"#8acb96", "#bce3c3", "#56a868"}},
    {'w', "gradients of the weights", {"#f3b067", "#f9d5a9", "#dc8d36"}},
    {'r', "forward again", {"#c3c7cd", "#dfe2e6", "#9ea4ad"}},
    {'u', "update", {"#3b4252", "#5d6678", "#252a36"}},
}};
std::size_t look_of(operation_kind kind)
{
  switch (kind) {
    case operation_kind::forward: return 0;
    case operation_kind::backward:
    case operation_kind::backward_input: return 1;
    case operation_kind::backward_weight: return 2;
    case operation_kind::recompute: return 3;
    default: return 4;
  }
}

/// Text between tags. A schedule's name may have any bytes.
std::string escaped(std::string_view text)
{
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += letter >= ' ' && letter <= '~' ? letter : '?';
    }
  }
  return out;
}

/// A coordinate: two decimals at most.
std::string at(double value)
{
  std::string text = fixed_text(value, 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

/// A step of the axis: 1, 2 or 5 times a power of ten, so that its numbers have room.
double tick_seconds(double pixels_per_second)
{
  constexpr double least = 50;
  const double power = std::pow(10, std::floor(std::log10(least / pixels_per_second)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power * pixels_per_second >= least) return factor * power;
  return 10 * power;
}

class svg_picture {
 public:
  explicit svg_picture(const simulation& it)
      : it_{it},
        bars_{bars_of(it)},
        scale_{std::min(cell_width / cell_seconds(bars_), widest / it.times.seconds)},
        height_{top + row_step * it.plan.stage_count() + below}
  {
    for (const bar& each : bars_) shades_ = std::max(shades_, shade_of(each) + 1);
    title_ = title_of(it) + ". " + short_text(it.times.seconds) + " s, bubble rate " +
             fixed_text(std::max(0.0, 100 * it.times.bubble_rate()), 1) + " %";
  }

  [[nodiscard]] std::string text()
  {
    draw_legend();  // sets the least width of the picture
    const std::string legend = std::exchange(text_, {});
    draw_head();
    text_ += legend;
    draw_stages();
    draw_runs();
    draw_axis();
    return text_ + "</svg>\n";
  }

 private:
  /// Runs differ where they read another version of the weights or run another part of the stage.
  [[nodiscard]] static std::uint32_t shade_of(const bar& it)
  {
    return it.step.kind == operation_kind::update ? 0 : (it.part_of_stage + it.step.version) % shade_count;
  }
  [[nodiscard]] double x_of(double seconds) const { return left + scale_ * seconds; }

  void rect(std::string_view classes, double x, double y, double width, double height)
  {
    text_.append("<rect class=\"").append(classes).append("\" x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"");
    text_ += at(width) + "\" height=\"" + at(height) + "\"/>\n";
  }
  void words(std::string_view classes, double x, double y, std::string_view text)
  {
    text_.append("<text");
    if (!classes.empty()) text_.append(" class=\"").append(classes).append("\"");
    text_ += " x=\"" + at(x) + "\" y=\"" + at(y) + "\">" + escaped(text) + "</text>\n";
  }

  void draw_head()
  {
    const double title_width = letter_width * static_cast<double>(title_.size()) * 1.1;
    const double width = std::max({x_of(it_.times.seconds), 16 + title_width, legend_end_}) + right;
    text_ += "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + at(width) + "\" height=\"" + at(height_) +
             "\" viewBox=\"0 0 " + at(width) + " " + at(height_) + "\" role=\"img\">\n<title>" + escaped(title_) +
             "</title>\n<style>\ntext { font: 12px sans-serif; fill: #1f2328; }\n.title { font-size: 14px; }\n"
             ".n { font-size: 11px; text-anchor: middle; }\n.u { fill: #ffffff; }\n.mid { text-anchor: middle; }\n"
             ".back { fill: #ffffff; stroke: #d0d7de; }\n.idle { fill: #eff1f4; }\n.tick { stroke: #59636e; }\n"
             ".run { stroke: #ffffff; }\n";
    for (const look& each : looks)
      for (std::uint32_t shade = 0; shade < shades_; ++shade)
        if (uses(each)) text_ += "." + class_of(each, shade) + " { fill: " + std::string{each.fills[shade]} + "; }\n";
    text_ += "</style>\n";
    rect("back", 0.5, 0.5, width - 1, height_ - 1);
    words("title", 16, 24, title_);
  }

  [[nodiscard]] static std::string class_of(const look& it, std::uint32_t shade)
  {
    return it.letter + std::to_string(shade);
  }
  [[nodiscard]] bool uses(const look& it) const
  {
    return std::ranges::any_of(bars_, [&](const bar& each) { return &looks[look_of(each.step.kind)] == &it; });
  }
  [[nodiscard]] bool has_weight_runs() const { return uses(looks[2]); }

  void draw_legend()
  {
    legend_end_ = 16;
    const auto swatch = [&](const look& it, std::uint32_t shade) {
      rect("run " + class_of(it, shade), legend_end_, 36, 14, 14);
      legend_end_ += 16;
    };
    const auto say = [&](std::string_view text) {
      words("", legend_end_ + 3, 47, text);
      legend_end_ += 3 + letter_width * static_cast<double>(text.size()) + 16;
    };
    text_ += "<g id=\"legend\">\n";
    for (const look& it : looks) {
      if (!uses(it)) continue;
      swatch(it, 0);
      say(&it == &looks[1] && has_weight_runs() ? "gradient of the input" : it.word);
    }
    if (shades_ > 1) {
      for (std::uint32_t shade = 0; shade < shades_; ++shade) swatch(looks[0], shade);
      const bool has_parts = it_.plan.part_count() > it_.plan.stage_count();
      const bool has_versions = it_.plan.batches > 1;
      say(!has_versions ? "parts of a stage"
          : has_parts   ? "parts and versions of the weights"
                        : "versions of the weights");
    }
    text_ += "</g>\n";
  }

  void draw_stages()
  {
    for (std::uint32_t stage = 0; stage < it_.plan.stage_count(); ++stage) {
      const double y = top + row_step * stage;
      words("", 16, y + 17, "stage " + std::to_string(stage));
      rect("idle", left, y, scale_ * it_.times.seconds, row_height);
    }
  }

  void draw_runs()
  {
    std::string numbers;
    text_ += "<g id=\"runs\">\n";
    for (const bar& each : bars_) {
      const look& its = looks[look_of(each.step.kind)];
      const double x = x_of(each.begin);
      const double y = top + row_step * each.stage;
      const double width = scale_ * (each.end - each.begin);
      const double height = each.is_aside ? aside_height : row_height;
      rect("run " + class_of(its, shade_of(each)), x, each.is_aside ? y + row_height + 1 : y, width, height);
      const std::string number = std::to_string(each.number());
      if (each.is_aside || width < digit_width * static_cast<double>(number.size()) + 4) continue;
      std::swap(text_, numbers);
      words(its.letter == 'u' ? "n u" : "n", x + width / 2, y + 17, number);
      std::swap(text_, numbers);
    }
    text_ += "</g>\n<g id=\"numbers\">\n" + numbers + "</g>\n";
  }

  void draw_axis()
  {
    const double y = top + row_step * it_.plan.stage_count() + 2;
    const double step = tick_seconds(scale_);
    const auto last = static_cast<std::uint32_t>(it_.times.seconds / step + 1e-9);
    text_ += "<g id=\"axis\">\n";
    text_ += "<path class=\"tick\" d=\"M" + at(left) + " " + at(y) + "H" + at(x_of(it_.times.seconds));
    for (std::uint32_t tick = 0; tick <= last; ++tick) text_ += "M" + at(x_of(tick * step)) + " " + at(y) + "v5";
    text_ += "\"/>\n";
    for (std::uint32_t tick = 0; tick <= last; ++tick)
      words("mid", x_of(tick * step), y + 20, short_text(tick * step) + (tick == 0 ? " s" : ""));
    text_ += "</g>\n";
  }

  const simulation& it_;
  std::vector<bar> bars_;
  double scale_;
  double height_;
  std::uint32_t shades_ = 1;
  double legend_end_ = 0;
  std::string title_;
  std::string text_;
};

}  // namespace

std::string picture_of(const simulation& it)
{
  return svg_picture{it}.text();
}

}  // namespace schedule_example
