// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/optim/update.hpp>
#include <shardkit/rank/engine_table.hpp>

#include "engine_workload.hpp"

namespace benchmarks::kernels {

/// What optimizers' steps have in common: fp32 parameters and, with bf16 gradients, also the bf16 copy that the next
/// all-gather sends.
template <class Engine, class T, class Update>
class StepWorkload : public EngineWorkload<Engine> {
    static constexpr bool gathers = !std::is_same_v<T, float>;

  protected:
    static constexpr double scale = 0.5;  ///< of the gradient

    StepWorkload(shardkit::Context<Engine>& context, std::size_t n, const Update& update)
        : EngineWorkload<Engine>(context),
          master_(context.template buffer<float>(n)),
          gathered_(context.template buffer<T>(gathers ? n : 0)),
          gradient_(context.template buffer<T>(n)),
          run_(context, shardkit::UpdateRange{0, n, 0}),
          update_(context, update),
          skip_(context, std::uint32_t{0}) {}

    /// Parameters are the values of number 0, gradients those of number 1.
    void put_parameters() {
        this->put_values(master_.span(), 0);
        this->put_values(gradient_.span(), 1);
        this->spoil(gathered_.span());
    }
    /// right(i, parameter) says so of the rest; the copy must be what the parameter rounds to.
    template <class Right>
    std::uint64_t count_wrong_steps(Right right) {
        const auto master = this->template read<float>(master_.span());
        const auto gathered = this->template read<T>(gathered_.span());
        return this->count(master.size(), [&](std::size_t i) {
            return right(i, static_cast<double>(master[i])) && (!gathers || gathered[i] == static_cast<T>(master[i]));
        });
    }

    std::span<const shardkit::UpdateRange> run() const { return run_.span(); }
    const Update* update() const { return update_.data(); }
    const std::uint32_t* skip() const { return skip_.data(); }

    typename Engine::template Buffer<float> master_;
    typename Engine::template Buffer<T> gathered_;
    typename Engine::template Buffer<T> gradient_;

  private:
    shardkit::detail::EngineTable<Engine, shardkit::UpdateRange> run_;
    shardkit::detail::EngineTable<Engine, Update> update_;
    shardkit::detail::EngineTable<Engine, std::uint32_t> skip_;
};

}  // namespace benchmarks::kernels
