// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <shardkit/detail/forms.hpp>

namespace shardkit::detail {
class RankResources;
}
namespace shardkit SHARDKIT_CHECKED_BUILD {
class Model;
}
namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
class Groups;
}
namespace shardkit::spi SHARDKIT_FACE {
class OptimizerContents;
}

namespace shardkit::detail {

/// Gives parts access to private members of others. Each function goes with the last part that uses it; see spi.
struct Access {
    template <class T, class... Arguments>
    static T make(Arguments&&... arguments) {
        return T(std::forward<Arguments>(arguments)...);
    }
    static const auto& stated(const auto& reduced) noexcept { return reduced.stated(); }
    template <class M, class Location, class Groups = spi::Groups>
    static Groups each(const M& model, Location where) {
        return Groups(model, where);
    }
    template <class O, class Location, class Contents = spi::OptimizerContents>
    static Contents contents(O& optimizer, Location where) {
        return Contents(optimizer, where);
    }
    template <class O, class Contents = spi::OptimizerContents>
    static auto parts(O& optimizer) {
        return Contents(optimizer, {}).parts();
    }
    static auto held(auto& optimizer, const auto& where) { return contents(optimizer, where).held(); }
    static auto progress(auto& optimizer, const auto& where) { return contents(optimizer, where).progress(); }
    static void set_progress(auto& optimizer, const auto& of_groups, auto change, const auto& where) {
        contents(optimizer, where).set_progress(of_groups.data(), change);
    }
    static auto hyper_parameters(auto& optimizer, const auto& where) {
        return contents(optimizer, where).hyper_parameters()[0];
    }
    static void for_each_state(auto& optimizer, const auto& f, const auto& where) {
        contents(optimizer, where).for_each_state(f);
    }
    static void restore(auto& scale, auto value, std::uint32_t clean_steps, std::uint32_t overflows) {
        scale.restore(value, clean_steps, overflows);
    }
    static auto now(const auto& scale, const auto& where) { return scale.state(where); }
    static auto capture(const auto& state, const auto& where) { return state.capture(where); }
    static std::uint64_t version(const auto& state, const auto& where) { return state.version(where); }
    static void check_numbers(const auto& state, const auto& numbers, const auto& where) {
        state.check_numbers(numbers, where);
    }
    static void restore_numbers(const auto& state, const auto& numbers, const auto& where) {
        state.restore_numbers(numbers, where);
    }
    static const auto& planned(const auto& plan) noexcept { return plan.planned_; }
    template <class R, class Resources = RankResources>
    static auto& living(R& rank) noexcept {
        return Resources::of(rank).living;
    }
    template <class R, class Resources = RankResources>
    static auto& pools(R& rank) noexcept {
        return Resources::of(rank).pools;
    }
};

}  // namespace shardkit::detail
