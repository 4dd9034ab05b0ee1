// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/backend/cub/span_walk.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/optim/adamw_update.hpp>
#include <shardkit/optim/update_run.hpp>

namespace shardkit::gpu {

/// One AdamW step over the elements in `runs`, vector by vector; see AdamWSpans for the pointers. `gathered` is null
/// where the master itself is gathered, `skip` where no step is ever left out.
/// Cost:  fp32 throughout: 28 bytes moved per element, in accesses of 16 bytes where the spans agree in alignment.
template <FloatingElement Master, FloatingElement Gather, FloatingElement Gradient>
struct AdamWPass {
    using A = Arithmetic<Master>;
    static constexpr std::size_t lanes = lanes_for<Master, Gather, Gradient, A>;

    Master* master;
    Gather* gathered;
    const Gradient* gradient;
    A* exp_avg;
    A* exp_avg_sq;
    const UpdateRun* runs;
    std::size_t run_count;
    const AdamWUpdate<A>* updates;
    const std::uint32_t* skip;
    Tiling<lanes> tiling;

    constexpr void operator()(std::uint64_t vector) const {
        if (skip == nullptr || *skip == 0) { for_each_pack_in(tiling, vector, runs, run_count, *this); }
    }

    template <std::size_t N>
    constexpr void at(std::uint64_t position, const UpdateRun& run) const {
        const AdamWUpdate<A> update = updates[run.update];
        const auto g = load<N>(gradient + position);
        auto p = load<N>(master + position);
        auto m = load<N>(exp_avg + position);
        auto v = load<N>(exp_avg_sq + position);
        for (std::size_t i = 0; i < N; ++i) {
            A parameter = converted<A>(p.lane[i]);
            update(parameter, m.lane[i], v.lane[i], converted<A>(g.lane[i]));
            p.lane[i] = converted<Master>(parameter);
        }
        store<N>(p, master + position);
        store<N>(m, exp_avg + position);
        store<N>(v, exp_avg_sq + position);
        if (gathered != nullptr) { store<N>(converted_pack<Gather>(p), gathered + position); }
    }
};

}  // namespace shardkit::gpu
