// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trainer.hpp"

#include <cstdio>
#include <ostream>
#include <string_view>

namespace gpt {

/// Writes a training as JSON before its first step, so that another program can repeat it: the sizes, the settings, the
/// learning rate of each step, the windows of text of each step ([micro-batch * batch + row], one byte more than the
/// context), and every parameter as it is stored, in the order of `model::parameters`.
template <class Manager>
class export_file {
 public:
  export_file(std::ostream& out, const trainer<Manager>& from) : out_{out}, from_{from}, net_{from.net().handles()} {}

  void write(std::size_t steps)
  {
    out_ << "{\n";
    sizes();
    settings();
    list("learning_rates", steps, [&](std::size_t step) { number(from_.learning_rate(step)); });
    list("windows", steps, [&](std::size_t step) { windows(step); });
    list("parameters", net_.parameters.size(), [&](std::size_t which) { parameter(net_.parameters[which].tensor); });
    out_ << "\"format\": 1\n}\n";
  }

 private:
  void sizes()
  {
    const extents& size = net_.size;
    out_ << "\"layers\": " << size.layers << ",\n\"width\": " << size.width << ",\n\"heads\": " << size.heads
         << ",\n\"context\": " << size.context << ",\n\"batch\": " << size.batch
         << ",\n\"micro_batches\": " << size.micro_batches << ",\n";
  }

  void settings()
  {
    const trainer_settings& settings = from_.settings();
    out_ << "\"precision\": \"" << name_of(settings.precision) << "\",\n\"clip\": ";
    number(settings.clip);
    const auto& adam = settings.adam;
    const auto& scale = settings.scale;
    const std::pair<const char*, float> named[] = {{"beta1", adam.beta1},
                                                   {"beta2", adam.beta2},
                                                   {"epsilon", adam.epsilon},
                                                   {"weight_decay", adam.weight_decay},
                                                   {"first_loss_scale", scale.initial},
                                                   {"scale_growth", scale.growth},
                                                   {"scale_backoff", scale.backoff}};
    for (const auto& [name, value] : named) {
      out_ << ",\n\"" << name << "\": ";
      number(value);
    }
    out_ << ",\n\"scale_window\": " << scale.window << ",\n";
  }

  void windows(std::size_t step)
  {
    const std::size_t rows = net_.size.batch * net_.size.micro_batches;
    for (std::size_t row = 0; row < rows; ++row) {
      const unsigned char* const tokens = from_.training_window(step, row).tokens;
      out_ << (row == 0 ? "[" : ", ");
      for (std::size_t i = 0; i <= net_.size.context; ++i) out_ << (i == 0 ? "[" : ", ") << unsigned{tokens[i]};
      out_ << ']';
    }
    out_ << ']';
  }

  void parameter(const weight& which)
  {
    const auto wide = from_.net().widened(which);
    const auto values = wide.open();
    for (std::uint64_t i = 0; i < which.elements; ++i) {
      out_ << (i == 0 ? "[" : ", ");
      number(values.data()[i]);
    }
    out_ << ']';
  }

  template <class Write>
  void list(std::string_view name, std::size_t count, Write write)
  {
    out_ << '"' << name << "\": [";
    for (std::size_t i = 0; i < count; ++i) {
      if (i != 0) out_ << ",\n";
      write(i);
    }
    out_ << "],\n";
  }

  void number(float value)
  {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
    out_ << text;
  }

  std::ostream& out_;
  const trainer<Manager>& from_;
  const model& net_;
};

}  // namespace gpt
