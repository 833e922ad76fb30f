// SPDX-License-Identifier: Apache-2.0
// A product of two matrices with Eigen.
#include <Eigen/Dense>

#include <iostream>

int main()
{
  const Eigen::MatrixXf left = Eigen::MatrixXf::Random(64, 64), right = Eigen::MatrixXf::Random(64, 64);
  std::cout << (left * right).norm() << '\n';
}
