// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job.hpp"
#include "trainer.hpp"

namespace benchmarks::policies {

/// The check run on one rank, where nothing is communicated. T: double, float or bf16.
template <class T>
Reference<T> train_alone(const Job& job);

}  // namespace benchmarks::policies
