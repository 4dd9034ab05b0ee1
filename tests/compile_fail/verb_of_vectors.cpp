// SPDX-License-Identifier: Apache-2.0
// expected-error: verbs take spans: write std::span<const T>(x) for what is read and std::span<T>(x) for what is written
#include <vector>

#include "model.hpp"

void gather(sk::Context<Engine>& rank, const std::vector<float>& mine, std::vector<float>& all) {
    const auto stream = rank.communication_stream();
#ifdef REJECT
    sk::all_gather(rank.world(), mine, all, stream);
#else
    sk::all_gather(rank.world(), std::span<const float>(mine), std::span<float>(all), stream);
#endif
}
