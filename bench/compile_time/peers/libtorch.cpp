// SPDX-License-Identifier: Apache-2.0
// One layer trained with Adam by LibTorch.
#include <torch/torch.h>

#include <iostream>

int main()
{
  torch::nn::Linear layer(64, 64);
  torch::optim::Adam adam(layer->parameters(), 1e-3);
  for (int step = 0; step < 50; ++step) {
    adam.zero_grad();
    const torch::Tensor loss = (layer->forward(torch::ones({8, 64})) - 1).square().mean();
    loss.backward();
    adam.step();
    std::cout << loss.item<float>() << '\n';
  }
}
