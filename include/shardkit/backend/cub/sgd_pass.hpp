// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/optim/sgd_update.hpp>
#include <shardkit/optim/update_run.hpp>

namespace shardkit::gpu {

/// One SGD step over the elements in `runs`, as AdamWPass. `momentum_buffer` is null exactly under Momentum::none.
/// Cost:  fp32 throughout: 20 bytes moved per element, 12 without momentum.
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient>
struct SgdPass {
    using A = Arithmetic<Master>;
    static constexpr std::size_t lanes = lanes_for<Master, Gather, Gradient, A>;

    Master* master;
    Gather* gathered;
    const Gradient* gradient;
    A* momentum_buffer;
    const UpdateRun* runs;
    std::size_t run_count;
    const SgdUpdate<A>* updates;
    const std::uint32_t* skip;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const {
        if (skip == nullptr || *skip == 0) { for_each_pack_in(tiling, vector, runs, run_count, *this); }
    }

    template <std::size_t N>
    constexpr void at(std::uint64_t position, const UpdateRun& run) const {
        const SgdUpdate<A> update = updates[run.update];
        const auto g = load<N>(gradient + position);
        auto p = load<N>(master + position);
        if (momentum_buffer == nullptr) {
            for (std::size_t i = 0; i < N; ++i) {
                A parameter = converted<A>(p.lane[i]);
                update(parameter, converted<A>(g.lane[i]));
                p.lane[i] = converted<Master>(parameter);
            }
        } else {
            auto b = load<N>(momentum_buffer + position);
            for (std::size_t i = 0; i < N; ++i) {
                A parameter = converted<A>(p.lane[i]);
                update(parameter, b.lane[i], converted<A>(g.lane[i]));
                p.lane[i] = converted<Master>(parameter);
            }
            store<N>(b, momentum_buffer + position);
        }
        store<N>(p, master + position);
        if (gathered != nullptr) { store<N>(converted_pack<Gather>(p), gathered + position); }
    }
};

}  // namespace shardkit::gpu
