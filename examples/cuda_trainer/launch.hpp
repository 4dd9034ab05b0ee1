// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gpu.hpp"

namespace cuda_trainer {

/// work(i) for each i below `count`, in the stream's order: a thread each. Defined in launch.cuh, so that files which
/// only launch need no nvcc; a test may define it as a loop.
template <class Work>
void launch(cudaStream_t stream, std::size_t count, const Work& work);

}  // namespace cuda_trainer
