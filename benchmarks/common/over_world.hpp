// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/rank/context.hpp>

namespace benchmarks {

/// Numbers of this rank reduced over all ranks of the world, in every rank's hands.
template <class Engine, class T>
void reduce_over_world(shardkit::Context<Engine>& context, shardkit::ReduceOp op, std::span<T> values) {
    const auto stream = context.communication_stream();
    auto buffer = context.template buffer<T>(values.size());
    Engine::Kernels::copy_in(stream, std::span<const T>(values), buffer.span());
    shardkit::all_reduce_in_place(context.world(), op, buffer.span(), stream);
    Engine::Kernels::copy_out(stream, std::span<const T>(buffer.span()), values);
}

}  // namespace benchmarks
