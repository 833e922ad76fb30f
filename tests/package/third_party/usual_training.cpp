// SPDX-License-Identifier: Apache-2.0
#include "usual_training.hpp"

const trained& usual_training()
{
  static const trained result = train_with<>();
  return result;
}
