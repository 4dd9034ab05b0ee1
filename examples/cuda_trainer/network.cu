// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include "launch.cuh"

// The model's passes and what they launch, compiled once for both trainers.

namespace cuda_trainer {

// Other files call what is inlined here.
template <class Work>
[[gnu::used]] void StreamLaunch::operator()(std::size_t n, const Work& work) const {
    launch(stream, n, work);
}
template void StreamLaunch::operator()(std::size_t, const CopyTokens&) const;

}  // namespace cuda_trainer

template class train_gpt::Pass<float, cuda_trainer::Place>;
