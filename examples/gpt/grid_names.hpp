// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>

#include <cstdint>
#include <string>

namespace gpt {

// The names of ranks, in a grid of stages and replicas, in errors of their groups.

/// @param replicas   of each stage; a single pipeline has no name
inline std::string name_of_pipeline(std::uint32_t replica, std::uint32_t replicas)
{
  return replicas == 1 ? std::string{} : "replica " + std::to_string(replica);
}
inline chunkmem::collective::member_names names_of_replicas(std::uint32_t stage, std::uint32_t replicas)
{
  chunkmem::collective::member_names names{.group = "the replicas of stage " + std::to_string(stage)};
  for (std::uint32_t it = 0; it < replicas; ++it)
    names.ranks.push_back("stage " + std::to_string(stage) + " of replica " + std::to_string(it));
  return names;
}
inline chunkmem::collective::member_names names_of_grid(std::uint32_t stages, std::uint32_t replicas)
{
  chunkmem::collective::member_names names{.group = "all ranks"};
  for (std::uint32_t rank = 0; rank < stages * replicas; ++rank)
    names.ranks.push_back("stage " + std::to_string(rank % stages) + " of replica " + std::to_string(rank / stages));
  return names;
}
/// The two stages that have a copy of the table.
inline chunkmem::collective::member_names names_of_tables(std::uint32_t first, std::uint32_t last,
                                                          std::uint32_t replica)
{
  const std::string of = " of replica " + std::to_string(replica);
  return {"the stages of the tied table",
          {"stage " + std::to_string(first) + of, "stage " + std::to_string(last) + of}};
}

}  // namespace gpt
