// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "problem.hpp"

#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <filesystem>
#include <string>

namespace max_model {

/// A model by its name, by family/name, or from a JSON file. `which` is a file if it exists or looks like one.
/// @throws problem        no such name, or several families have it
/// @throws format_error   the file describes an impossible model
/// @throws io_error       the file cannot be read
[[nodiscard]] inline chunkmem::workload::transformer_file choose_model(const std::string& which)
{
  namespace workload = chunkmem::workload;
  if (which.ends_with(".json") || std::filesystem::is_regular_file(which)) return workload::read_transformer(which);
  const workload::named_transformer* found = nullptr;
  for (const workload::named_transformer& it : workload::named_transformers) {
    const std::string whole = std::string{it.family} + "/" + std::string{it.name};
    if (whole == which) return {whole, it.shape};
    if (it.name != which) continue;
    if (found != nullptr)
      throw problem{"--model '" + which + "' is the name of several models: write '" + std::string{found->family} +
                    "/" + which + "' or '" + whole + "'"};
    found = &it;
  }
  if (found == nullptr)
    throw problem{"--model '" + which + "' is neither a file nor a name that is known (see --models)"};
  return {which, found->shape};
}

}  // namespace max_model
