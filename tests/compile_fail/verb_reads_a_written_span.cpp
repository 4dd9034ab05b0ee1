// SPDX-License-Identifier: Apache-2.0
// expected-error: verbs take spans: write std::span<const T>(x) for what is read and std::span<T>(x) for what is written
#include "model.hpp"

void sum(sk::Context<Engine>& rank, std::span<float> mine, std::span<float> all) {
    const auto stream = rank.communication_stream();
#ifdef REJECT
    sk::all_reduce(rank.world(), sk::ReduceOp::sum, mine, all, stream);
#else
    sk::all_reduce(rank.world(), sk::ReduceOp::sum, std::span<const float>(mine), all, stream);
    sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, all, stream);
#endif
}
