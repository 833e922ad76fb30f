// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

// A user's program that asks what a model of a file costs.
int main()
{
  const auto model =
      chunkmem::workload::parse_transformer(R"({"name": "small", "source": "here", "style": "llama", "layers": 2,
    "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocabulary": 256, "embedding": 64, "positions": 0,
    "sequence": 32, "ties_embedding": true})",
                                            "small.json");
  return chunkmem::workload::transformer_costs{model.shape}.checkpoint() == chunkmem::bytes{2 * 64 * 32} ? 0 : 1;
}
