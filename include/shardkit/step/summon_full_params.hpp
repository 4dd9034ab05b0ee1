// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/detail/access.hpp>
#include <shardkit/sharded/window.hpp>
#include <shardkit/step/groups.hpp>

namespace shardkit::inline SHARDKIT_BUILD {

/// A model's full parameters, current on every rank while this lives: windows of its groups open without
/// communication, on any rank and in any order. Move-only; its end is local work.
template <class... T>
class FullParams {
  public:
    FullParams(FullParams&&) noexcept = default;
    FullParams& operator=(FullParams&&) noexcept = default;

  private:
    friend detail::Access;
    FullParams(const Groups<T...>& groups, SourceLocation where) {
        std::tuple<std::vector<PendingWindow<typename LayerOf<T>::State>>...> pending;
        groups.for_each_indexed([&](auto& layer, auto part, std::size_t) {
            auto& state = detail::Access::state(layer, where);
            using State = typename std::remove_reference_t<decltype(layer)>::State;
            state.summon_window(where);
            std::get<decltype(part)::value>(pending).push_back(
                detail::Access::make<PendingWindow<State>>(static_cast<State&>(state), where));
        });
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            ((keep(std::get<I>(pending), std::get<I>(windows_))), ...);
        }
        (std::index_sequence_for<T...>{});
    }
    template <class Pending, class Windows>
    static void keep(Pending& pending, Windows& windows) {
        for (auto& each : pending) { windows.push_back(std::move(each).wait()); }
    }

    std::tuple<std::vector<Window<typename LayerOf<T>::State>>...> windows_;
};

/// Makes the full parameters of every group current on all ranks, at this place and nowhere else: for work that one
/// rank does alone (evaluation, sampling, saving), and as PyTorch's FSDP.summon_full_params.
///     const auto full = summon_full_params(model);  // on every rank
///     if (rank.rank() == 0) { const auto w = layer.unshard(Gathers::never); ... }
/// While it lives, an optimizer's step, load and initialize are refused as under any window.
/// Order:   collective as an unshard of each group, in the model's order; the host does not wait.
/// Cost:    a gather of each group whose full copy is out of date; memory for the full parameters of the groups that
///          are sharded at rest, taken here and given back with the last window
/// @throws  MemoryError when there is none; CommError when the engine fails
template <class... T>
[[nodiscard]] FullParams<T...> summon_full_params(const Groups<T...>& groups,
                                                  SourceLocation where = SourceLocation::current()) {
    static_cast<void>(groups.context(where));
    return detail::Access::make<FullParams<T...>>(groups, where);
}

}  // namespace shardkit::inline SHARDKIT_BUILD
